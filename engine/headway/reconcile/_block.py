"""The state of a block that a reconciler opens."""

from __future__ import annotations

from headway.base import AsyncBlock
from headway.errors import Closed


class Block(AsyncBlock):
    """The state of a block. Without ``async with``, its methods would have no effect, or only a part of it."""

    _is_open: bool | None = None

    def _check_open(self, call: str) -> None:
        if not self._is_open:
            self._entered = True  # One error is enough.
            state = "is not open" if self._is_open is None else "has ended"
            raise Closed(f"{call}: the block {state}: call it inside `async with {self._usage}:`")

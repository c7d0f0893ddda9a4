"""Waiting for a type to be primed: for as long as it makes progress."""

from __future__ import annotations

import trio

from headway.cache import SharedType
from headway.errors import PrimingStalled


async def wait_primed(shared: SharedType, revision: int, stall_limit: float) -> None:
    """Wait until a type is primed up to a revision: a big one may take its time, one of which nothing is heard not.

    Raises PrimingStalled when nothing has been heard of it for ``stall_limit`` seconds.
    """
    while True:
        heard = shared.heard
        with trio.move_on_after(stall_limit):
            await shared.wait_complete(revision)
            return
        if shared.heard == heard:
            why = f"; {shared.cut_off[0]}" if shared.cut_off else ""
            raise PrimingStalled(
                f"nothing was heard of {shared.type.name} for {stall_limit} s while it was being primed: "
                f"{shared.resources} resources have come, its revision is {shared.frontier} of {revision}{why}"
            )

"""The errors of async blocks that are opened by ``with`` or ``await``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from headway.errors import InvalidArgument


class AsyncBlock:
    """The base of async context managers. Opened in another way, they say what to write, which Python does not.

    Type checkers do not see the methods, so they still find the mistake first.
    """

    __slots__ = ()

    _usage: ClassVar[str]
    """The block as it stands after ``async with``."""

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise InvalidArgument(f"`with` cannot open an async block: write `async with {self._usage}:`")

        def __exit__(self, *_: object) -> None:
            """Make `__enter__` known to ``with``."""

        def __await__(self) -> NoReturn:
            raise InvalidArgument(f"`await` cannot open an async block: write `async with {self._usage}:`")

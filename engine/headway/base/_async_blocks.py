"""The errors of async blocks that are opened by ``with`` or ``await``, or not at all."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, ParamSpec, TypeVar

from headway.errors import InvalidArgument

P = ParamSpec("P")
T = TypeVar("T")
_EXAMPLE = re.compile(r"async with (.+?):(?: \.\.\.|\n)", re.DOTALL)


class AsyncBlock:
    """The base of async context managers. Opened in another way, they say what to write, which Python does not.

    One that is never opened warns when it is dropped, as Python does for a coroutine that is never awaited. Type
    checkers do not see these methods, so they still find the mistake first.
    """

    _usage: str
    """The block as it stands after ``async with``."""

    _entered = True
    """False until `__aenter__` has set it to True again. A block that could not be made has nothing to warn of."""

    def __init__(self) -> None:
        self._entered = False

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise self._opened_by("with")

        def __exit__(self, *_: object) -> None:
            """Make `__enter__` known to ``with``."""

        def __await__(self) -> NoReturn:
            raise self._opened_by("await")

        def __del__(self) -> None:
            if not self._entered:
                text = f"an async block was never entered, and has no effect: write `async with {self._usage}:`"
                # The frame that drops it is that of the mistake.
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _opened_by(self, word: str) -> InvalidArgument:
        self._entered = True
        return InvalidArgument(f"`{word}` cannot open an async block: write `async with {self._usage}:`")


class _Opened(AsyncBlock, Generic[T]):
    """A block that an async generator makes."""

    def __init__(self, usage: str, made: AbstractAsyncContextManager[T]) -> None:
        super().__init__()
        self._usage = usage
        self._made = made

    async def __aenter__(self) -> T:
        self._entered = True
        return await self._made.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._made.__aexit__(kind, error, traceback)


def async_block(function: Callable[P, AsyncIterator[T]]) -> Callable[P, AbstractAsyncContextManager[T]]:
    """Decorate an async generator function like `contextlib.asynccontextmanager`; it makes blocks of `AsyncBlock`.

    Its docstring has an example of the block.
    """
    made = asynccontextmanager(function)
    example = _EXAMPLE.search(function.__doc__ or "")
    usage = f"{function.__name__}(...)" if example is None else example[1]

    @functools.wraps(function)
    def opened(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _Opened(usage, made(*args, **kwargs))

    return opened

"""The errors of blocks and streams that are used by another statement than theirs, or not at all."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, ParamSpec, TypeVar

from headway.errors import InvalidArgument

P = ParamSpec("P")
T = TypeVar("T")
_EXAMPLE = re.compile(r"with (.+?):(?:\s|``)", re.DOTALL)


class _OneStatement:
    """The base of objects for one statement. Used by another one, they say what to write, which Python does not.

    A subclass overrides the methods of its statement. Type checkers do not see those of the others, so they still find
    the mistake first.
    """

    def _right(self) -> tuple[str, str]:
        """Return what the object is for, such as "open an async block", and the statement to write."""
        raise NotImplementedError

    def _used_by(self, word: str) -> InvalidArgument:
        purpose, form = self._right()
        return InvalidArgument(f"`{word}` cannot {purpose}: write `{form}:`")

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise self._used_by("with")

        def __exit__(self, *_: object) -> None:
            """Make `__enter__` known to ``with``."""

        def __aenter__(self) -> NoReturn:
            raise self._used_by("async with")

        def __aexit__(self, *_: object) -> NoReturn:
            """Make `__aenter__` known to ``async with``."""
            raise self._used_by("async with")

        def __await__(self) -> NoReturn:
            raise self._used_by("await")

        def __iter__(self) -> NoReturn:
            raise self._used_by("for")

        def __aiter__(self) -> NoReturn:
            raise self._used_by("async for")


class AsyncStream(_OneStatement):
    """The base of what ``async for`` reads."""

    _reads: str
    """What is read, and the statement: ``a subscription``, ``async for batch in batches``."""
    _usage: str

    def _right(self) -> tuple[str, str]:
        return f"read {self._reads}", self._usage


class AsyncBlock(_OneStatement):
    """The base of async context managers.

    One that is never opened warns when it is dropped, as Python does for a coroutine that is never awaited.
    """

    _usage: str
    """The block as it stands after ``async with``."""

    _entered = True
    """False until `__aenter__` has set it to True again. A block that could not be made has nothing to warn of."""

    def __init__(self) -> None:
        self._entered = False

    if not TYPE_CHECKING:

        def __del__(self) -> None:
            if not self._entered:
                text = f"an async block was never entered, and has no effect: write `async with {self._usage}:`"
                # The frame that drops it is that of the mistake.
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _right(self) -> tuple[str, str]:
        self._entered = True  # One error is enough.
        return "open an async block", f"async with {self._usage}"


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
    made, usage = asynccontextmanager(function), _usage_of(function)

    @functools.wraps(function)
    def opened(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _Opened(usage, made(*args, **kwargs))

    return opened


class _Plain(_OneStatement, Generic[T]):
    """A block that a generator makes. Without ``with``, it has no effect, as in Python."""

    def __init__(self, usage: str, made: AbstractContextManager[T]) -> None:
        self._usage = usage
        self._made = made

    def __enter__(self) -> T:
        return self._made.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._made.__exit__(kind, error, traceback)

    def _right(self) -> tuple[str, str]:
        return "open a block that is not async", f"with {self._usage}"


def plain_block(function: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T]]:
    """Decorate a generator function like `contextlib.contextmanager`. Its docstring has an example of the block."""
    made, usage = contextmanager(function), _usage_of(function)

    @functools.wraps(function)
    def opened(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return _Plain(usage, made(*args, **kwargs))

    return opened


def _usage_of(function: Callable[..., object]) -> str:
    example = _EXAMPLE.search(function.__doc__ or "")
    return f"{function.__name__}(...)" if example is None else example[1]

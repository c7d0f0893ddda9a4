"""The functions that notifications fetch from, as a program declares them. No I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headway.base import async_problem, checked, ended
from headway.errors import DeclarationError

T_co = TypeVar("T_co", covariant=True)

_POLL_FORM = "RATES = headway.notify.Poll(fetch_rates), with `async def fetch_rates() -> T`"
_QUERY_FORM = (
    "FEED = headway.notify.BlockingQuery(fetch_feed), with `async def fetch_feed(after: int) -> tuple[int, T]`"
)


@checked()
@dataclass(frozen=True, slots=True)
class Poll(Generic[T_co]):
    """``RATES = headway.notify.Poll(fetch_rates)`` declares an async function for `Updates.poll`.

    The function may have arguments, which you pass to `Updates.poll`. Raises DeclarationError.
    """

    function: Callable[..., Awaitable[T_co]]

    def __post_init__(self) -> None:
        if problem := async_problem(self.function, None, ""):
            raise DeclarationError(f"the function of a poll: {ended(problem)} The form is: {_POLL_FORM}")


@checked()
@dataclass(frozen=True, slots=True)
class BlockingQuery(Generic[T_co]):
    """``FEED = headway.notify.BlockingQuery(fetch_feed)`` declares a blocking query for `Updates.query`.

    The async function is called with the last index that it returned, or 0 at first, and with the arguments that you
    pass to `Updates.query`. It waits until the index is higher, or for as long as it chooses, and returns the index and
    the value. Raises DeclarationError.
    """

    function: Callable[..., Awaitable[tuple[int, T_co]]]

    def __post_init__(self) -> None:
        if problem := async_problem(self.function, None, ""):
            raise DeclarationError(f"the function of a blocking query: {ended(problem)} The form is: {_QUERY_FORM}")

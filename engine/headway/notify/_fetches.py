"""Fetches: the calls of a program's functions whose results notifications keep up to date, and the answers of a cache's
handles. Equal questions share one answer.

Rules:
1. A fetch runs while it has a handle, in one task. Closing the last handle cancels a call in progress.
2. A failure never leaves the fetch. The first three retries follow at once, the later ones after a back-off.
3. A poll is called again when its value is older than the smallest ``max_age`` of its handles.
4. A blocking query is called with the index of its last value. A lower index is a restore of the other side: its value
   is delivered and marked, and the next call is made with the lower index.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar, cast

import trio

from headway.base import chance, of_controller, only_error, repr_text
from headway.errors import InvalidArgument, InvalidResult
from headway.notify._cuts import Cuts
from headway.notify._handle import Answer, Handle
from headway.notify._reads import Read
from headway.notify._sources import BlockingQuery, Poll
from headway.protobuf import equal
from headway.resource import Position

T = TypeVar("T")

_IMMEDIATE = 3
_LONGEST = 60.0
_JITTER = 1 / 16
_SOON = 1.0
"""The minimum time, in seconds, between two calls of a blocking query if the first has returned nothing new.

A function that does not block would otherwise be called in a busy loop.
"""
_FAST, _BURST = 0.01, 10
"""The same after this many calls in a row that took less than that time and returned something new.

The index of a function that does not block may grow with each call.
"""


def retry_delay(failures: int) -> float:
    """Return the delay, in seconds, before a call is repeated after this many failures in a row."""
    if failures <= _IMMEDIATE:
        return 0.0
    delay = min(2.0 ** min(failures - _IMMEDIATE, 16), _LONGEST)
    return delay * (1 + chance.random())


class Fetch(Answer[T]):
    """A function whose result is kept up to date.

    Attributes:
        name: the name of the function.
    """

    def __init__(self, key: Hashable, ended: Callable[[Answer[Any]], object], function: object) -> None:
        super().__init__(key, ended)
        self.name: str = getattr(function, "__name__", repr(function))
        self._scope = trio.CancelScope()
        self._handles_changed = trio.lowlevel.ParkingLot()
        # When the value was last known to be current, on Trio's clock.
        self._current_at = trio.current_time()
        self._result: Any = None

    async def run(self) -> None:
        """Fetch until the last handle is closed."""
        with self._scope:
            while True:
                try:
                    await self._fetch()
                except BaseException as error:  # noqa: BLE001  # a program's function may raise anything
                    failed, others = of_controller(error)
                    if failed is not None:
                        self.note_error(only_error(failed), self.failures + 1)
                    if others is not None:
                        # Without the failure. It would end the cache if it left the canceled scope.
                        raise others from None
                if self.failures:
                    await trio.sleep(retry_delay(self.failures))
                else:
                    await self._wait()

    def read(self) -> T:
        """Return the newest value, which all handles share."""
        value: T = self._result
        return value

    def attached(self) -> None:
        """Note that a handle was added or closed."""
        self._handles_changed.unpark_all()

    def end(self) -> None:
        """Cancel the call in progress."""
        self._scope.cancel()
        super().end()

    @abstractmethod
    async def _fetch(self) -> None:
        """Call the function, and note its result."""

    @abstractmethod
    async def _wait(self) -> None:
        """Wait until the function should be called again."""

    def _succeeded(self, *, grown: bool, restored: bool = False) -> None:
        self._current_at = trio.current_time()
        recovered = self.error is not None
        self.error, self.failures = None, 0
        if grown:
            self.note_value(restored=restored)
        elif recovered:
            self.note_error(None, 0)
        else:
            # A handle that was created when the value was too old has its first value now.
            for handle in self.handles:
                if not handle.answered:
                    handle.mark()


class PollFetch(Fetch[T]):
    """A poll with its arguments."""

    def __init__(
        self, key: Hashable, ended: Callable[[Answer[Any]], object], poll: Poll[T], arguments: tuple[Any, ...]
    ) -> None:
        super().__init__(key, ended, poll.function)
        self._call: Callable[[], Awaitable[T]] = lambda: poll.function(*arguments)

    @property
    def position(self) -> Position | None:
        """None: the result of a poll has no position."""
        return None

    @property
    def age(self) -> float:
        """The time, in seconds, since the value was fetched."""
        return trio.current_time() - self._current_at

    def suffices(self, handle: Handle[T]) -> bool:
        """Return True if the value is not older than the handle allows."""
        return handle.max_age is None or self.age <= handle.max_age

    async def _fetch(self) -> None:
        result = await self._call()
        # The function may have changed the object that it returned before. Then there is nothing to compare with.
        same = result is self._result and type(result).__hash__ is None
        grown = not self.values or same or not _are_equal(self._result, result)
        if grown:
            self._result = result
        self._succeeded(grown=grown)

    async def _wait(self) -> None:
        # Otherwise a function without a checkpoint, whose value is too old at once, would let no other task run.
        await trio.lowlevel.checkpoint()
        jitter = 1 + chance.random() * _JITTER
        # The jitter spreads repeated calls. A handle without an answer does not wait for it.
        while all(handle.answered for handle in self.handles):
            max_age = min((each.max_age for each in self.handles if each.max_age is not None), default=_LONGEST)
            due = self._current_at + max_age * jitter
            if trio.current_time() >= due:
                return
            with trio.move_on_at(due):
                await self._handles_changed.park()


class QueryFetch(Fetch[T]):
    """A blocking query with its arguments."""

    def __init__(
        self,
        key: Hashable,
        ended: Callable[[Answer[Any]], object],
        query: BlockingQuery[T],
        arguments: tuple[Any, ...],
    ) -> None:
        super().__init__(key, ended, query.function)
        self._call: Callable[[int], Awaitable[tuple[int, T]]] = lambda after: query.function(after, *arguments)
        self._index = 0
        self._after = 0
        self._next_at = 0.0
        self._fast = 0

    @property
    def position(self) -> Position | None:
        """The index, as the revision of a position; None before the first value."""
        return Position("", "", self._index) if self.values else None

    @property
    def age(self) -> float:
        """The time, in seconds, since the last success, if a call has failed since."""
        return 0.0 if self.error is None and self.values else trio.current_time() - self._current_at

    async def _fetch(self) -> None:
        began = trio.current_time()
        index, value = self._checked(await self._call(self._after))
        first = not self.values
        restored = index < self._index
        grown = first or index > self._index or (index == self._index == 0 and not _are_equal(self._result, value))
        if grown or restored:
            self._result, self._index = value, index
        failures = self.failures
        self._succeeded(grown=grown or restored, restored=restored)
        # A query that does not know an index would not block.
        self._after = max(self._index, 1)
        if index == 0:
            self.failures = failures + 1
        self._fast = self._fast + 1 if trio.current_time() - began < _FAST else 0
        pause = _SOON if not (grown or restored) else _FAST if self._fast > _BURST else 0.0
        self._next_at = began + pause

    async def _wait(self) -> None:
        await trio.sleep_until(self._next_at)

    def _checked(self, answer: object) -> tuple[int, T]:
        if isinstance(answer, tuple) and len(answer) == 2:
            index, value = answer
            if isinstance(index, int) and not isinstance(index, bool) and index >= 0:
                return index, value
        raise InvalidResult(
            f"{self.name} returned {repr_text(answer)}: return an index, a whole number from 0 on, and a value, "
            "such as (7, teams)"
        )


def _are_equal(old: Any, new: Any) -> bool:
    """Return True if two results are equal: messages by their fields, everything else by ``==``."""
    if hasattr(old, "__dataclass_fields__") and type(old) is type(new) and hasattr(old, "SerializeToString"):
        return equal(old, new)
    try:
        return bool(old == new)
    except Exception:  # noqa: BLE001  # a program's class may raise anything; its handles then get the new value
        return False


A = TypeVar("A", bound=Answer[Any])


class Answers:
    """The answers that have a handle.

    Args:
        nursery: runs the fetches.
    """

    def __init__(self, cuts: Cuts, nursery: trio.Nursery) -> None:
        self._cuts = cuts
        self._nursery = nursery
        self._answers: dict[Hashable, Answer[Any]] = {}

    def find(self, key: Hashable, make: Callable[[], A]) -> A:
        """Return the answer to a question. Make it, and begin it, if the question is new.

        Raises InvalidArgument for a question that is not hashable.
        """
        try:
            answer = self._answers.get(key)
        except TypeError as error:
            raise InvalidArgument(
                f"the arguments of a handle must be hashable, because equal ones share: {error}"
            ) from error
        if answer is None:
            answer = self._answers[key] = make()
            if isinstance(answer, Fetch):
                self._nursery.start_soon(answer.run, name=f"fetching {answer.name}")
            elif isinstance(answer, Read):
                self._cuts.add(answer)
        return cast("A", answer)

    def ended(self, answer: Answer[Any]) -> None:
        """Forget an answer without handles."""
        if self._answers.get(answer.key) is answer:
            del self._answers[answer.key]
            if isinstance(answer, Read):
                self._cuts.end_read(answer)

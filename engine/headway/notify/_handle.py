"""The handles of notifications, and the answers that equal handles share. No Trio, no I/O.

Rules:
1. An answer has one newest value and one newest error. Handles keep nothing but a mark that they have changed. A slow
   receiver therefore gets the newest value, and delays only itself.
2. An error leaves the value as it is. Each failure marks the handles, even if it is equal to the one before.
3. ``restored`` stays set until it has been delivered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from headway.errors import NotPrimed
from headway.resource import Position

T = TypeVar("T")


class Answer(ABC, Generic[T]):
    """The answer to one question, shared by all handles with that question.

    Args:
        ended: called when its last handle was closed.

    Attributes:
        key: the question.
        handles: the open handles, in the order of their creation.
        values: the number of values so far; 0 before the first.
        error: the reason why the value may be out of date, or None.
        failures: the number of failures since the last success.
    """

    def __init__(self, key: Hashable, ended: Callable[[Answer[Any]], object]) -> None:
        self.key = key
        self._ended = ended
        self.handles: dict[Handle[T], None] = {}
        self.values = 0
        self.error: BaseException | None = None
        self.failures = 0

    @property
    @abstractmethod
    def position(self) -> Position | None:
        """The position of the newest value, if it has one."""

    @property
    @abstractmethod
    def age(self) -> float:
        """The time, in seconds, for which the value has not been known to be current; 0 while it is."""

    @abstractmethod
    def read(self) -> T:
        """Return the newest value."""

    def suffices(self, handle: Handle[T]) -> bool:  # noqa: ARG002  # for answers that can be too old
        """Return True if the present value is good enough to be the first of a new handle."""
        return True

    def attached(self) -> None:
        """Note that a handle was added or closed."""

    def end(self) -> None:
        """End everything behind the answer, because its last handle was closed."""
        self._ended(self)

    # --- called by the source of the values ---

    def note_value(self, *, restored: bool = False) -> None:
        """Note a new value, and mark every handle."""
        self.values += 1
        for handle in self.handles:
            handle.mark(restored=restored)

    def note_error(self, error: BaseException | None, failures: int) -> None:
        """Note a failure, or with None the end of the failures, and mark every handle."""
        self.error, self.failures = error, failures
        for handle in self.handles:
            handle.mark()


class Receiver(Protocol):
    """The receiver of changed handles."""

    def changed(self, handle: Handle[T]) -> None:
        """Note that a handle has changed."""
        ...

    def closed(self, handle: Handle[T]) -> None:
        """Note that a handle was closed."""
        ...


class Handle(Generic[T]):
    """A value that is kept up to date. You get one from a method of `Updates`.

    Attributes:
        correlation_id: the text that was given for it.
        hit: True if its first value was known when it was created, because another handle has the same question.
        max_age: the age at which its value is fetched again; None if it is not polled.
    """

    def __init__(
        self, answer: Answer[T], receiver: Receiver, correlation_id: str = "", max_age: float | None = None
    ) -> None:
        self.correlation_id = correlation_id
        self.max_age = max_age
        self._answer = answer
        self._receiver = receiver
        self._open = True
        # True once it has a value, or an error.
        self._answered = False
        self._restored = self._restored_since = False
        self._value: T | None = None
        self._value_of = 0
        self.hit = answer.values > 0 and answer.suffices(self)

    def begin(self) -> None:
        """Open the handle. If its answer is known, it is marked at once."""
        self._answer.handles[self] = None
        if self.hit or self._answer.error is not None:
            self.mark()
        self._answer.attached()

    @property
    def value(self) -> T:
        """The newest value. Raises NotPrimed before the first, and the errors of the read."""
        answer = self._answer
        if not self.has_value:
            why = (
                "await updates.primed() first" if answer.error is None else f"the first attempt failed: {answer.error}"
            )
            raise NotPrimed(f"{self!r} has no value yet: {why}") from answer.error
        if self._value_of != answer.values:
            # Each handle has a value of its own, because its reader may change it.
            self._value = answer.read()
            self._value_of = answer.values
        value: T = self._value  # type: ignore[assignment]  # it was read above
        return value

    @property
    def has_value(self) -> bool:
        """True once `value` can be read. A fetch whose every call has failed has none."""
        return self._answered and self._answer.values > 0

    @property
    def error(self) -> BaseException | None:
        """The reason why the value may be out of date; None if it is current."""
        return self._answer.error

    @property
    def failures(self) -> int:
        """The number of failures since the last success."""
        return self._answer.failures

    @property
    def age(self) -> float:
        """The time, in seconds, for which the value has not been known to be current; 0 while it is."""
        return self._answer.age

    @property
    def position(self) -> Position | None:
        """The position of the value. A blocking query has its index as the revision, and a poll has none."""
        return self._answer.position

    @property
    def restored(self) -> bool:
        """True if the value may be older than the one delivered before, because its source was restored."""
        return self._restored or self._restored_since

    @property
    def answered(self) -> bool:
        """True once the handle has a value or an error."""
        return self._answered

    def close(self) -> None:
        """End the handle. It is not yielded again. Idempotent."""
        if not self._open:
            return
        self._open = False
        answer = self._answer
        del answer.handles[self]
        self._receiver.closed(self)
        if answer.handles:
            answer.attached()
        else:
            answer.end()

    def __repr__(self) -> str:
        name = f" {self.correlation_id!r}" if self.correlation_id else ""
        return f"<Handle{name} of {self._answer.key}>"

    # --- called by the answer and the receiver ---

    def mark(self, *, restored: bool = False) -> None:
        """Note that the answer has changed."""
        if not self._answered:
            self._answered = self._answer.values > 0 or self._answer.error is not None
        if restored:
            self._restored_since = True
        self._receiver.changed(self)

    def deliver(self) -> None:
        """Note that the handle is being yielded."""
        self._restored, self._restored_since = self._restored_since, False

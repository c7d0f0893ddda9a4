"""A coroutine that begins in the middle of a task's step, and takes over that task only if it has to wait."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import copy_context
from types import FrameType
from typing import Any, Self

import trio
from outcome import Value


def _asked_by(steps: Coroutine[Any, Any, None]) -> Any:
    """Return the first thing that a coroutine asks Trio for. It need not run in Trio for that."""
    message = steps.send(None)
    steps.close()
    return message


# What a task asks Trio for if it only lets others run.
_TURN = _asked_by(trio.lowlevel.cancel_shielded_checkpoint())  # noqa: ASYNC105


class Running:
    """A coroutine in a context of its own. What waits is the task in which it has begun.

    `begin` runs it until it waits. The task must then await this object at once. It may leave its own work to another
    task before that, but must not enter or leave a cancel scope.

    The coroutine goes on at once when it lets others run for the first time. That is meant for a task that would
    otherwise wait for nothing, and here the task has just waited for the peer.
    """

    __slots__ = ("_coroutine", "_message", "_run")

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self._run: Callable[..., Any] = copy_context().run
        # What it has asked Trio for.
        self._message: Any = None

    def begin(self) -> bool:
        """Run until the coroutine waits, and return True, or until it ends, and return False. Raises what it raises."""
        try:
            message = self._run(self._coroutine.send, None)
            self._message = self._run(self._coroutine.send, Value(None)) if message is _TURN else message
        except StopIteration:
            return False
        return True

    def __await__(self) -> Self:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        message, self._message = self._message, None
        return message

    def send(self, answer: Any) -> Any:
        """Go on with Trio's answer."""
        try:
            return self._run(self._coroutine.send, answer)
        finally:
            # It may hold an error whose traceback refers to this frame: a cycle until the garbage collector runs.
            del answer

    def throw(self, *error: Any) -> Any:
        """Go on with an error of Trio's."""
        return self._run(self._coroutine.throw, *error)

    def close(self) -> None:
        """End the coroutine, as Python does with a task's when its loop has crashed."""
        self._run(self._coroutine.close)

    # By these names Trio's `iter_await_frames` finds the rest of a task's stack.
    @property
    def cr_frame(self) -> FrameType | None:
        """The coroutine's frame."""
        return self._coroutine.cr_frame  # type: ignore[attr-defined, no-any-return]  # typing's Coroutine lacks it

    @property
    def cr_await(self) -> Any:
        """What the coroutine awaits."""
        return self._coroutine.cr_await  # type: ignore[attr-defined]  # likewise

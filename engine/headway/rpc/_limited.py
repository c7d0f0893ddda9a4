"""Calls that a limit of the server refuses: their error, its form in trailers, and how a client waits and repeats them.

A refused call has done nothing, so that even a write may be repeated. The server names the time until it would accept
the call. A client waits for that time, and for a random part of as much again, because the others whom the same
limit has refused would otherwise repeat their calls at the same moment. It gives up when the timeout of its
call leaves no time for another attempt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import trio
from grpclib.const import Status

from headway.base import chance
from headway.errors import RateLimited
from headway.rpc._channel import NOT_BEGUN, NotBegun

PUSHBACK = "grpc-retry-pushback-ms"
"""The trailer that gRPC defines for the time after which a client should repeat a call, in milliseconds."""

_LONGEST_PUSHBACK = 10
"""The number of digits of a valid time."""
_SPREAD = 0.05
"""The seconds over which calls are spread at least."""
_MOST_DOUBLINGS = 6
_LONGEST_SPREAD = 30.0
"""The seconds over which calls are spread at most, unless the server's time itself is longer."""


class Limited(NotBegun):
    """A limit of the server refuses the call for now. It had no effect.

    Attributes:
        retry_after: the time, in seconds, until the server would accept it.
    """

    def __init__(self, message: str | None, seconds: float, details: Any = None) -> None:
        super().__init__(Status.RESOURCE_EXHAUSTED, message, details)
        self.retry_after = seconds

    def __reduce__(self) -> tuple[type[Limited], tuple[str | None, float, object]]:
        # An exception is copied from its args, which here begin with the status.
        return type(self), (self.message, self.retry_after, self.details)

    def trailers(self) -> dict[str, str]:
        """Return the trailers that carry this error."""
        return {NOT_BEGUN: "1", PUSHBACK: str(max(math.ceil(self.retry_after * 1000), 1))}


def limited_in(
    status: Status, message: str | None, trailers: Mapping[str, str], details: object = None
) -> Limited | None:
    """Return the error for a call that was not begun, if its trailers say that a limit refuses it."""
    given = trailers.get(PUSHBACK, "")
    if status is not Status.RESOURCE_EXHAUSTED or not (given.isascii() and given.isdigit()):
        return None
    return Limited(message, int(given) / 1000, details) if len(given) <= _LONGEST_PUSHBACK else None


class LimitedWaits:
    """The waits of one call that a limit refuses, until its timeout.

    Only the timeout makes a client give up. A deadline of the caller cancels the wait when it passes, as it does with
    any call: some deadlines are moved before they pass, such as the deadline of a lease that is renewed.

    Args:
        timeout: the time in seconds that the call may take in all.
    """

    def __init__(self, timeout: float = math.inf) -> None:
        self._ends = trio.current_time() + timeout
        self._count = 0

    async def wait(self, refused: Limited | RateLimited) -> None:
        """Wait until the call should be repeated. Raise the error at once if the timeout would pass before that."""
        now = trio.current_time()
        delay = spread(refused.retry_after, self._count, self._ends - now, trio.current_effective_deadline() - now)
        if delay is None:
            raise refused
        self._count += 1
        await trio.sleep(delay)


def ended_a_wait(error: BaseException) -> bool:
    """Return True if the error, such as a cancellation, has ended a call while it waited to be repeated.

    Every attempt so far was refused, so the call had no effect.
    """
    # The wait is in the block that handles the refusal, so Python sets this.
    return isinstance(error.__context__, Limited)


def spread(seconds: float, repeats: int, left: float = math.inf, own: float = math.inf) -> float | None:
    """Return the time to wait before a call is repeated, or None if ``left`` seconds are too few.

    It is ``seconds`` and a random time, which may be twice as long with each of the ``repeats`` before it. There may be
    more callers than the limit lets through in that time. The random time leaves half of what is left to the call, also
    of the ``own`` seconds of the caller, if the call can be repeated in them at all.
    """
    if seconds >= left:
        return None
    further = max(seconds, _SPREAD) * 2.0 ** min(repeats, _MOST_DOUBLINGS)
    within = min(left, own) if own > seconds else left
    return seconds + chance.uniform(0, min(further, max(seconds, _LONGEST_SPREAD), (within - seconds) / 2))

"""How a client waits and repeats a call that a limit of the server has refused.

A refused call has done nothing, so that even a write may be repeated. The server names the time until it would accept
the call. A client waits for that time, and for a random part of as much again, because the others whom the same
limit has refused would otherwise repeat their calls at the same moment. It gives up when the timeout of its
call leaves no time for another attempt.
"""

from __future__ import annotations

import math
from typing import Protocol, cast

import trio

from headway.base import chance

_SPREAD = 0.05
"""The seconds over which calls are spread at least."""
_MOST_DOUBLINGS = 6
_LONGEST_SPREAD = 30.0
"""The seconds over which calls are spread at most, unless the server's time itself is longer."""


class Refused(Protocol):
    """The error of a call that a limit has refused."""

    retry_after: float


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

    async def wait(self, refused: Refused) -> None:
        """Wait until the call should be repeated. Raise the error at once if the timeout would pass before that."""
        now = trio.current_time()
        delay = spread(refused.retry_after, self._count, self._ends - now, trio.current_effective_deadline() - now)
        if delay is None:
            raise cast("Exception", refused)
        self._count += 1
        await trio.sleep(delay)


def ended_a_wait(error: BaseException) -> bool:
    """Return True if the error, such as a cancellation, has ended a call while it waited to be repeated.

    Every attempt so far was refused, so the call had no effect.
    """
    # The wait is in the block that handles the refusal, so Python sets this.
    return getattr(error.__context__, "is_waited_for", False)


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

"""The clock of the server, by which leases expire, beside the monotonic clock of this process."""

from __future__ import annotations

import trio

SLACK = 1.0
"""The seconds by which the clock may be ahead, because clocks are adjusted by small parts."""


class ServerClock:
    """What the clock of the server has shown last, and when it was asked."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def was_set_forward(self, shown: float, asked_at: float) -> bool:
        """Note what the clock has shown to a question of ``asked_at``. Return True if it was set forward since."""
        last, self._last = self._last, (shown, asked_at)
        return last is not None and shown - last[0] > trio.current_time() - last[1] + SLACK

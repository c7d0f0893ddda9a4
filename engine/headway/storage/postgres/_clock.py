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
        """Return True if the clock has shown to a question of ``asked_at`` that it was set forward.

        It does so until `renewed`: no other task may end a lease before, and a renewal may fail.
        """
        last = self._last
        if last is not None and shown - last[0] > trio.current_time() - last[1] + SLACK:
            return True
        self._last = (shown, asked_at)
        return False

    def renewed(self, shown: float, asked_at: float) -> None:
        """Note that all leases count anew since the clock has shown this."""
        self._last = (shown, asked_at)

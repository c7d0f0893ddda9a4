"""The pause of a run's controller: a switch that tasks of the run can wait for."""

from __future__ import annotations

import trio


class Pausing:
    """The switch of one run.

    Attributes:
        reason: why the controller is paused, which may be empty; None if it is not.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._changed = trio.lowlevel.ParkingLot()

    def set(self, reason: str | None) -> bool:
        """Pause with this reason, or resume for None. Return True if that is a change."""
        if reason == self.reason:
            return False
        self.reason = reason
        self._changed.unpark_all()
        return True

    async def wait(self, *, paused: bool) -> None:
        """Wait until the controller is paused, or until it is not."""
        while (self.reason is not None) != paused:
            await self._changed.park()

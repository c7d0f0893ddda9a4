"""The gate of a controller, which something outside may close: then it starts no reconcile, and its daemons end."""

from __future__ import annotations

import trio

from headway.errors import ControllerStopped
from headway.events import Report


class Gate:
    """The gate of a controller. This one stays open, unless a subclass closes it.

    Args:
        controller: the controller's full name.

    Attributes:
        reason: why it is closed, which may be empty; None if it is open.
    """

    def __init__(self, controller: str) -> None:
        self.controller = controller
        self.reason: str | None = None
        self._changed = trio.lowlevel.ParkingLot()

    def set(self, reason: str | None) -> None:
        """Close it for this reason, or open it for None."""
        if reason != self.reason:
            self.reason = reason
            self._changed.unpark_all()

    async def wait_changed(self) -> None:
        """Wait until it is opened, closed, or closed for another reason."""
        await self._changed.park()

    async def wait_open(self) -> None:
        """Wait until the controller may reconcile."""
        while self.reason is not None:
            await self._changed.park()

    async def wait_closed(self) -> None:
        """Wait until the controller may not reconcile."""
        while self.reason is None:
            await self._changed.park()

    # --- what a subclass knows ---

    @property
    def seconds(self) -> float:
        """The time for which it has been closed; 0 if it is open, or if that is not known."""
        return 0.0

    async def wait_known(self, stall_limit: float) -> None:
        """Wait until it is known whether it is closed. Until then, a run does not reconcile.

        Raises PrimingStalled if nothing arrives for ``stall_limit`` seconds, and the errors of a store that was
        replaced or rolled back.
        """

    async def wait_read(self, revision: int) -> None:
        """Wait until it is known whether it is closed as of a revision. Does not raise."""

    def report_to(self, report: Report, queued: int) -> None:
        """Report that a run has stopped or goes on for `reason`. ``queued`` of its keys are ready."""

    def error(self) -> ControllerStopped:
        """Return the error for a caller who would wait for a reconcile."""
        return ControllerStopped(f"controller {self.controller} is stopped ({self.reason}) and has pending work")

"""The controllers that other processes run, or ran, as values."""

from __future__ import annotations

from typing import NamedTuple

from headway._gen.headway.observe.v1 import ControllerNow, Ref, StuckItem
from headway.base import wall_time
from headway.resource import Kind, TypeName
from headway.run import ControllerStatus


class Elsewhere(NamedTuple):
    """A controller in a process that attends, or that attended until recently.

    Attributes:
        kind: the kind that it manages.
        now: its numbers; None if the process has not answered in time.
        gone: when the process disconnected; 0 while it is connected.
    """

    caller: str
    process: str
    name: str
    kind: Kind
    now: ControllerNow | None = None
    gone: float = 0.0


class Absent(NamedTuple):
    """A controller that is wanted and runs nowhere, since a time in seconds since 1970. ``process`` ran it before."""

    controller: str
    manages: TypeName
    process: str
    since: float

    def status(self) -> ControllerStatus:
        """Return it as the status of a controller."""
        return ControllerStatus(self.controller, "absent", max(wall_time() - self.since, 0.0))

    def item(self) -> StuckItem:
        """Return it as stuck work."""
        return StuckItem(
            self.controller,
            self.process,
            Ref(str(self.manages)),
            "absent",
            self.since,
            error="no process runs it: start a worker that does",
        )

"""The events of pauses, and the error of a caller who would wait for a paused controller."""

from __future__ import annotations

from headway.errors import ControllerStopped
from headway.events import Record


class Paused(Record):
    """An operator has paused a controller (`headway pause`): this process starts no more reconciles of it."""

    controller: str
    reason: str


class Resumed(Record):
    """An operator has resumed a controller. ``queued`` keys are ready."""

    controller: str
    queued: int


class ControllerPaused(ControllerStopped):
    """`wait_idle` would wait until an operator resumes a controller, because the controller has pending work.

    ``headway resume`` or `headway.pauses.resume_controller` resumes it.
    """

"""The event of a step whose outcome is uncertain."""

from __future__ import annotations

from typing import Any

from headway.events import Record


class StepUncertain(Record):
    """A reconcile enters a step again that was begun before and never ended: its effect may or may not have happened.

    ``id`` is the resource, ``step`` the name of the step, and ``key`` what the program has given to the outside.
    """

    controller: str
    id: Any
    step: str
    key: str

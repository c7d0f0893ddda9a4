"""The type of controller records: which controllers workers run, so that the server can miss them. Pure."""

from __future__ import annotations

from headway._gen.headway.internal.v1 import ControllerRecord
from headway.resource._ids import Scope
from headway.resource._types import ResourceType

CONTROLLER_RECORD = ResourceType(
    "internal",
    "v1",
    "ControllerRecord",
    ControllerRecord,
    scope=Scope.CLUSTER,
    columns={"CONTROLLER": "controller", "MANAGES": "manages", "PROCESS": "process", "SEEN": "seen"},
)
"""The type of controller records."""

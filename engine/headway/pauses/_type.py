"""The type of pauses: resources that stop a controller from reconciling. Pure."""

from __future__ import annotations

import hashlib
import re

from headway._gen.headway.pause.v1 import Pause
from headway.resource import Hooks, Resource, ResourceType, Scope, builtin

_READABLE = 40
"""The number of characters of a controller's name that are part of the name of its pause."""

MAX_REASON = 500
"""The maximum length of the reason of a pause."""

_FORM = re.compile(r"[^/\s]+/[^\s]+\Z")


def pause_name(controller: str) -> str:
    """Return the name of the pause of a controller, ``app/controller``. A resource's name cannot contain a slash.

    The digest distinguishes controllers whose names differ only in characters that a resource's name cannot have.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", controller.lower())[:_READABLE].strip("-")
    digest = hashlib.sha256(controller.encode()).hexdigest()[:12]
    return f"{readable}-{digest}" if readable else digest


def controller_problem(controller: str) -> str | None:
    """Return what is wrong with the full name of a controller, or None."""
    if _FORM.match(controller):
        return None
    return f"controller {controller!r} must be the app's name and the controller's, such as 'staff/teams'"


def _check_name(pause: Resource[Pause]) -> None:
    """Refuse a pause under any other name: no process would find it."""
    controller = pause.data.controller
    if problem := controller_problem(controller):
        raise ValueError(f"data.{problem}")
    if len(pause.data.reason) > MAX_REASON:
        raise ValueError(f"data.reason must have at most {MAX_REASON} characters, not {len(pause.data.reason)}")
    if pause.name != pause_name(controller):
        raise ValueError(
            f"name {pause.name!r} must be {pause_name(controller)!r} for controller {controller!r}: "
            "`headway pause` and headway.pauses.pause_controller use the right one"
        )


PAUSE = builtin(
    ResourceType(
        "pause",
        "v1",
        "Pause",
        Pause,
        scope=Scope.CLUSTER,
        hooks=Hooks(validate=_check_name),
        columns={"CONTROLLER": "controller", "REASON": "reason"},
    )
)
"""The type of pauses. While the pause of a controller exists, no process starts a reconcile of that controller."""

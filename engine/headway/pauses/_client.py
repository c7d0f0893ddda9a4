"""Pausing a controller and resuming it, for operators' programs, over any client."""

from __future__ import annotations

from headway._gen.headway.pause.v1 import Pause
from headway.base import check_text
from headway.client import Client
from headway.errors import InvalidArgument
from headway.pauses._type import PAUSE, controller_problem, pause_name


async def pause_controller(client: Client, controller: str, reason: str = "") -> bool:
    """Pause a controller in every process, until `resume_controller`. Return False if it was paused already.

    From then on, no process starts a reconcile of it. Running reconciles finish, and daemons are canceled. The caches
    and the queues go on, so that nothing is forgotten. A second call replaces the reason.

    The pause is kept in the store. A process learns of it as of any other change, and before it first reconciles.

    Args:
        controller: the name of the app and of the controller, such as ``staff/teams``. It need not run now.
        reason: why it is paused, for the readers of its status.

    Raises:
        InvalidArgument: the name or the reason is invalid.
        PermissionDenied: the caller may not write resources of type ``pause.v1.Pause``.
    """
    _check(controller)
    check_text("reason", reason, "'the disks are being replaced'")
    pause = PAUSE.new(pause_name(controller), Pause(controller=controller, reason=reason))
    known = await client.get(PAUSE, pause.name)
    await client.apply(pause)
    return known is None


async def resume_controller(client: Client, controller: str) -> bool:
    """Let a paused controller reconcile again, in every process. Return False if it was not paused.

    Raises:
        InvalidArgument: the name is invalid.
        PermissionDenied: the caller may not delete resources of type ``pause.v1.Pause``.
    """
    _check(controller)
    id = PAUSE.id(pause_name(controller))
    known = await client.get(PAUSE, id)
    if known is not None:
        await client.delete(known)
    return known is not None


def _check(controller: str) -> None:
    check_text("controller", controller, "'staff/teams'")
    if problem := controller_problem(controller):
        raise InvalidArgument(problem)

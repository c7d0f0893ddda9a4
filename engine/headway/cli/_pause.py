"""The commands `headway pause` and `headway resume`: stop a controller in every process, and let it go on."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import click

from headway._gen.headway.observe import v1 as observe_pb
from headway.api import Call, ObserveApi
from headway.base import plain
from headway.cli._connection import Connection, connected
from headway.cli._exits import Usage
from headway.errors import HeadwayError
from headway.pauses import controller_problem, pause_controller, resume_controller
from headway.resource import did_you_mean

_FULL_NAME = click.argument("controller", metavar="APP/CONTROLLER")


@click.command()
@_FULL_NAME
@click.option("--reason", default="", help="Why it is paused, for the readers of its status.")
@connected
async def pause(connection: Connection, controller: str, reason: str) -> None:
    """Let no process start a reconcile of a controller, until `resume`.

    APP/CONTROLLER is the name of the app and of the controller, such as staff/teams. Running reconciles finish, and
    daemons are canceled. Caches and queues go on, so that nothing is forgotten. `headway list pause` shows what is
    paused.
    """
    _check(controller)
    new = await pause_controller(connection.client, controller, reason)
    click.echo(f"{controller} is paused" if new else f"{controller} was paused already")
    known = await _controllers(connection)
    if known is not None and controller not in known:
        hint = did_you_mean(controller, known)
        click.echo(plain(f"Warning: {controller} is stored as paused, but no process runs it{hint}"), err=True)


@click.command()
@_FULL_NAME
@connected
async def resume(connection: Connection, controller: str) -> None:
    """Let a paused controller reconcile again, in every process."""
    _check(controller)
    was_paused = await resume_controller(connection.client, controller)
    click.echo(f"{controller} is resumed" if was_paused else f"{controller} was not paused")


async def _controllers(connection: Connection) -> Collection[str] | None:
    """Return the names of the controllers that the server knows, or None if the caller may not know them all."""
    request = observe_pb.StuckRequest(longer_than=86_400)
    with suppress(HeadwayError):
        reply = await ObserveApi.over(connection.channel).stuck(Call(connection.metadata), request)
        # The server's own controllers are always there, unless it runs an earlier version.
        return reply.controllers if any(each.startswith("headway/") for each in reply.controllers) else None
    return None


def _check(controller: str) -> None:
    if problem := controller_problem(controller):
        raise Usage(problem)

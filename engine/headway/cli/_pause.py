"""The commands `headway pause` and `headway resume`: stop a controller in every process, and let it go on."""

from __future__ import annotations

import click

from headway.cli._connection import Connection, connected
from headway.cli._running import Usage
from headway.client import pause_controller, resume_controller
from headway.resource import controller_problem

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


@click.command()
@_FULL_NAME
@connected
async def resume(connection: Connection, controller: str) -> None:
    """Let a paused controller reconcile again, in every process."""
    _check(controller)
    was_paused = await resume_controller(connection.client, controller)
    click.echo(f"{controller} is resumed" if was_paused else f"{controller} was not paused")


def _check(controller: str) -> None:
    if problem := controller_problem(controller):
        raise Usage(problem)

"""The command `headway retry`: an operator's reconcile of a resource, in whichever process has it."""

from __future__ import annotations

from contextlib import suppress

import click

from headway._gen.headway.observe import v1 as observe_pb
from headway.base import plain
from headway.cli._arguments import one_of_a_name
from headway.cli._connection import Connection, connected
from headway.cli._missing import naming_units
from headway.cli._names import find_named
from headway.cli._running import Usage
from headway.cli._why import ask
from headway.errors import HeadwayError
from headway.resource import PAUSE, controller_problem, pause_name


@click.command()
@one_of_a_name
@click.option("--controller", default="", metavar="APP/CONTROLLER", help="The controller, if the type has several.")
@connected
async def retry(connection: Connection, type: str, name: str, partition: str, namespace: str, controller: str) -> None:
    """Let a controller reconcile a resource now, whatever delay it has.

    The server asks the process that has the resource, which may be a worker. The command does not wait for the
    reconcile: `headway why` says how it went.
    """
    if controller and (problem := controller_problem(controller)):
        raise Usage(f"--{problem}")
    _, id = find_named(type, name, partition, namespace, connection.registry)
    request = observe_pb.RetryRequest(id=id.message(), controller=controller)
    async with naming_units(connection.client, id.partition, id.namespace):
        reply: observe_pb.RetryResponse = await ask(connection, "Retry", request, observe_pb.RetryResponse)
    where = f", in process {', '.join(reply.processes)}" if reply.processes else ""
    click.echo(plain(f"{reply.controller} reconciles {id} now{where}"))
    with suppress(HeadwayError):
        if await connection.client.get(PAUSE, pause_name(reply.controller)) is not None:
            resumed = f"`headway resume {reply.controller}`"
            click.echo(plain(f"Note: {reply.controller} is paused: it reconciles after {resumed}"), err=True)

"""The command `headway why`, which asks a server why a resource is not done, or what is stuck."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import TypeVar

import click
import trio

from headway._gen.headway.observe import v1 as observe_pb
from headway.api import FAILED, Call, Code, ObserveApi, code_of
from headway.base import plain
from headway.cli import _arguments
from headway.cli._connection import Connection, connected
from headway.cli._exits import Exit, Usage, fail
from headway.cli._missing import note_missing_unit
from headway.cli._names import find_named
from headway.cli._output import Details, details_option, json_text
from headway.client import client_error
from headway.errors import HeadwayError
from headway.resource import ResourceId, pb
from headway.why import cleaned, sentences

INTERVAL = 1.0
"""The seconds between two questions of `--watch`."""

Q = TypeVar("Q")
R = TypeVar("R")


@click.command("why")
@_arguments.one_or_stuck
@click.option("--stuck", is_flag=True, help="Show all work that has been pending for long, instead of one resource.")
@_arguments.longer_than
@click.option("--watch", is_flag=True, help="Show the answer again whenever it has changed, until interrupted.")
@details_option
@connected
async def why(
    connection: Connection,
    type: str | None,
    name: str | None,
    partition: str,
    namespace: str,
    stuck: bool,
    longer_than: float,
    watch: bool,
    output: Details,
) -> None:
    """Show why a resource is not done: what each controller does about it, and since when.

    With --stuck, show all work that has been pending for longer than a minute, the oldest first. The command then exits
    with 7 if it found something.
    """
    if stuck and type is not None:
        raise Usage(
            f"{' '.join(filter(None, (type, name)))} and --stuck exclude each other: --stuck shows all work that is "
            "stuck; leave one of them out"
        )
    if not stuck and name is None:
        raise Usage("give a TYPE and a NAME, such as `headway why team core`, or --stuck for everything that is stuck")
    if stuck and watch:
        raise Usage("--watch follows one resource: leave it out, or give a TYPE and a NAME instead of --stuck")
    if stuck:
        found = await ask_stuck(connection, longer_than)
        _show(found, output, nothing=f"no work has been pending for longer than {longer_than:g} s")
        if found.items or found.more or found.unreachable:
            sys.exit(Exit.DIFFERENT)
        return
    assert type is not None
    assert name is not None
    _, id = find_named(type, name, partition, namespace, connection.registry, any_version=True)
    shown: observe_pb.Why | None = None
    while True:
        answer = await ask_why(connection, id)
        # A new time alone does not make it a new answer.
        if shown is None or sentences(replace(answer, at=shown.at)) != sentences(shown):
            if shown is not None and output == "text":
                click.echo()
            _show(answer, output, one_line=watch)
            sys.stdout.flush()
            if shown is None and answer.stored is None:
                await note_missing_unit(connection.client, id.partition, id.namespace)
            shown = answer
        if not watch:
            return
        await trio.sleep(INTERVAL)


async def ask_why(connection: Connection, id: ResourceId, *, events: bool = True) -> observe_pb.Why:
    """Return why a resource is, or is not, done, and its last events unless they are not wanted."""
    tenancy = pb.Tenancy(partition=id.partition, namespace=id.namespace)
    request = observe_pb.WhyRequest(id=pb.Id(name=id.name, type=id.type.message(), tenancy=tenancy))
    reply = await ask(connection, lambda of: of.why, request)
    why = cleaned(reply.why or observe_pb.Why())
    return why if events else replace(why, events=[])


async def ask_stuck(connection: Connection, longer_than: float) -> observe_pb.StuckList:
    """Return the work that has been pending for longer than this many seconds."""
    request = observe_pb.StuckRequest(longer_than=longer_than)
    reply = await ask(connection, lambda of: of.stuck, request)
    return cleaned(reply.stuck or observe_pb.StuckList())


async def ask(
    connection: Connection, method: Callable[[ObserveApi], Callable[[Call, Q], Awaitable[R]]], request: Q
) -> R:
    """Return the answer of a method of the service that observes."""
    try:
        return await method(ObserveApi.over(connection.channel))(Call(connection.metadata), request)
    except HeadwayError as error:
        if code_of(error) is Code.UNIMPLEMENTED:
            lacks = type(request).__name__.removesuffix("Request")
            fail(Exit.REFUSED, f"Error: the server runs an earlier version of Headway, which lacks {lacks}")
        if isinstance(error, FAILED):
            raise client_error(error) from error
        raise


def _show(
    answer: observe_pb.Why | observe_pb.StuckList, output: Details, *, nothing: str = "", one_line: bool = False
) -> None:
    if output == "json":
        click.echo(json_text(asdict(answer), indent=None if one_line else 2))
        return
    for line in sentences(answer):
        click.echo(plain(line))
    if nothing and isinstance(answer, observe_pb.StuckList) and not answer.items and not answer.unreachable:
        click.echo(nothing, err=True)

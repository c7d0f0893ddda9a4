"""The command `headway retry`: an operator's reconcile of a resource, or of all that is stuck, in whichever process."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress

import click
import trio

from headway._gen.headway.observe import v1 as observe_pb
from headway.base import plain
from headway.cli import _arguments
from headway.cli._connection import Connection, connected
from headway.cli._exits import Exit, Usage
from headway.cli._missing import naming_units
from headway.cli._names import find_named, find_type
from headway.cli._output import counted
from headway.cli._why import ask, ask_stuck
from headway.errors import HeadwayError, NotFound
from headway.pauses import PAUSE, controller_problem, pause_name
from headway.resource import ResourceId
from headway.why import id_of

_WAITING = ("waiting", "slowed", "given up")
"""The states of keys that a retry moves on. What runs, waits for a worker or is held has no delay to end."""
_AT_ONCE = 8
"""The retries that are asked for at once. A worker answers 16 questions at a time, also those of others."""


@click.command()
@_arguments.one_or_stuck
@click.option("--controller", default="", metavar="APP/CONTROLLER", help="The controller, if the type has several.")
@click.option("--stuck", is_flag=True, help="Retry all that fails or was given up, instead of one resource.")
@_arguments.longer_than
@connected
async def retry(
    connection: Connection,
    type: str | None,
    name: str | None,
    partition: str,
    namespace: str,
    controller: str,
    stuck: bool,
    longer_than: float,
) -> None:
    """Let a controller reconcile a resource now, whatever delay it has.

    The server asks the process that has the resource, which may be a worker. The command does not wait for the
    reconcile: `headway why` says how it went.

    With --stuck, retry every resource that `headway why --stuck` lists because its reconcile fails or was given up: at
    most 1,000 of them. TYPE, --controller, --partition and --namespace then only select among them.
    """
    if controller and (problem := controller_problem(controller)):
        raise Usage(f"--{problem}")
    if stuck:
        if name is not None:
            raise Usage(f"{name} and --stuck exclude each other: --stuck retries all that is stuck, or all of a TYPE")
        wanted = "" if type is None else str(find_type(type, connection.registry).name)
        await _retry_stuck(connection, longer_than, wanted, controller, partition, namespace)
        return
    if type is None or name is None:
        raise Usage("give a TYPE and a NAME, such as `headway retry team core`, or --stuck for all that is stuck")
    _, id = find_named(type, name, partition, namespace, connection.registry, any_version=True)
    async with naming_units(connection.client, id.partition, id.namespace):
        reply = await _retry(connection, id, controller)
    where = f", in process {', '.join(reply.processes)}" if reply.processes else ""
    when = "now, and again when that has ended" if reply.running else "now"
    click.echo(plain(f"{reply.controller} reconciles {id} {when}{where}"))
    await _note_paused(connection, [reply.controller])


async def _retry(connection: Connection, id: ResourceId, controller: str) -> observe_pb.RetryResponse:
    request = observe_pb.RetryRequest(id=id.message(), controller=controller)
    reply: observe_pb.RetryResponse = await ask(connection, lambda of: of.retry, request)
    return reply


async def _retry_stuck(
    connection: Connection, longer_than: float, type: str, controller: str, partition: str, namespace: str
) -> None:
    found = await ask_stuck(connection, longer_than)

    def is_wanted(item: observe_pb.StuckItem) -> bool:
        of = item.resource
        return (
            of is not None
            and bool(of.name)
            and item.state in _WAITING
            and type in ("", of.type)
            and controller in ("", item.controller)
            and partition in ("", of.partition)
            and namespace in ("", of.namespace)
        )

    # A key of a controller may wait in several processes. One call reaches all of them.
    keys = {(item.controller, id_of(item.resource)) for item in found.items if item.resource and is_wanted(item)}
    done, failed = await _retry_all(connection, sorted(keys))
    for each, count in sorted(done.items()):
        click.echo(plain(f"{each} reconciles {counted(count, 'resource')} now"))
    if not keys:
        click.echo(f"nothing to retry: no reconcile has been failing for longer than {longer_than:g} s", err=True)
    await _note_paused(connection, sorted(done))
    if found.more:
        click.echo(f"Note: {found.more} more are stuck, and were not looked at: run the command again", err=True)
    if found.unreachable:
        click.echo(plain(f"Note: {', '.join(found.unreachable)} did not answer, and may have more"), err=True)
    if failed:
        what = counted(len(failed), "resource")
        click.echo(plain(f"Error: {what} not retried; the first one: {failed[0]}"), err=True)
        sys.exit(Exit.REFUSED)


async def _retry_all(
    connection: Connection, keys: Sequence[tuple[str, ResourceId]]
) -> tuple[Counter[str], Sequence[HeadwayError]]:
    """Retry each key. Return how many each controller reconciles now, and the errors of the others."""
    done, failed = Counter[str](), list[HeadwayError]()
    rest = iter(keys)

    async def one_after_the_other() -> None:
        for controller, id in rest:
            try:
                await _retry(connection, id, controller)
            except NotFound:
                # It was deleted and cleaned up since.
                continue
            except HeadwayError as error:
                failed.append(error)
            else:
                done[controller] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(_AT_ONCE):
            nursery.start_soon(one_after_the_other)
    return done, failed


async def _note_paused(connection: Connection, controllers: Iterable[str]) -> None:
    with suppress(HeadwayError):
        for each in controllers:
            if await connection.client.get(PAUSE, pause_name(each)) is not None:
                resumed = f"`headway resume {each}`"
                click.echo(plain(f"Note: {each} is paused: it reconciles after {resumed}"), err=True)

"""The commands `headway peer`: connect two servers, each with its own store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import trio

from headway.base import plain
from headway.cli._arguments import combined
from headway.cli._connection import Connection, connected
from headway.cli._exits import Exit, Usage, fail
from headway.cli._names import find_type
from headway.cli._output import Output, as_object, output_option, show_object, table
from headway.cli._running import read_stdin
from headway.client import Client, until_gone
from headway.errors import Conflict, InvalidArgument, NotFound
from headway.peering import (
    MAX_TOKEN,
    NOTIFIED,
    PEERING,
    STREAM_KEY,
    Export,
    Peering,
    Role,
    condition_of,
    establish,
    export,
    generate_token,
    state_of,
)
from headway.resource import ConditionState, Registry, Resource, ResourceId, type_name

_HEADS = ("NAME", "ROLE", "STATE", "PEER", "EXPORTS", "PROBLEM")
_UNITS = ("partition", "namespace")
_PATIENCE = 60.0
"""The seconds that `delete` waits until the copies are gone."""

_FORM = "write TYPE, TYPE:namespace=a or TYPE:partition=p,namespace=a"

_exporting = combined(
    click.option(
        "--export",
        "exports",
        multiple=True,
        metavar="TYPE[:namespace=NAME]",
        help="A type to copy to the other side: team, or account:namespace=a for one namespace of it. May be repeated.",
    ),
    click.option("--plain-text", is_flag=True, help="Connect without TLS. Only between processes of one machine."),
)


@click.group()
def peer() -> None:
    """Copy resources between two servers, each with its own store.

    \b
    In the east:    headway peer token west --export team > token
    In the west:    headway peer establish east --export account < token
    The copies are in partition peer-west in the east, and in peer-east in the west.
    """


@peer.command()
@click.argument("name")
@_exporting
@click.option(
    "--address",
    "addresses",
    multiple=True,
    help="An address at which the other side reaches this server. May be repeated.",
)
@click.option(
    "--server-name", default="", help="The name in this server's certificate, if it is not the host of its address."
)
@click.option(
    "--authority",
    type=click.Path(exists=True, dir_okay=False),
    help="The authorities (PEM) that sign this server's certificate, if they are not known to the other side.",
)
@connected
async def token(
    connection: Connection,
    name: str,
    exports: tuple[str, ...],
    plain_text: bool,
    addresses: tuple[str, ...],
    server_name: str,
    authority: str | None,
) -> None:
    """Create a peering NAME, and a token for another server.

    The token is printed to stdout. It is a secret: it expires after an hour, and works once. A new token for an
    existing peering invalidates the earlier one. Without --export, an existing peering keeps its exports.

    By default, the token names the addresses at which the server listens.
    """
    text = await generate_token(
        connection.client,
        name,
        _exports(exports, connection.registry) or None,
        addresses=addresses,
        server_name=server_name,
        ca="" if authority is None else _certificates(authority),
        plain_text=plain_text,
    )
    click.echo(f"peering {name}: give this token to `headway peer establish` within an hour", err=True)
    click.echo(text)


@peer.command("establish")
@click.argument("name")
@_exporting
@connected
async def establish_(connection: Connection, name: str, exports: tuple[str, ...], plain_text: bool) -> None:
    """Create a peering NAME from the token of another server, read from stdin.

    The token is exchanged at once. If the other server gives no answer, this server tries again until the token
    expires. Without --export an existing peering keeps its exports.
    """
    given = (await read_stdin(line_of=MAX_TOKEN + 2)).decode(errors="replace")
    if not given.strip():
        raise Usage(f"no token on stdin: headway peer establish {name} < token")
    wanted = _exports(exports, connection.registry)
    peering = await establish(connection.client, name, given, wanted, plain_text=plain_text)
    click.echo(f"peering {name} with {plain(peering.data.peer_name)} established")


@peer.command("list")
@output_option("json and yaml have all stored fields.")
@connected
async def list_(connection: Connection, output: Output) -> None:
    """Show the peerings with their states."""
    peerings = await connection.client.list(PEERING)
    if output != "table":
        show_object([as_object(each) for each in peerings], output)
    elif peerings:
        click.echo(table(_HEADS, [_cells(each) for each in peerings]))
    else:
        click.echo("no peering found", err=True)


@peer.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Do not wait until the other side is notified.")
@connected
async def delete(connection: Connection, name: str, force: bool) -> None:
    """Delete a peering, its partition and all copies in it, and wait until they are gone, for a minute at most.

    The other side is notified, and removes its copies. Its own peering stays in state terminated until it is deleted.
    A peering that dials the other side (`headway peer list` shows which one does) cannot notify it while it is
    unreachable. The peering then stays, without copies, until the other side answers, for 30 days at most.
    """
    try:
        id = PEERING.id(name)
    except InvalidArgument as error:
        raise Usage(str(error)) from error
    peering = await connection.client.read(PEERING, id)
    await connection.client.delete(peering)
    if force:
        await _stop_waiting(connection.client, peering.id)
    with trio.move_on_after(_PATIENCE):
        await until_gone(connection.client, PEERING, peering.id)
        click.echo(f"peering {name} deleted")
        return
    left = await connection.client.get(PEERING, peering.id)
    waiting = None if left is None else condition_of(left, STREAM_KEY, NOTIFIED)
    why = f"`headway status partition peer-{name}` shows what is left" if waiting is None else plain(waiting.message)
    fail(Exit.WAITED, f"peering {name} is still being deleted: {why}")


async def _stop_waiting(client: Client, id: ResourceId) -> None:
    """Remove the finalizer that waits until the other side is notified."""
    while True:
        left = await client.get(PEERING, id)
        if left is None or STREAM_KEY not in left.finalizers:
            return
        left.finalizers -= {STREAM_KEY}
        try:
            await client.write(left)
        except (Conflict, NotFound):
            # The engine writes it as well, for example its conditions.
            continue


def _certificates(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"--authority {path} cannot be read: {error}") from error


def _exports(given: Sequence[str], registry: Registry) -> list[Export]:
    return [_export(each, registry) for each in given]


def _export(given: str, registry: Registry) -> Export:
    name, colon, rest = given.partition(":")
    found: Any = find_type(name, registry)
    units: dict[str, str] = {}
    for part in rest.split(",") if colon else ():
        unit, equals, value = part.partition("=")
        if not equals or not value or unit not in _UNITS or unit in units:
            raise Usage(f"--export {given!r}: {part!r} is not partition=NAME or namespace=NAME: {_FORM}")
        units[unit] = value
    return export(found, **units)


def _cells(peering: Resource[Peering]) -> list[str]:
    data = peering.data
    role = {Role.ACCEPTS: "accepts", Role.DIALS: "dials"}.get(data.role, "")
    exports = ", ".join(_exported(each) for each in data.exports)
    return [
        plain(each) for each in (peering.name, role, state_of(peering).value, data.peer_name, exports, _why(peering))
    ]


def _exported(each: Export) -> str:
    name, tenancy = type_name(each.type).kind, each.tenancy
    units = [] if tenancy is None else [(unit, getattr(tenancy, unit)) for unit in _UNITS]
    named = ",".join(f"{unit}={value}" for unit, value in units if value not in ("", "*"))
    return f"{name}:{named}" if named else name


def _why(peering: Resource[Peering]) -> str:
    """Return the messages of the conditions that are false."""
    statuses = [peering.status[key] for key in sorted(peering.status)]
    return "; ".join(
        each.message for status in statuses for each in status.conditions if each.state is ConditionState.FALSE
    )

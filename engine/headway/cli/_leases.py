"""The command `headway leases`: which process holds which lease, and for how long."""

from __future__ import annotations

from typing import Any

import click

from headway.base import plain
from headway.cli._connection import Connection, connected
from headway.cli._output import Details, details_option, json_text, table
from headway.client import LeaseInfo
from headway.resource import readable_time

_HEADS = ("LEASE", "HOLDER", "SINCE", "RENEWED", "ENDS", "TTL", "TERM")


@click.command("leases")
@click.argument("prefix", required=False, default="")
@details_option
@connected
async def leases(connection: Connection, prefix: str, output: Details) -> None:
    """Show which process holds which lease: since when, its last renewal, and when it ends without another one.

    PREFIX selects the leases whose names begin with it, such as staff/ for the leases of an app. A controller's lease
    has its name, such as staff/teams. The lease of a shard also has its number, as in staff/teams#3. SINCE is in UTC.
    """
    held = await connection.client.leases.list(prefix)
    if output == "json":
        click.echo(json_text([_as_object(each) for each in held], indent=2))
    elif held:
        click.echo(table(_HEADS, [[plain(cell) for cell in _row(each)] for each in held]))
    else:
        click.echo(
            f"no lease is held whose name begins with {plain(repr(prefix))}" if prefix else "no lease is held", err=True
        )


def _row(lease: LeaseInfo) -> list[str]:
    since = "" if lease.acquired_at is None else readable_time(lease.acquired_at)
    renewed = f"{max(lease.ttl - lease.expires_in, 0):.0f} s ago"
    return [
        lease.name,
        lease.holder,
        since,
        renewed,
        f"in {lease.expires_in:.0f} s",
        f"{lease.ttl:g} s",
        str(lease.term),
    ]


def _as_object(lease: LeaseInfo) -> dict[str, Any]:
    since = None if lease.acquired_at is None else lease.acquired_at.isoformat()
    return lease._asdict() | {"acquired_at": since}

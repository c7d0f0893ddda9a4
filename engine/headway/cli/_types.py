"""`headway types`."""

from __future__ import annotations

import click

from headway.cli._connection import Connection, connected
from headway.cli._text import table


@click.command()
@connected
async def types(connection: Connection) -> None:
    """Show the types of the server."""
    rows = [
        (str(type.name), type.scope.name.lower(), type.type_url.rpartition("/")[2])
        for type in sorted(connection.registry, key=lambda each: each.name)
    ]
    click.echo(table(("TYPE", "SCOPE", "PAYLOAD"), rows))

"""The command `headway delete`."""

from __future__ import annotations

import click

from headway.cli._connection import Connection, connected
from headway.cli._options import one_of_a_name
from headway.cli._type_names import find_id, find_type


@click.command()
@one_of_a_name
@click.option("--if-exists", is_flag=True, help="Succeed if the resource does not exist.")
@connected
async def delete(connection: Connection, type: str, name: str, partition: str, namespace: str, if_exists: bool) -> None:
    """Delete one resource.

    Only its current incarnation is deleted. A later resource with the same name is left alone.
    """
    found = find_type(type, connection.registry)
    id = find_id(type, name, partition, namespace, connection.registry)
    client = connection.client
    if if_exists:
        resource = await client.get(found, id)
        if resource is None:
            click.echo(f"{id} not found")
            return
    else:
        resource = await client.read(found, id)
    left = await client.delete(resource.id)
    if left is None:
        click.echo(f"{resource.id} deleted")
    else:
        held = ", ".join(sorted(left.finalizers))
        click.echo(f"{resource.id} marked for deletion; it is held by {held}")

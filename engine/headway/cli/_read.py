"""The commands `headway get` and `headway list`."""

from __future__ import annotations

import click

from headway.cli._connection import Connection, connected
from headway.cli._options import all_of_a_type, one_of_a_name
from headway.cli._output import Output, output_option, show
from headway.cli._type_names import check_units, find_id, find_type


@click.command()
@one_of_a_name
@output_option()
@connected
async def get(connection: Connection, type: str, name: str, partition: str, namespace: str, output: Output) -> None:
    """Show one resource."""
    found = find_type(type, connection.registry)
    id = find_id(type, name, partition, namespace, connection.registry)
    resource = await connection.client.read(found, id)
    show(found, [resource], output, single=True)


@click.command("list")
@all_of_a_type
@output_option()
@connected
async def list_(connection: Connection, type: str, partition: str, namespace: str, prefix: str, output: Output) -> None:
    """Show all resources of a type."""
    found = find_type(type, connection.registry)
    check_units(found, partition, namespace)
    resources = await connection.client.list(found, partition=partition, namespace=namespace, name_prefix=prefix)
    show(found, resources, output)

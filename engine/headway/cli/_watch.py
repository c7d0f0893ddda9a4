"""The command `headway watch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from headway.cli._connection import Connection, connected
from headway.cli._options import all_of_a_type
from headway.cli._output import Output, as_object, conditions, output_option, place
from headway.cli._text import json_text, plain
from headway.cli._type_names import check_units, find_type
from headway.client import Deleted, Upserted
from headway.resource import Resource


@click.command()
@all_of_a_type
@output_option()
@connected
async def watch(connection: Connection, type: str, partition: str, namespace: str, prefix: str, output: Output) -> None:
    """Show all resources of a type, and then every change, until interrupted.

    In JSON each change is one line. In YAML each change is a document, with a comment that names the event.
    """
    found = find_type(type, connection.registry)
    check_units(found, partition, namespace)
    say = _SAY[output]
    happened = "found"
    opened = connection.client.watch(found, partition=partition, namespace=namespace, name_prefix=prefix)
    async with opened as events:
        async for event in events:
            if isinstance(event, Upserted):
                click.echo(say(happened, event.resource))
            elif isinstance(event, Deleted):
                click.echo(say("deleted", event.resource))
            else:
                happened = "stored"


def _line(happened: str, resource: Resource[Any]) -> str:
    # Fixed columns that fit most names, since the widths of later lines are unknown.
    where, said = "/".join(map(plain, place(resource))), plain(conditions(resource))
    return f"{happened:8} {where:32} {resource.version:>8}  {said}".rstrip()


def _json(happened: str, resource: Resource[Any]) -> str:
    return json_text({"event": happened, "resource": as_object(resource)})


def _yaml(happened: str, resource: Resource[Any]) -> str:
    from headway import manifest

    return f"--- # {happened}\n{manifest.dump(resource)}".rstrip("\n")


_SAY: dict[Output, Callable[[str, Resource[Any]], str]] = {"table": _line, "json": _json, "yaml": _yaml}

"""The command `headway types`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from headway.cli._connection import Connection, connected
from headway.cli._options import complete_type
from headway.cli._output import Output, output_option, show_object
from headway.cli._text import table
from headway.cli._type_names import find_type
from headway.resource import ResourceType, describe, types_pb

_WORDS = {types_pb.Shape.OPTIONAL: "optional {}", types_pb.Shape.REPEATED: "list of {}"}


@click.command()
@click.argument("type", required=False, shell_complete=complete_type)
@output_option("json and yaml have the server's description of the types.")
@connected
async def types(connection: Connection, type: str | None, output: Output) -> None:
    """Show the types of the server, or the fields of one.

    The fields of a TYPE are the fields that its manifests can have under data.
    """
    if type is None:
        shown = sorted(connection.registry, key=lambda each: each.name)
    else:
        shown = [find_type(type, connection.registry)]
    if output != "table":
        show_object(describe(shown).to_dict(), output)
    elif type is None:
        click.echo(table(("TYPE", "SCOPE", "PAYLOAD"), map(_row, shown)))
    else:
        click.echo(_fields(shown))


def _row(type: ResourceType[Any]) -> Sequence[str]:
    return str(type.name), type.scope.name.lower(), type.type_url.rpartition("/")[2]


def _fields(types: Sequence[ResourceType[Any]]) -> str:
    description = describe(types)
    rows: list[Sequence[str]] = []
    for message in description.messages:
        rows += [(_last(message.full_name), field.name, field_words(field, description)) for field in message.fields]
    return table(("MESSAGE", "FIELD", "KIND"), rows)


def field_words(field: types_pb.Field, description: types_pb.ListResponse) -> str:
    """Describe the type of a field: ``list of Member``."""
    kind = field.kind
    if kind == "message":
        kind = _last(description.messages[field.held].full_name)
    elif kind == "wrapper":
        kind = next(each.kind for each in description.messages[field.held].fields if each.name == "value")
    elif kind == "enum":
        kind = " | ".join(_members(description.enums[field.held]))
    if field.shape is types_pb.Shape.MAP:
        return f"map of {field.key_kind} to {kind}"
    if field.oneof:
        return f"{kind}, or another of {field.oneof}"
    return _WORDS.get(field.shape, "{}").format(kind)


def _members(enum: types_pb.Enum) -> Iterator[str]:
    return (value.name for value in enum.values)


def _last(full_name: str) -> str:
    return full_name.rpartition(".")[2]

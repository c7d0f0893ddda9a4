"""The command `headway schema`, which shows and compares the schemas of a store, a server and a program."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import click

from headway.cli._app_at import apps_at
from headway.cli._connection import Target, open_connection
from headway.cli._exits import Exit, Usage
from headway.cli._running import run
from headway.cli._store import must_be_there, named_store
from headway.cli._text import json_text, plain, table
from headway.cli._types import field_words
from headway.engine import combine_apps, differences
from headway.errors import DeclarationError, SchemaProblem
from headway.resource import Key, ResourceType, Scope, describe, is_builtin, resource_key, type_name, types_pb
from headway.storage import ListsResources, Within, file_lists, plan_schemas, read_schemas

Output = Literal["text", "json"]
_PAGE = 500

_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json has all details.",
)
_store = click.option("--store", metavar="URL", help="The store to read, instead of the server.")


@click.group()
def schema() -> None:
    """Show the fields of types, and check whether a program would misread stored resources.

    A store remembers every field that its programs have had. With --store, the store is read, even while a server has
    it open. Otherwise the server is asked.
    """


@schema.command()
@click.option("--app", metavar="APP", help="The program (module:attribute) to show, instead of the server.")
@_store
@_output
def show(app: str | None, store: str | None, output: Output) -> None:
    """Show the fields of all types, with their numbers."""
    if app is not None and store is not None:
        raise Usage("--app and --store exclude each other: give one of them")
    if app is not None:
        _show({str(type.name): describe([type]) for type in _types_of(app)}, output)
    else:
        run(partial(_show_found, click.get_current_context().find_root().obj, store, output))


async def _show_found(target: Target, store: str | None, output: Output) -> None:
    if store is None:
        async with open_connection(target) as connection:
            found = connection.description
        _show({str(type_name(each.type)): _of(found, each) for each in found.types}, output)
        return
    async with _opened(store) as lists:
        records = await read_schemas(lists)
    _show({name: record.schema for name, record in sorted(records.items()) if record.schema is not None}, output)


def _of(found: types_pb.ListResponse, type: types_pb.ResourceType) -> types_pb.ListResponse:
    return types_pb.ListResponse(types=[type], messages=found.messages, enums=found.enums)


def _show(schemas: Mapping[str, types_pb.ListResponse], output: Output) -> None:
    if output == "json":
        click.echo(json_text({name: _object(each) for name, each in schemas.items()}, indent=2))
    elif schemas:
        rows = [row for name, each in schemas.items() for row in _rows(name, each)]
        click.echo(table(("TYPE", "SCOPE", "MESSAGE", "NUMBER", "FIELD", "KIND", "BEFORE"), rows))
    else:
        click.echo("no schemas are recorded", err=True)


def _rows(name: str, schema: types_pb.ListResponse) -> Iterator[Sequence[str]]:
    scope = Scope(int(schema.types[0].scope)).name.lower()
    for message in _messages(schema):
        reserved = {each.number: each.name for each in message.reserved}
        for field in message.fields:
            kind = "removed" if reserved.pop(field.number, None) else field_words(field, schema)
            before = ", ".join(field.former_names)
            last = message.full_name.rpartition(".")[2]
            yield name, scope, last, str(field.number), field.name, kind, before
        for number, former in reserved.items():
            yield name, scope, message.full_name.rpartition(".")[2], str(number), former, "removed", ""


def _messages(schema: types_pb.ListResponse) -> Iterator[types_pb.Message]:
    """Yield the message of a schema's type, and the messages in it. A server's description also has other types."""
    places = [schema.types[0].message]
    for place in places:
        message = schema.messages[place]
        yield message
        for field in message.fields:
            if field.kind == "message" and field.held not in places:
                places.append(field.held)


def _object(schema: types_pb.ListResponse) -> dict[str, Any]:
    return {
        "scope": Scope(int(schema.types[0].scope)).name.lower(),
        "payload": schema.types[0].payload,
        "messages": [
            {
                "name": message.full_name,
                "fields": [
                    {
                        "number": field.number,
                        "name": field.name,
                        "kind": field_words(field, schema),
                        "before": list(field.former_names),
                    }
                    for field in message.fields
                ],
                "reserved": {str(each.number): each.name for each in message.reserved},
            }
            for message in _messages(schema)
        ],
    }


@schema.command()
@click.argument("app")
@_store
@_output
def diff(app: str, store: str | None, output: Output) -> None:
    """Check whether a store, or the server, would reject APP (module:attribute), and why.

    Exits with 7 if it would. Also lists the types whose record in the store would change, and the stored versions that
    APP does not know. Nothing is changed.
    """
    types = _types_of(app)
    run(partial(_diff, click.get_current_context().find_root().obj, types, store, output))


async def _diff(target: Target, types: Sequence[ResourceType[Any]], store: str | None, output: Output) -> None:
    recorded: list[str] = []
    unknown: list[str] = []
    if store is None:
        async with open_connection(target) as connection:
            problems = differences(connection.description, types)
    else:
        async with _opened(store) as lists:
            problems, changes = await plan_schemas(lists, types)
            unknown = await _unknown(lists, types)
        recorded = sorted(changes)
    if output == "json":
        click.echo(
            json_text({"problems": [*map(_problem, problems)], "recorded": recorded, "unknown": unknown}, indent=2)
        )
    else:
        for each in problems:
            click.echo(plain(str(each)))
        for name in recorded:
            click.echo(plain(f"{name} would be recorded"))
        for name in unknown:
            text = f"{name} is stored, but the program does not know it: its writes of the kind would replace it"
            click.echo(plain(text))
        if not problems and not recorded and not unknown:
            click.echo("no differences")
    if problems:
        sys.exit(Exit.DIFFERENT)


async def _unknown(lists: ListsResources, types: Sequence[ResourceType[Any]]) -> list[str]:
    """Return the names of stored versions of the program's kinds that the program lacks."""
    known = {type.name for type in types}
    kinds = {type.kind for type in types}
    recorded = {
        type_name(record.schema.types[0].type)
        for record in (await read_schemas(lists)).values()
        if record.schema is not None
    }
    found: set[str] = set()
    for kind in {name.unversioned for name in recorded - known} & kinds:
        after: Key | None = None
        while True:
            page, _ = await lists.list(kind, Within(), after=after, limit=_PAGE)
            names = {type_name(each.id.type) for each in page if each.id is not None}
            found |= {str(name) for name in names - known}
            if len(page) < _PAGE:
                break
            after = resource_key(page[-1])
    return sorted(found)


def _problem(problem: SchemaProblem) -> dict[str, Any]:
    return {
        "type": problem.type,
        "field": problem.field,
        "number": problem.number,
        "problem": problem.problem,
        "right": problem.right,
    }


def _types_of(reference: str) -> list[ResourceType[Any]]:
    try:
        registry, _ = combine_apps(apps_at(reference))
    except DeclarationError as error:
        raise Usage(f"{reference}: {error}") from error
    return sorted((type for type in registry if not is_builtin(type)), key=lambda each: each.name)


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[ListsResources]:
    """Open the resources of a store. A file is read in its current state, even if another process has it open."""
    opening = named_store("--store", url)
    await must_be_there("--store", url)
    lists = file_lists(url)
    if lists is not None:
        yield lists
        return
    async with opening as backend:
        yield backend

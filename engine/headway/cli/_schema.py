"""The commands `headway types` and `headway schema`, which show and compare the types of servers and stores."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import IO, Any

import click

from headway.base import plain
from headway.cli._arguments import complete_type
from headway.cli._connection import Connection, connected, open_connection
from headway.cli._exits import Exit, Usage
from headway.cli._named import apps_at, check_store_exists, named_store
from headway.cli._names import find_type
from headway.cli._output import Details, Output, details_option, json_text, output_option, show_object, table
from headway.cli._running import run
from headway.cli._target import Target, current_target
from headway.engine import combine_apps, combine_topics
from headway.errors import DeclarationError
from headway.resource import (
    DescribedTopic,
    Key,
    ResourceType,
    Scope,
    describe,
    is_builtin,
    resource_key,
    type_name,
    types_pb,
)
from headway.storage import ListsResources, Within, file_lists
from headway.versions import differences, plan_schemas, read_schemas

_PAGE = 500
_SHAPES = {types_pb.Shape.OPTIONAL: "optional {}", types_pb.Shape.REPEATED: "list of {}"}

_store = click.option("--store", metavar="URL", help="The store to read, instead of the server.")


@click.command()
@click.argument("type", required=False, shell_complete=complete_type)
@output_option("json and yaml have the server's description of the types.")
@connected
async def types(connection: Connection, type: str | None, output: Output) -> None:
    """Show the types and topics of the server, or the fields of one.

    The fields of a TYPE are the fields that its manifests can have under data. For the name of a topic, they are the
    fields of its events.
    """
    shown, topics = _wanted(connection, type)
    if output != "table":
        show_object(describe(shown, topics).to_dict(), output)
    elif type is None:
        click.echo(table(("TYPE", "SCOPE", "PAYLOAD"), map(_type_row, shown)))
        if topics:
            click.echo("")
            click.echo(table(("TOPIC", "WILDCARD", "PAYLOAD"), map(_topic_row, topics)))
    else:
        click.echo(_fields(describe(shown, topics)))


def _wanted(connection: Connection, name: str | None) -> tuple[Sequence[ResourceType[Any]], Sequence[DescribedTopic]]:
    """Return everything, or the type of this name, or else the topic."""
    if name is None:
        return sorted(connection.registry, key=lambda each: each.name), connection.topics
    topics = [topic for topic in connection.topics if topic.name == name]
    try:
        return [find_type(name, connection.registry)], []
    except Usage:
        if not topics:
            raise
        return [], topics


def _type_row(type: ResourceType[Any]) -> Sequence[str]:
    return str(type.name), type.scope.name.lower(), type.type_url.rpartition("/")[2]


def _topic_row(topic: DescribedTopic) -> Sequence[str]:
    return topic.name, "yes" if topic.wildcard else "no", topic.payload_name


def _fields(description: types_pb.ListResponse) -> str:
    rows: list[Sequence[str]] = []
    for message in description.messages:
        rows += [(_last(message.full_name), field.name, _field_words(field, description)) for field in message.fields]
    return table(("MESSAGE", "FIELD", "KIND"), rows)


def _field_words(field: types_pb.Field, description: types_pb.ListResponse) -> str:
    """Describe the type of a field: ``list of Member``."""
    kind = field.kind
    if kind == "message":
        kind = _last(description.messages[field.held].full_name)
    elif kind == "wrapper":
        kind = next(each.kind for each in description.messages[field.held].fields if each.name == "value")
    elif kind == "enum":
        kind = " | ".join(value.name for value in description.enums[field.held].values)
    if field.shape is types_pb.Shape.MAP:
        return f"map of {field.key_kind} to {kind}"
    if field.oneof:
        return f"{kind}, or another of {field.oneof}"
    return _SHAPES.get(field.shape, "{}").format(kind)


def _last(full_name: str) -> str:
    return full_name.rpartition(".")[2]


@click.group()
def schema() -> None:
    """Show the fields of types, and check whether a program would misread stored resources.

    A store records every field that its programs have declared. With --store, the store is read, even while a server
    has it open. Otherwise the server is asked.
    """


@schema.command()
@click.option("--app", metavar="APP", help="The program (module:attribute) to show, instead of the server.")
@_store
@details_option
def show(app: str | None, store: str | None, output: Details) -> None:
    """Show the fields of all types, with their numbers."""
    if app is not None and store is not None:
        raise Usage("--app and --store exclude each other: give one of them")
    if app is not None:
        _show({str(type.name): describe([type]) for type in _declared(app)[0]}, output)
    else:
        run(partial(_show_found, current_target(), store, output))


async def _show_found(target: Target, store: str | None, output: Details) -> None:
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


def _show(schemas: Mapping[str, types_pb.ListResponse], output: Details) -> None:
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
            kind = "removed" if reserved.pop(field.number, None) else _field_words(field, schema)
            before = ", ".join(field.former_names)
            yield name, scope, _last(message.full_name), str(field.number), field.name, kind, before
        for number, former in reserved.items():
            yield name, scope, _last(message.full_name), str(number), former, "removed", ""


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
                        "kind": _field_words(field, schema),
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
@click.option(
    "--kubernetes",
    type=click.File(),
    metavar="FILE",
    help="The CustomResourceDefinitions of a cluster, from `kubectl get crd -o yaml`; - reads them from stdin.",
)
@click.option("--webhooks-at", metavar="PLACE", help="With --kubernetes, as for `headway kubernetes crd`.")
@details_option
def diff(app: str, store: str | None, kubernetes: IO[str] | None, webhooks_at: str | None, output: Details) -> None:
    """Check whether a store, the server or a cluster would reject APP (module:attribute), and why.

    Exits with 7 if it would. Nothing is changed.

    With --store, APP is a program that opens the store. Also lists the types whose record in the store would change,
    and the stored versions that APP does not know.

    Without --store, APP is a client or a worker of the server, and its topics are compared as well. A server describes
    only the types and topics of its own program, and not what its store holds. So before a deployment, use --store.

    With --kubernetes, says what of a change of its CustomResourceDefinitions the cluster would refuse, or what would
    lose data.
    """
    if kubernetes is None and webhooks_at is not None:
        raise Usage("--webhooks-at requires --kubernetes: it says where API servers find the converters of APP")
    if kubernetes is not None:
        if store is not None:
            raise Usage("--store and --kubernetes exclude each other: give one of them")
        from headway.cli._crd_diff import show_crd_diff

        show_crd_diff(kubernetes, app, webhooks_at, output)
        return
    run(partial(_diff, current_target(), *_declared(app), store, output))


async def _diff(
    target: Target,
    types: Sequence[ResourceType[Any]],
    topics: Sequence[DescribedTopic],
    store: str | None,
    output: Details,
) -> None:
    recorded: list[str] = []
    unknown: list[str] = []
    if store is None:
        async with open_connection(target) as connection:
            problems = differences(connection.description, types, topics)
        note = f"compared as a client of {target.server}; to check whether its store would accept the program as a "
        click.echo(plain(f"{note}server, give --store URL"), err=True)
    else:
        async with _opened(store) as lists:
            problems, changes, _ = await plan_schemas(lists, types)
            unknown = await _unknown(lists, types)
        recorded = sorted(changes)
    if output == "json":
        described = [{name: value for name, value in each._asdict().items() if name != "missing"} for each in problems]
        click.echo(json_text({"problems": described, "recorded": recorded, "unknown": unknown}, indent=2))
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


def _declared(reference: str) -> tuple[list[ResourceType[Any]], list[DescribedTopic]]:
    """Return the types and the topics of a program. Raises Usage."""
    apps = apps_at(reference)
    try:
        registry, _ = combine_apps(apps)
        topics = combine_topics(apps)
    except DeclarationError as error:
        raise Usage(f"{reference}: {error}") from error
    types = sorted((type for type in registry if not is_builtin(type)), key=lambda each: each.name)
    return types, [topic.described() for topic in topics.values()]


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[ListsResources]:
    """Open the resources of a store. A file is read in its current state, even if another process has it open."""
    opening = named_store("--store", url)
    await check_store_exists("--store", url)
    lists = file_lists(url)
    if lists is not None:
        yield lists
        return
    async with opening as backend:
        yield backend

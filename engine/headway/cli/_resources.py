"""The commands that read, follow and delete resources: get, list, watch, wait, status and delete; also of topics."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from headway.base import plain
from headway.cli._arguments import all_of_a_type, one_of_a_name
from headway.cli._awaited import CONDITION_HELP, Awaited, Wanted
from headway.cli._connection import Connection, connected
from headway.cli._exits import Usage
from headway.cli._missing import naming_units, note_missing_unit
from headway.cli._names import find_listed, find_named, find_scope
from headway.cli._output import (
    Output,
    as_object,
    conditions,
    json_text,
    output_option,
    place,
    show,
    show_object,
    table,
    warn_undecodable,
)
from headway.cli._waiting import wait_for
from headway.client import Deleted, SnapshotEnd, Subject, Upserted
from headway.errors import HeadwayError, StoreChanged
from headway.protobuf import redacted
from headway.resource import DescribedTopic, Resource, readable_time, redacted_resource
from headway.subscription import Topic

if TYPE_CHECKING:
    from headway.subscribing import Published

STATUS_HEADS = ("BY", "CONDITION", "STATE", "SEEN", "WRITTEN", "REASON", "MESSAGE")


@click.command()
@one_of_a_name
@output_option(
    "yaml is a manifest; json has all stored fields. Both can be applied, with --show-secrets also if secrets are set."
)
@click.option("--show-secrets", is_flag=True, help="Show the values of secret fields.")
@connected
async def get(
    connection: Connection,
    type: str,
    name: str,
    partition: str,
    namespace: str,
    output: Output,
    show_secrets: bool,
) -> None:
    """Show one resource."""
    found, id = find_named(type, name, partition, namespace, connection.registry)
    async with naming_units(connection.client, id.partition, id.namespace):
        resource = await connection.client.read(found, id)
    show(found, [resource], output, single=True, secrets=show_secrets)


@click.command("list")
@all_of_a_type
@output_option()
@connected
async def list_(
    connection: Connection, type: str, partition: str, namespace: str, prefix: str, metadata: str, output: Output
) -> None:
    """Show all resources of a type."""
    found = find_listed(type, partition, namespace, prefix, connection.registry)
    part = find_scope(found, metadata)
    resources = await connection.client.list(part, partition=partition, namespace=namespace, name_prefix=prefix)
    show(found, resources, output)
    if not resources:
        await note_missing_unit(connection.client, partition, namespace)


@click.command()
@all_of_a_type
@output_option()
@connected
async def watch(
    connection: Connection, type: str, partition: str, namespace: str, prefix: str, metadata: str, output: Output
) -> None:
    """Show all resources of a type, and then every change, until interrupted.

    TYPE may be several types, such as team,account: their changes come in the order of the commits, and the command
    survives a restart of the server. It may also be a topic, or one of its subjects, such as rates/EUR. In JSON each
    change is one line. In YAML each change is a document, with a comment that names the event.

    With --metadata, give one type. A resource that no longer has these entries is shown as deleted.
    """
    say = _SAY[output]
    subjects = [find_subject(each, partition, namespace, prefix, connection) for each in type.split(",")]
    found = subjects[0].source
    if len(subjects) > 1 or isinstance(found, Topic):
        if metadata:
            raise Usage(f"--metadata {metadata} selects resources of one type, not of {type}: give one type")
        await _watch_several(connection, subjects, output)
        return
    happened, empty = "found", True
    part = find_scope(found, metadata)
    opened = connection.client.watch(part, partition=partition, namespace=namespace, name_prefix=prefix)
    async with opened as events:
        async for event in events:
            if isinstance(event, Upserted):
                empty = False
                click.echo(say(happened, event.resource))
            elif isinstance(event, Deleted):
                click.echo(say("deleted", event.resource))
            elif isinstance(event, SnapshotEnd):
                happened = "stored"
                if empty:
                    await note_missing_unit(connection.client, partition, namespace)


async def _watch_several(connection: Connection, subjects: list[Subject], output: Output) -> None:
    say = _line_of_a_type if output == "table" else _SAY[output]
    try:
        async with connection.client.subscribe(subjects) as batches:
            async for batch in batches:
                for event in batch.events:
                    if isinstance(event, Upserted):
                        click.echo(say("found" if batch.snapshot else "stored", event.resource))
                    elif isinstance(event, Deleted):
                        click.echo(say("deleted", event.resource))
                    else:
                        click.echo(event_text("found" if batch.snapshot else "sent", event, output))
    except StoreChanged as error:
        from headway.subscribing import BEGIN_ANEW

        # The text is for programs.
        raise StoreChanged(str(error).replace(BEGIN_ANEW, "run the command again")) from error


def _line_of_a_type(happened: str, resource: Resource[Any]) -> str:
    return f"{resource.type.name.kind:16} {_line(happened, resource)}"


def _line(happened: str, resource: Resource[Any]) -> str:
    # Fixed columns that fit most names, since the widths of later lines are unknown.
    where, states = "/".join(map(plain, place(resource))), plain(conditions(resource))
    return f"{happened:8} {where:32} {resource.version:>8}  {states}".rstrip()


def _json(happened: str, resource: Resource[Any]) -> str:
    warn_undecodable(resource)
    return json_text({"event": happened, "resource": as_object(redacted_resource(resource))})


def _yaml(happened: str, resource: Resource[Any]) -> str:
    from headway import manifest

    warn_undecodable(resource)
    return f"--- # {happened}\n{manifest.dump(redacted_resource(resource))}".rstrip("\n")


_SAY: dict[Output, Callable[[str, Resource[Any]], str]] = {"table": _line, "json": _json, "yaml": _yaml}


@click.command()
@one_of_a_name
@click.option("--for", "wanted", required=True, metavar="CONDITION", help=f"{CONDITION_HELP} Or 'deleted'.")
@click.option("--within", type=click.FloatRange(min=0), help="Timeout in seconds. By default it waits forever.")
@connected
async def wait(
    connection: Connection,
    type: str,
    name: str,
    partition: str,
    namespace: str,
    wanted: str,
    within: float | None,
) -> None:
    """Wait until a condition of a resource holds; the resource needn't exist yet.

    On a terminal, a line shows its present state.
    """
    found, id = find_named(type, name, partition, namespace, connection.registry)
    with suppress(HeadwayError):
        # It may wait forever, so this cannot be said at the end.
        if await connection.client.get(found, id) is None:
            await note_missing_unit(connection.client, id.partition, id.namespace)
    await wait_for(connection.client, [Awaited(found, id, Wanted.parse(wanted, "--for", or_deleted=True))], within)


@click.command()
@one_of_a_name
@output_option("json and yaml have one object per condition.")
@connected
async def status(connection: Connection, type: str, name: str, partition: str, namespace: str, output: Output) -> None:
    """Show the conditions of a resource, by writer.

    SEEN is `current` if the writer had observed the current generation of the resource, else `older`. WRITTEN is the
    time of the write, in UTC.
    """
    found, id = find_named(type, name, partition, namespace, connection.registry)
    async with naming_units(connection.client, id.partition, id.namespace):
        resource = await connection.client.read(found, id)
    rows = list(status_rows(resource))
    if output != "table":
        show_object([dict(zip(map(str.lower, STATUS_HEADS), row, strict=True)) for row in rows], output)
    elif rows:
        click.echo(table(STATUS_HEADS, rows))
    else:
        click.echo(f"{resource.id} has no conditions", err=True)


def status_rows(resource: Resource[Any]) -> Iterator[tuple[str, ...]]:
    """Yield the conditions of a resource, each as the cells under `STATUS_HEADS`."""
    for key, status in sorted(resource.status.items()):
        seen = "current" if status.observed_generation == resource.generation else "older"
        written = "" if status.updated_at is None else readable_time(status.updated_at)
        for each in status.conditions:
            yield key, each.type, each.state.name or str(int(each.state)), seen, written, each.reason, each.message


@click.command()
@one_of_a_name
@click.option("--if-exists", is_flag=True, help="Succeed if the resource does not exist.")
@connected
async def delete(connection: Connection, type: str, name: str, partition: str, namespace: str, if_exists: bool) -> None:
    """Delete one resource.

    Only its current incarnation is deleted. A later resource with the same name is left alone.
    """
    found, id = find_named(type, name, partition, namespace, connection.registry)
    client = connection.client
    if if_exists:
        resource = await client.get(found, id)
        if resource is None:
            click.echo(f"{id} not found")
            return
    else:
        async with naming_units(client, id.partition, id.namespace):
            resource = await client.read(found, id)
    left = await client.delete(resource.id)
    if left is None:
        click.echo(f"{resource.id} deleted")
    else:
        held = ", ".join(sorted(left.finalizers))
        click.echo(f"{resource.id} marked for deletion; it is held by {held}")


def find_subject(written: str, partition: str, namespace: str, prefix: str, connection: Connection) -> Subject:
    """Return a type in a tenancy, a topic such as ``rates``, or one of its subjects, such as ``rates/EUR``.

    A type comes before a topic of the same name. Raises Usage.
    """
    name, slash, subject = written.partition("/")
    topics = [topic for topic in connection.topics if topic.name == name]
    try:
        type = find_listed(written, partition, namespace, prefix, connection.registry)
    except Usage:
        if not topics:
            raise
    else:
        return Subject(type, partition=partition, namespace=namespace, name_prefix=prefix)
    if (partition, namespace, prefix) != ("*", "*", ""):
        raise Usage(f"{written} is a topic, which has no --partition, --namespace or --prefix: leave them out")
    if slash and not subject:
        raise Usage(f"{written} has no subject: give one, such as {name}/EUR, or leave out the slash")
    if not subject and not topics[0].wildcard:
        raise Usage(f"topic {name} has no wildcard: name one of its subjects, such as {name}/EUR")
    return Subject(_declared(topics[0]), subject)


def _declared(topic: DescribedTopic) -> Topic[Any]:
    # The snapshot is the server's.
    return Topic(topic.name, topic.payload, lambda _: {}, wildcard=topic.wildcard)


def event_text(happened: str, event: Published, output: Output) -> str:
    """Return an event of a topic as the output of `headway watch`."""
    # Imported here, because it is slow to import.
    from headway.manifest import as_object, as_yaml

    data = event.data
    value = base64.b64encode(data).decode() if isinstance(data, bytes) else as_object(redacted(data))
    shown = {"event": happened, "topic": event.topic.name, "subject": event.subject, "data": value}
    if output == "json":
        return json_text(shown)
    if output == "yaml":
        del shown["event"]
        return f"--- # {happened}\n{as_yaml(shown)}".rstrip("\n")
    return f"{event.topic.name:16} {happened:8} {plain(event.subject):32} {json_text(value)}"

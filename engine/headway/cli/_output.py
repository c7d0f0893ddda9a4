"""Print resources as a table, as manifests, or as JSON; and make any text safe for a terminal.

A server's text must not move the cursor or change colors.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import click

from headway.base import plain, wall_time
from headway.errors import PayloadError
from headway.resource import (
    Position,
    Resource,
    ResourceId,
    ResourceType,
    Scope,
    column_texts,
    created_at,
    redacted_resource,
)

Output = Literal["table", "yaml", "json"]
Details = Literal["text", "json"]

_RESOURCES = (
    "yaml is a manifest; json has all stored fields. Both can be applied if the type has no secret fields: their "
    "values are shown as (redacted), and only `get --show-secrets` shows them."
)


def utf8_for_programs(_: click.Context, __: click.Parameter, output: str) -> str:
    """Let standard output be UTF-8 if a program will read it, whatever the terminal has. A callback of options."""
    if output in ("json", "yaml", "svg", "mermaid") and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return output


def output_option(help: str = _RESOURCES) -> Callable[[Any], Any]:
    """Return the option -o of the commands that print resources or types."""
    choice = click.Choice(["table", "yaml", "json"])
    return click.option(
        "-o", "--output", type=choice, default="table", show_default=True, help=help, callback=utf8_for_programs
    )


details_option: Callable[[Any], Any] = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json has all details.",
    callback=utf8_for_programs,
)
"""The option -o of the commands that report on a store."""


def show(
    type: ResourceType[Any],
    resources: Sequence[Resource[Any]],
    output: Output,
    *,
    single: bool = False,
    secrets: bool = False,
) -> None:
    """Print resources. In JSON they are a list, but a ``single`` one is an object. Secrets are redacted by default."""
    if not secrets:
        resources = [redacted_resource(each) for each in resources]
    if output != "table":
        for each in resources:
            warn_undecodable(each)
    if output == "yaml":
        # Imported here, because YAML is slow to import and tables don't need it.
        from headway import manifest

        click.echo(manifest.dump_all(resources), nl=False)
    elif output == "json":
        objects = [as_object(each) for each in resources]
        show_object(objects[0] if single else objects, output)
    elif resources:
        click.echo(table(_heads(type), [_cells(each) for each in resources]))
    else:
        click.echo(f"no {type.name} found", err=True)


def show_all(resources: Sequence[Resource[Any]], output: Output) -> None:
    """Print resources of any types in YAML or JSON. For a table, they have been printed one by one before."""
    if resources and output != "table":
        show(resources[0].type, resources, output)


def warn_undecodable(resource: Resource[Any]) -> None:
    """Print a warning to stderr if the payload of a resource, which is shown without it, cannot be read."""
    try:
        resource.data  # noqa: B018  # reading it decodes it
    except PayloadError as error:
        click.echo(plain(f"Warning: {error}"), err=True)


def show_object(shown: Any, output: Output) -> None:
    """Print an object that is not a resource, in JSON or YAML."""
    if output == "json":
        click.echo(json_text(shown, indent=2))
        return
    # Imported here, because YAML is slow to import.
    from headway.manifest import as_yaml

    click.echo(as_yaml(shown), nl=False)


def _heads(type: ResourceType[Any]) -> list[str]:
    """Return the column titles for a type: the tenancy units of its scope, and the columns that it declares."""
    units = {Scope.CLUSTER: [], Scope.PARTITION: ["PARTITION"], Scope.NAMESPACE: ["PARTITION", "NAMESPACE"]}
    return [*units[type.scope], "NAME", *type.columns, "VERSION", "AGE", "CONDITIONS"]


def _cells(resource: Resource[Any]) -> list[str]:
    """Return the row of a resource."""
    return [*place(resource), *column_texts(resource), resource.version, age(resource), conditions(resource)]


def age(resource: Resource[Any]) -> str:
    """Return the time since the resource was created, such as ``45s``, ``12m``, ``30h`` or ``3d``; ``?`` if unknown."""
    created = created_at(resource.uid)
    if not created:
        return "?"
    seconds = max(wall_time() - created, 0.0)
    for limit, unit, length in ((120, "s", 1), (7200, "m", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds // length:.0f}{unit}"
    return f"{seconds // 86_400:.0f}d"


def place(resource: Resource[Any]) -> list[str]:
    """Return the tenancy units of a resource, as far as its scope has them, and its name."""
    id = resource.id
    units = {Scope.CLUSTER: [], Scope.PARTITION: [id.partition], Scope.NAMESPACE: [id.partition, id.namespace]}
    return [*units[resource.type.scope], id.name]


def conditions(resource: Resource[Any]) -> str:
    """Return the conditions of a resource in one line. One of an older generation has a question mark."""
    states = ["Deleting"] if resource.is_deleting else []
    for _, status in sorted(resource.status.items()):
        stale = "?" if status.observed_generation != resource.generation else ""
        states += [f"{each.type}={each.state.name or int(each.state)}{stale}" for each in status.conditions]
    return " ".join(states)


def as_object(resource: Resource[Any]) -> dict[str, Any]:
    """Return all fields of a resource as a JSON object. Messages have protobuf's JSON form.

    Instead of a payload that cannot be read, ``undecodable`` has the reason, as in the answers over HTTP.
    """
    # Imported here, because it is slow to import.
    from headway import manifest

    made = _id(resource.id) | {"version": resource.version, "generation": resource.generation}
    if resource.owner is not None:
        made["owner"] = _id(resource.owner)
    if resource.metadata:
        made["metadata"] = dict(sorted(resource.metadata.items()))
    if resource.status:
        made["status"] = {key: status.to_dict() for key, status in sorted(resource.status.items())}
    try:
        return made | {"data": manifest.as_object(resource.data)}
    except PayloadError as error:
        return made | {"undecodable": str(error)}


def _id(id: ResourceId) -> dict[str, Any]:
    made = {"type": str(id.type), "name": id.name}
    units = {"partition": id.partition, "namespace": id.namespace, "uid": id.uid}
    return made | {unit: value for unit, value in units.items() if value}


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return JSON in which only unprintable characters are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # `json.dumps` escapes the control characters of ASCII, except DEL, but not those outside ASCII.
    return _BEYOND.sub(lambda found: _escaped(found.group()), text)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


# The negation compiles a hundred times as fast as the range of what is wanted.
_BEYOND = re.compile("[^\0-~]")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table with aligned columns, without trailing blanks."""
    lines = [tuple(head), *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def position_object(position: Position) -> dict[str, Any]:
    """Return a position in a store's history as a JSON object."""
    return {"store_id": position.store_id, "incarnation": position.session, "revision": position.revision}


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 resource``, ``2 resources``. ``many`` is for plurals other than with an s."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"

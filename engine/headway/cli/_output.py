"""Print resources as a table, as manifests, or as JSON with all stored fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import click

from headway.cli._text import json_text, table
from headway.errors import PayloadError
from headway.resource import Resource, ResourceId, ResourceType, Scope, column_text

Output = Literal["table", "yaml", "json"]

_RESOURCES = "yaml is a manifest; json has all stored fields. Both can be applied."


def output_option(help: str = _RESOURCES) -> Callable[[Any], Any]:
    """Return the option -o of all commands that print something."""
    choice = click.Choice(["table", "yaml", "json"])
    return click.option("-o", "--output", type=choice, default="table", show_default=True, help=help)


def show(type: ResourceType[Any], resources: Sequence[Resource[Any]], output: Output, *, single: bool = False) -> None:
    """Print resources. In JSON they are a list, but a ``single`` one is an object."""
    if output == "yaml":
        # Imported here, because YAML is slow to import and tables don't need it.
        from headway import manifest

        click.echo(manifest.dump_all(resources), nl=False)
    elif output == "json":
        objects = [as_object(each) for each in resources]
        show_object(objects[0] if single else objects, output)
    elif resources:
        click.echo(table(heads(type), [cells(each) for each in resources]))
    else:
        click.echo(f"no {type.name} found", err=True)


def show_all(resources: Sequence[Resource[Any]], output: Output) -> None:
    """Print resources of any types in YAML or JSON. For a table, they have been printed one by one before."""
    if resources and output != "table":
        show(resources[0].type, resources, output)


def show_object(shown: Any, output: Output) -> None:
    """Print an object that is not a resource, in JSON or YAML."""
    if output == "json":
        click.echo(json_text(shown, indent=2))
        return
    import yaml

    click.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), nl=False)


def heads(type: ResourceType[Any]) -> list[str]:
    """Return the column titles for a type: the tenancy units of its scope, and the columns that it declares."""
    units = {Scope.CLUSTER: [], Scope.PARTITION: ["PARTITION"], Scope.NAMESPACE: ["PARTITION", "NAMESPACE"]}
    return [*units[type.scope], "NAME", *type.columns, "VERSION", "CONDITIONS"]


def cells(resource: Resource[Any]) -> list[str]:
    """Return the row of a resource."""
    return [*place(resource), *_declared(resource), resource.version, conditions(resource)]


def _declared(resource: Resource[Any]) -> list[str]:
    columns = resource.type.columns.values()
    try:
        return [column_text(resource.data, path) for path in columns]
    except PayloadError:
        # One resource with invalid data must not hide the others.
        return ["?"] * len(columns)


def place(resource: Resource[Any]) -> list[str]:
    """Return the tenancy units of a resource, as far as its scope has them, and its name."""
    id = resource.id
    units = {Scope.CLUSTER: [], Scope.PARTITION: [id.partition], Scope.NAMESPACE: [id.partition, id.namespace]}
    return [*units[resource.type.scope], id.name]


def conditions(resource: Resource[Any]) -> str:
    said = ["Deleting"] if resource.is_deleting else []
    for _, status in sorted(resource.status.items()):
        stale = "?" if status.observed_generation != resource.generation else ""
        said += [f"{each.type}={each.state.name or int(each.state)}{stale}" for each in status.conditions]
    return " ".join(said)


def as_object(resource: Resource[Any]) -> dict[str, Any]:
    """Return all fields of a resource as a JSON object. Messages have protobuf's JSON form."""
    # Imported here, because it is slow to import.
    from headway import manifest

    made = _id(resource.id) | {"version": resource.version, "generation": resource.generation}
    if resource.owner is not None:
        made["owner"] = _id(resource.owner)
    if resource.metadata:
        made["metadata"] = dict(sorted(resource.metadata.items()))
    if resource.status:
        made["status"] = {key: status.to_dict() for key, status in sorted(resource.status.items())}
    return made | {"data": manifest.as_object(resource.data)}


def _id(id: ResourceId) -> dict[str, Any]:
    made = {"type": str(id.type), "name": id.name}
    units = {"partition": id.partition, "namespace": id.namespace, "uid": id.uid}
    return made | {unit: value for unit, value in units.items() if value}

"""Show resources: as a table, as manifests, or as JSON with all that is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import click

from headway import manifest
from headway.cli._text import table
from headway.resource import Resource, ResourceId, ResourceType, Scope

Output = Literal["table", "yaml", "json"]

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "yaml", "json"]),
    default="table",
    show_default=True,
    help="yaml is a manifest that can be applied; json is all that is stored.",
)


def show(type: ResourceType[Any], resources: Sequence[Resource[Any]], output: Output, *, single: bool = False) -> None:
    """Print the resources; in JSON a ``single`` one is an object, and several are a list."""
    if output == "yaml":
        click.echo(manifest.dump_all(resources), nl=False)
    elif output == "json":
        objects = [as_object(each) for each in resources]
        click.echo(json.dumps(objects[0] if single else objects, indent=2, ensure_ascii=False))
    elif resources:
        click.echo(table(heads(type), [cells(each) for each in resources]))
    else:
        click.echo(f"no {type.name} found", err=True)


def heads(type: ResourceType[Any]) -> list[str]:
    """The columns of a type's table: units that it doesn't have are left out."""
    units = {Scope.CLUSTER: [], Scope.PARTITION: ["PARTITION"], Scope.NAMESPACE: ["PARTITION", "NAMESPACE"]}
    return [*units[type.scope], "NAME", "VERSION", "CONDITIONS"]


def cells(resource: Resource[Any]) -> list[str]:
    """The row of a resource."""
    id = resource.id
    units = {Scope.CLUSTER: [], Scope.PARTITION: [id.partition], Scope.NAMESPACE: [id.partition, id.namespace]}
    return [*units[resource.type.scope], id.name, resource.version, _conditions(resource)]


def _conditions(resource: Resource[Any]) -> str:
    said = ["Deleting"] if resource.is_deleting else []
    for _, status in sorted(resource.status.items()):
        stale = "?" if status.observed_generation != resource.generation else ""
        said += [f"{each.type}={each.state.name or int(each.state)}{stale}" for each in status.conditions]
    return " ".join(said)


def as_object(resource: Resource[Any]) -> dict[str, Any]:
    """All of a resource in JSON's terms; what is protobuf is in protobuf's own JSON."""
    made = _id(resource.id) | {"version": resource.version, "generation": resource.generation}
    if resource.owner is not None:
        made["owner"] = _id(resource.owner)
    if resource.metadata:
        made["metadata"] = dict(sorted(resource.metadata.items()))
    if resource.status:
        made["status"] = {key: status.to_dict() for key, status in sorted(resource.status.items())}
    return made | {"data": resource.data.to_dict()}


def _id(id: ResourceId) -> dict[str, Any]:
    made = {"type": str(id.type), "name": id.name}
    units = {"partition": id.partition, "namespace": id.namespace, "uid": id.uid}
    return made | {unit: value for unit, value in units.items() if value}

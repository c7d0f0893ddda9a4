"""The contents of a resource as texts by the path of each field, so that two runs can be compared field by field. Pure.

Paths: ``login`` and ``disk.size`` for the payload, ``owner``, ``metadata.NAME``, ``status.KEY`` and
``status.KEY.CONDITION``. If the payload has a field of such a name, the resource's own is in parentheses: ``(owner)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from headway.protobuf import secret_fields
from headway.resource import FINALIZERS, pb, resource_id
from headway.testing.simulation.oracles._oracles import VARIES, Contents, secret_text
from headway.testing.simulation.oracles._shown import shown, with_sorted_maps

OWN_PARTS = ("owner", "metadata", "status")
"""The parts of a resource beside its payload."""
CURRENT, OUTDATED = "of this generation", "of an earlier generation"


def contents(resource: pb.Resource, payload: object) -> Contents:
    """Return the fields of a resource, without what differs from run to run: uids, versions, generations and times."""
    fields = dict(_payload_fields(with_sorted_maps(payload), ""))
    taken = {path.partition(".")[0] for path in fields}
    for path, text in _own_fields(resource):
        part, dot, rest = path.partition(".")
        fields[f"({part}){dot}{rest}" if part in taken else path] = text
    return fields


def _payload_fields(value: object, path: str) -> Iterator[tuple[str, str]]:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        yield path or "data", shown(value)
        return
    secret = secret_fields(type(value))
    for field in dataclasses.fields(value):
        if field.name in secret:
            yield f"{path}.{field.name}" if path else field.name, secret_text(getattr(value, field.name))
        elif not field.name.startswith("_"):
            yield from _payload_fields(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)


def _own_fields(resource: pb.Resource) -> Iterator[tuple[str, str]]:
    if resource.owner is not None:
        yield "owner", str(resource_id(resource.owner).without_uid())
    for name, text in sorted(resource.metadata.items()):
        if name not in VARIES:
            yield f"metadata.{name}", " ".join(sorted(text.split())) if name == FINALIZERS else text
    for key, status in sorted(resource.status.items()):
        current = status.observed_generation == resource.generation
        yield f"status.{key}", CURRENT if current else OUTDATED
        for each in sorted(status.conditions, key=lambda condition: condition.type):
            yield f"status.{key}.{each.type}", f"{each.state.name} {each.reason} {each.message}"

"""Rules for marking a resource for deletion, and for writing to a marked one."""

from __future__ import annotations

import datetime
from typing import Any

from headway.errors import PayloadError
from headway.protobuf import decode, equal
from headway.resource import DELETION_TIMESTAMP, FINALIZERS, ResourceType, finalizers, is_marked, pb, resource_id
from headway.service._refusals import invalid


def check_marks(type: ResourceType[Any], stored: pb.Resource, updated: pb.Resource) -> None:
    """Refuse a forbidden change: a marked resource is frozen, except that its finalizers may be removed."""
    if is_marked(stored.metadata):
        _check_frozen(type, stored, updated)
    elif is_marked(updated.metadata):
        _check_marking(type, stored, updated)


def check_mark(resource: pb.Resource) -> None:
    """Refuse a mark that is not a valid timestamp."""
    mark = resource.metadata[DELETION_TIMESTAMP]
    if not _is_timestamp(mark):
        raise invalid(
            f"{resource_id(resource.id)}: metadata.{DELETION_TIMESTAMP} {mark!r} must be a timestamp such as "
            "'2024-02-02T10:00:00Z'; use Delete"
        )


def _check_frozen(type: ResourceType[Any], stored: pb.Resource, updated: pb.Resource) -> None:
    before, after = finalizers(stored.metadata), finalizers(updated.metadata)
    problems = _changed_parts(type, stored, updated, ignore=FINALIZERS)
    if after - before:
        problems.append(f"adds finalizers {', '.join(sorted(after - before))}")
    elif not problems and not before - after:
        problems.append(f"removes none of its finalizers ({', '.join(sorted(before)) or 'it has none: use Delete'})")
    if problems:
        raise invalid(
            f"{resource_id(stored.id)} is marked for deletion: only finalizers may be removed from it now, "
            f"and this write {' and '.join(problems)}"
        )


def _check_marking(type: ResourceType[Any], stored: pb.Resource, updated: pb.Resource) -> None:
    problems = _changed_parts(type, stored, updated, ignore=DELETION_TIMESTAMP)
    if problems:
        raise invalid(
            f"{resource_id(stored.id)}: metadata.{DELETION_TIMESTAMP} must be set alone, but this write also "
            f"{' and '.join(problems)}; use Delete"
        )
    check_mark(updated)


def _changed_parts(type: ResourceType[Any], stored: pb.Resource, updated: pb.Resource, *, ignore: str) -> list[str]:
    keys = stored.metadata.keys() | updated.metadata.keys()
    parts = [
        f"changes metadata.{key}"
        for key in sorted(keys)
        if key != ignore and stored.metadata.get(key) != updated.metadata.get(key)
    ]
    assert stored.id is not None
    assert updated.id is not None
    if stored.id.type != updated.id.type:
        parts.append("changes the type's version")
    elif not _same_data(type, stored, updated):
        parts.append("changes data")
    return parts


def _same_data(type: ResourceType[Any], stored: pb.Resource, updated: pb.Resource) -> bool:
    if stored.data is None or updated.data is None:
        return stored.data is updated.data
    if stored.data.value == updated.data.value:
        # The payload may have an older type name, which a write replaces.
        return True
    # A message that was read and written back may be encoded differently than by its first writer.
    try:
        return equal(decode(type.payload, stored.data.value), decode(type.payload, updated.data.value))
    except PayloadError:
        return False


def _is_timestamp(text: str) -> bool:
    try:
        return datetime.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False

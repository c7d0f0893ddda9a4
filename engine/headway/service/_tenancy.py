"""Checks that the partition and namespace of a write exist and are not being deleted."""

from __future__ import annotations

from typing import NamedTuple

from headway.resource import DEFAULT_UNIT, NAMESPACE, PARTITION, Key, Kind, is_marked, pb, resource_id
from headway.service._refusals import invalid
from headway.storage import Read, Require


class Units(NamedTuple):
    """The stored tenancy units of a resource.

    Attributes:
        marked: a description of the first unit that is marked for deletion; empty if no unit is.
        required: requirements for the commit of a creation, so that nothing is created in a unit that was marked since.
    """

    marked: str
    required: tuple[Require, ...]


NO_UNITS = Units("", ())
"""The units of a key in the default partition and namespace."""

_ALWAYS = ("", DEFAULT_UNIT)


def needs_units(key: Key) -> bool:
    """Return True if a unit of the key exists only if it is stored; ``default`` always exists."""
    return key[0] not in _ALWAYS or key[1] not in _ALWAYS


async def check_units(read: Read, key: Key) -> Units:
    """Return the stored units of a key. Refuses a key in a unit that does not exist; ``default`` always does."""
    if not needs_units(key):
        return NO_UNITS
    partition, namespace, _ = key
    asked: list[tuple[Kind, Key]] = []
    if partition not in _ALWAYS:
        asked.append((PARTITION.kind, ("", "", partition)))
    if namespace not in _ALWAYS:
        asked.append((NAMESPACE.kind, (partition, "", namespace)))
    marked, required = "", []
    for kind, unit_key in asked:
        stored, _ = await read(kind, unit_key)
        if stored is None or stored.id is None:
            raise invalid(f"tenancy: {_text(kind, unit_key)} not found; create it first")
        if is_marked(stored.metadata) and not marked:
            marked = _text(kind, unit_key)
        required.append(Require(kind, unit_key, stored.id.uid, stored.version))
    return Units(marked, tuple(required))


def check_staying(units: Units, id: pb.Id | None) -> None:
    """Refuse a write to a unit that is being deleted, unless the write is part of the deletion."""
    if units.marked:
        raise invalid(
            f"{resource_id(id)}: {units.marked} is marked for deletion, so nothing in it may be created or changed"
        )


def check_deletable(kind: Kind, name: str) -> None:
    """Refuse to delete the default units, which always exist."""
    if name == DEFAULT_UNIT and kind in (NAMESPACE.kind, PARTITION.kind):
        raise invalid(f"the {kind[1].lower()} {DEFAULT_UNIT!r} always exists and cannot be deleted")


def _text(kind: Kind, key: Key) -> str:
    if kind == PARTITION.kind:
        return f"partition {key[2]!r}"
    return f"namespace {key[2]!r}" + (f" of partition {key[0]!r}" if key[0] != DEFAULT_UNIT else "")

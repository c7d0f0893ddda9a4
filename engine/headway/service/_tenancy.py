"""Whether the partition and namespace that something is written to are there, and to stay."""

from __future__ import annotations

from typing import NamedTuple

from headway.resource import DEFAULT_UNIT, NAMESPACE, PARTITION, Key, Kind, is_marked, pb, resource_id
from headway.service._refusals import invalid
from headway.storage import Read, Require


class Units(NamedTuple):
    """The tenancy units of a resource that are there because they are stored.

    Attributes:
        marked: the first that is being deleted, as a text; empty: none.
        required: what a creation's commit requires, so that nothing comes into a unit that has been marked meanwhile.
    """

    marked: str
    required: tuple[Require, ...]


NO_UNITS = Units("", ())
"""Those of a key that is in no other than the default ones."""

_ALWAYS = ("", DEFAULT_UNIT)


def needs_units(key: Key) -> bool:
    """Return True if a key is in a unit that is there only if it is stored; ``default`` always is."""
    return key[0] not in _ALWAYS or key[1] not in _ALWAYS


async def check_units(read: Read, key: Key) -> Units:
    """The stored units of a key. Refuses a key in a unit that isn't there; ``default`` always is."""
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
            raise invalid(f"tenancy: {_text(kind, unit_key)} is not there; create it first")
        if is_marked(stored.metadata) and not marked:
            marked = _text(kind, unit_key)
        required.append(Require(kind, unit_key, stored.id.uid, stored.version))
    return Units(marked, tuple(required))


def check_staying(units: Units, id: pb.Id | None) -> None:
    """Refuse what is not about deletion in a unit that is being deleted."""
    if units.marked:
        raise invalid(
            f"{resource_id(id)}: {units.marked} is marked for deletion, so nothing in it may be created or changed"
        )


def check_deletable(kind: Kind, name: str) -> None:
    """Refuse to delete the units that are always there."""
    if name == DEFAULT_UNIT and kind in (NAMESPACE.kind, PARTITION.kind):
        raise invalid(f"the {kind[1].lower()} {DEFAULT_UNIT!r} is always there and can't be deleted")


def _text(kind: Kind, key: Key) -> str:
    if kind == PARTITION.kind:
        return f"partition {key[2]!r}"
    return f"namespace {key[2]!r}" + (f" of partition {key[0]!r}" if key[0] != DEFAULT_UNIT else "")

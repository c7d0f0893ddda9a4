"""The parts of a write that all writing verbs need: attempts, tenancy units, generations, and the stored message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import trio
from ulid_transform import ulid_now

from headway.api import NothingWritten
from headway.base import KeyTurns
from headway.errors import FailedPrecondition, InvalidArgument, StoreUnusable, Unavailable, WriteRejected
from headway.resource import DEFAULT_UNIT, NAMESPACE, PARTITION, Key, Kind, is_marked, pb, resource_id
from headway.service._blanket import replace
from headway.service._bounds import check_text
from headway.storage import Backend, Read, Require, VersionConflict, WrongUid


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
            raise InvalidArgument(f"tenancy: {_text(kind, unit_key)} not found; create it first")
        if is_marked(stored.metadata) and not marked:
            marked = _text(kind, unit_key)
        required.append(Require(kind, unit_key, stored.id.uid, stored.version))
    return Units(marked, tuple(required))


def check_staying(units: Units, id: pb.Id | None) -> None:
    """Refuse a write to a unit that is being deleted, unless the write is part of the deletion."""
    if units.marked:
        raise InvalidArgument(
            f"{resource_id(id)}: {units.marked} is marked for deletion, so nothing in it may be created or changed"
        )


def check_deletable(kind: Kind, name: str) -> None:
    """Refuse to delete the default units, which always exist."""
    if name == DEFAULT_UNIT and kind in (NAMESPACE.kind, PARTITION.kind):
        raise InvalidArgument(f"the {kind[1].lower()} {DEFAULT_UNIT!r} always exists and cannot be deleted")


def _text(kind: Kind, key: Key) -> str:
    if kind == PARTITION.kind:
        return f"partition {key[2]!r}"
    return f"namespace {key[2]!r}" + (f" of partition {key[0]!r}" if key[0] != DEFAULT_UNIT else "")


def check_store(backend: Backend, store_id: str) -> None:
    """Refuse a write that is based on another store, such as the one that this store was restored from."""
    if not store_id:
        return
    check_text("store_id", store_id)
    if store_id != (here := backend.position.store_id):
        raise FailedPrecondition(f"store_id: the write is for store {store_id}, but this is {here}; read again")


_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOWEST, _HIGHEST = _DIGITS[0], _DIGITS[-1]


def generation_after(stored: str) -> str:
    """Return a new generation above the stored one, even within its millisecond or after the clock was set back."""
    fresh = ulid_now()
    return fresh if fresh > stored else _next(stored)


def _next(ulid: str) -> str:
    kept = ulid.rstrip(_HIGHEST)
    raised = _DIGITS[_DIGITS.index(kept[-1]) + 1]
    return kept[:-1] + raised + _LOWEST * (len(ulid) - len(kept))


def new_id(id: pb.Id, uid: str) -> pb.Id:
    """Return the id of a resource as it is stored. The request keeps its own, for a second attempt."""
    return pb.Id(uid=uid, name=id.name, type=id.type, tenancy=id.tenancy)


Answer = TypeVar("Answer")


async def attempt(
    once: Callable[[], Awaitable[Answer]], turns: KeyTurns, at: tuple[Kind, Key], *, blanket: bool
) -> Answer:
    """Run ``once``, which commits. If the store is unavailable, the error says that nothing was written.

    A caller that gave no version (``blanket``) replaces any other writer's state, and so `replace` runs ``once`` again
    if it loses a race. A write with a version cannot succeed after it has lost a race: ``once`` runs again only to
    report the stored version.
    """
    try:
        if blanket:
            return await replace(once, turns, at)
        try:
            return await once()
        except (VersionConflict, WrongUid):
            await trio.lowlevel.checkpoint()
            return await once()
    except WriteRejected:
        raise
    except (Unavailable, StoreUnusable) as error:
        raise NothingWritten(str(error)) from error

"""Types, stored resources and stream items for the tests of caches and followers."""

from __future__ import annotations

from typing import Any

import headway
from headway import field
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Position,
    ResourceId,
    ResourceType,
    SnapshotChunk,
    pb,
)


@headway.message(name="tests.Team")
class Team:
    members: list[str] = field(1)


@headway.message(name="tests.Account")
class Account:
    login: str = field(1)


TEAM: ResourceType[Team] = ResourceType("staff", "v1", "Team", Team)
ACCOUNT: ResourceType[Account] = ResourceType("staff", "v1", "Account", Account)

STORE, OTHER_STORE = "store-one", "store-two"
INCARNATION = "opened-first"


def key(name: str) -> Key:
    """Return the key of a name in the default tenancy."""
    return ("default", "default", name)


def stored(
    name: str,
    version: int,
    *,
    uid: str = "",
    type: ResourceType[Any] = TEAM,
    metadata: dict[str, str] | None = None,
    owner: ResourceId | None = None,
    data: Any = None,
    status: dict[str, pb.Status] | None = None,
) -> pb.Resource:
    """Return a resource as a store has it. Its uid is ``name`` followed by 1 unless given."""
    message: pb.Resource = type.new(name, data, metadata=metadata, owner=owner).message()
    assert message.id is not None
    message.id.uid = uid or f"{name}1"
    message.version = str(version)
    message.generation = f"{version:026d}"
    message.status = status or {}
    return message


def with_status(of: pb.Resource, version: int) -> pb.Resource:
    """Return the next state of a resource as a write of its status in the same process makes it."""
    status = {"test": pb.Status(conditions=[pb.Condition(type="Ready")])}
    return pb.Resource(
        id=of.id,
        owner=of.owner,
        version=str(version),
        generation=of.generation,
        metadata=of.metadata,
        status=status,
        data=of.data,
    )


def at(revision: int, store_id: str = STORE, incarnation: str = INCARNATION) -> Position:
    """Return a position in the test's store."""
    return Position(store_id, incarnation, revision)


def chunk(*resources: pb.Resource) -> SnapshotChunk:
    """Return a piece of a snapshot."""
    return SnapshotChunk(list(resources))


def end(revision: int, store_id: str = STORE, incarnation: str = INCARNATION) -> EndOfSnapshot:
    """Return the end of a snapshot."""
    return EndOfSnapshot(at(revision, store_id, incarnation))


def bookmark(revision: int, *, resumed: bool = False, store_id: str = STORE) -> Bookmark:
    """Return a bookmark."""
    return Bookmark(at(revision, store_id), resumed)


def put(resource: pb.Resource, *, more: bool = False) -> Change:
    """Return the change that stores this resource."""
    return Change(int(resource.version), resource, False, more)


def removed(resource: pb.Resource, revision: int, *, more: bool = False) -> Change:
    """Return the change that deletes this resource, at a revision of its own."""
    return Change(revision, resource, True, more)


def changes(*each: Change) -> Changes:
    """Return an item that carries these changes."""
    return Changes(list(each))


def versions(entries: dict[Key, pb.Resource]) -> dict[str, int]:
    """Return the revision of each entry by name."""
    return {each[2]: int(resource.version) for each, resource in entries.items()}

"""Tools of the storage checks: resources to store, and a reader that checks every item of a watch."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Sequence
from typing import NoReturn, TypeVar

import trio

from headway.errors import HeadwayError
from headway.resource import (
    AnyMessage,
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Kind,
    Position,
    SnapshotChunk,
    StreamItem,
    pb,
    resource_key,
)
from headway.storage import Backend, Fence, Put, Remove, Watch, Within

KIND: Kind = ("conformance", "Thing")
OTHER_KIND: Kind = ("conformance", "Other")
EVERYTHING = Within()

MOST_OPERATIONS = 32
"""The largest number of operations in one commit of the checks. Every store takes that many."""

QUIET = 10.0
"""The number of seconds after which a watch that owes an item counts as stuck."""

E = TypeVar("E", bound=BaseException)


def must(condition: object, sentence: str) -> None:
    """Raise AssertionError with a sentence unless the condition holds, even under ``python -O``."""
    if not condition:
        fail(sentence)


def fail(sentence: str) -> NoReturn:
    """Raise AssertionError with a sentence."""
    raise AssertionError(sentence)


async def refused(error: type[E], attempt: Awaitable[object], what: str) -> E:
    """Return the error of this type that an attempt must fail with."""
    try:
        await attempt
    except error as refusal:
        return refusal
    except HeadwayError as other:
        raise AssertionError(f"{what} failed with {type(other).__name__}, expected {error.__name__}") from other
    fail(f"{what} succeeded, expected {error.__name__}")


def thing(
    name: str,
    text: str = "",
    *,
    partition: str = "default",
    namespace: str = "default",
    uid: str | None = None,
    owner_uid: str = "",
    kind: Kind = KIND,
    version: str = "v1",
) -> pb.Resource:
    """Return a new resource to store. Without ``uid`` it gets a unique one."""
    type = pb.Type(group=kind[0], group_version=version, kind=kind[1])
    tenancy = pb.Tenancy(partition=partition, namespace=namespace)
    id = pb.Id(uid=uuid.uuid4().hex if uid is None else uid, name=name, type=type, tenancy=tenancy)
    owner = pb.Id(uid=owner_uid, name="owner", type=type, tenancy=tenancy) if owner_uid else None
    return pb.Resource(
        id=id,
        owner=owner,
        generation=uuid.uuid4().hex,
        metadata={"written-by": "conformance"},
        data=AnyMessage(type_url="headway.dev/conformance.Thing", value=text.encode()),
    )


def uid_of(resource: pb.Resource) -> str:
    """Return the uid of a resource."""
    return resource.id.uid if resource.id is not None else ""


def name_of(resource: pb.Resource) -> str:
    """Return the name of a resource."""
    return resource.id.name if resource.id is not None else ""


def text_of(resource: pb.Resource) -> str:
    """Return the text that a resource was made with."""
    return resource.data.value.decode() if resource.data is not None else ""


def kind_of(resource: pb.Resource) -> Kind:
    """Return the kind of a resource."""
    type = resource.id.type if resource.id is not None else None
    return (type.group, type.kind) if type is not None else ("", "")


def version_of(resource: pb.Resource) -> str:
    """Return the group version of a stored resource."""
    type = resource.id.type if resource.id is not None else None
    return type.group_version if type is not None else ""


def putting(resource: pb.Resource, expected: str = "") -> Put:
    """Return the operation that stores a resource."""
    return Put(kind_of(resource), resource_key(resource), resource, expected)


def removing(resource: pb.Resource, expected: str, *, uid: str | None = None) -> Remove:
    """Return the operation that deletes a resource."""
    return Remove(kind_of(resource), resource_key(resource), uid_of(resource) if uid is None else uid, expected)


async def put(backend: Backend, resource: pb.Resource, expected: str = "", fence: Fence | None = None) -> Position:
    """Store a resource in a commit of its own."""
    return await backend.commit([putting(resource, expected)], fence)


async def fill(backend: Backend, count: int, letter: str = "n") -> None:
    """Store ``count`` resources, from n0000 on, in commits of a size that every store takes."""
    for start in range(0, count, MOST_OPERATIONS):
        names = range(start, min(start + MOST_OPERATIONS, count))
        await backend.commit([putting(thing(f"{letter}{index:04}")) for index in names])


async def remove(
    backend: Backend, resource: pb.Resource, expected: str, *, uid: str | None = None, fence: Fence | None = None
) -> Position:
    """Delete a resource in a commit of its own."""
    return await backend.commit([removing(resource, expected, uid=uid)], fence)


async def stored(backend: Backend, resource: pb.Resource) -> pb.Resource | None:
    """Return what is stored under a resource's kind and key."""
    found, _ = await backend.read(kind_of(resource), resource_key(resource))
    return found


async def names(backend: Backend, within: Within = EVERYTHING, kind: Kind = KIND) -> list[str]:
    """Return the names of the resources in a list."""
    found, _ = await backend.list(kind, within)
    return [name_of(resource) for resource in found]


Held = dict[Key, tuple[str, str]]
"""A state of the store: (uid, version) by key."""


def held(resources: Sequence[pb.Resource]) -> Held:
    """Return the result of a list as a state."""
    return {resource_key(resource): (uid_of(resource), resource.version) for resource in resources}


class Reader:
    """A reader of a watch that checks every item against promise 5 and keeps what it received.

    Attributes:
        frontier: the last revision that the watch has delivered completely; None before the end of the snapshot.
        held: the current resources, as delivered.
        changes: the changes after the snapshot.
        items: the number of items received.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.frontier: int | None = None
        self.snapshot_at: Position | None = None
        self.snapshot: Held = {}
        self.held: Held = {}
        self.changes: list[Change] = []
        self.bookmarks: list[Bookmark] = []
        self.items = 0

    async def next(self) -> StreamItem:
        """Return the next item after checking it."""
        with trio.move_on_after(QUIET):
            return self._hear(await self.watch.next())
        fail(f"a watch has delivered everything up to {self.frontier} and is stuck, although there is more to deliver")

    def _hear(self, item: StreamItem) -> StreamItem:
        match item:
            case SnapshotChunk():
                self._hear_chunk(item)
            case EndOfSnapshot():
                must(self.frontier is None, "the end of a snapshot came after a change")
                self.frontier, self.snapshot_at = item.position.revision, item.position
                self.snapshot = dict(self.held)
            case Changes():
                self._hear_changes(item)
            case Bookmark():
                self._hear_bookmark(item)
        self.items += 1
        return item

    async def until(self, revision: int) -> None:
        """Read until the watch has delivered everything up to a revision."""
        while self.frontier is None or self.frontier < revision:
            await self.next()

    async def until_snapshot(self) -> Position:
        """Read to the end of the snapshot and return its position."""
        while self.snapshot_at is None:
            await self.next()
        return self.snapshot_at

    def _hear_chunk(self, item: SnapshotChunk) -> None:
        must(self.frontier is None, "a chunk of a snapshot came after its end")
        for resource in item.resources:
            key = resource_key(resource)
            must(key not in self.held, f"a snapshot has {key} twice")
            self.held[key] = (uid_of(resource), resource.version)

    def _hear_changes(self, item: Changes) -> None:
        must(self.frontier is not None, "a change came before the end of the snapshot")
        must(item.changes, "an item has no changes")
        must(not item.changes[-1].more, "an item ended within a commit")
        last = self.frontier or 0
        for index, change in enumerate(item.changes):
            if index and item.changes[index - 1].more:
                must(change.revision == last, f"a commit at {last} continued at {change.revision}")
            else:
                must(change.revision > last, f"revision {change.revision} came after everything up to {last}")
            last = change.revision
            self._apply(change)
        self.frontier = last
        self.changes += item.changes

    def _apply(self, change: Change) -> None:
        key = resource_key(change.resource)
        if change.deleted:
            self.held.pop(key, None)
            return
        must(
            change.resource.version == str(change.revision),
            "the version of a change's resource is not its commit's revision",
        )
        self.held[key] = (uid_of(change.resource), change.resource.version)

    def _hear_bookmark(self, item: Bookmark) -> None:
        if item.resumed:
            must(self.items == 0, "a later item than the first says that the watch was resumed")
        else:
            must(self.frontier is not None, "a bookmark came before the end of the snapshot")
        must(item.position.revision >= (self.frontier or 0), "a bookmark is below what was already delivered")
        self.frontier = item.position.revision
        self.bookmarks.append(item)


async def reading(
    backend: Backend, within: Within = EVERYTHING, *, kind: Kind = KIND, after: Position | None = None
) -> Reader:
    """Open a watch and return its reader."""
    return Reader(await backend.watch(kind, within, after))


def told(changes: Sequence[Change]) -> list[tuple[int, str, bool]]:
    """Return changes as (revision, name, deleted), sorted by revision and name."""
    return sorted((change.revision, name_of(change.resource), change.deleted) for change in changes)

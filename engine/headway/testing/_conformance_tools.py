"""What the storage checks are made of: resources to store, and a reader that holds a watch to its promise."""

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
"""Operations that every store takes in one commit; no check makes a larger one."""

QUIET = 10.0
"""Seconds after which a watch that owes something is taken to have lost it."""

E = TypeVar("E", bound=BaseException)


def must(condition: object, sentence: str) -> None:
    """Raise AssertionError with a sentence unless the condition holds (also where ``assert`` is switched off)."""
    if not condition:
        fail(sentence)


def fail(sentence: str) -> NoReturn:
    """Raise AssertionError with a sentence."""
    raise AssertionError(sentence)


async def refused(error: type[E], attempt: Awaitable[object], what: str) -> E:
    """The error that an attempt must be refused with."""
    try:
        await attempt
    except error as refusal:
        return refusal
    except HeadwayError as other:
        raise AssertionError(f"{what} was refused with {type(other).__name__}, not with {error.__name__}") from other
    fail(f"{what} was not refused with {error.__name__}")


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
    """A resource to store, a new object each time, with a uid of its own if none is given."""
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
    """The uid of a resource."""
    return resource.id.uid if resource.id is not None else ""


def name_of(resource: pb.Resource) -> str:
    """The name of a resource."""
    return resource.id.name if resource.id is not None else ""


def text_of(resource: pb.Resource) -> str:
    """The text that a resource was made with."""
    return resource.data.value.decode() if resource.data is not None else ""


def kind_of(resource: pb.Resource) -> Kind:
    """The kind of a resource."""
    type = resource.id.type if resource.id is not None else None
    return (type.group, type.kind) if type is not None else ("", "")


def version_of(resource: pb.Resource) -> str:
    """The version of its kind as which a resource is stored."""
    type = resource.id.type if resource.id is not None else None
    return type.group_version if type is not None else ""


def putting(resource: pb.Resource, expected: str = "") -> Put:
    """The operation that stores a resource."""
    return Put(kind_of(resource), resource_key(resource), resource, expected)


def removing(resource: pb.Resource, expected: str, *, uid: str | None = None) -> Remove:
    """The operation that deletes a resource."""
    return Remove(kind_of(resource), resource_key(resource), uid_of(resource) if uid is None else uid, expected)


async def put(backend: Backend, resource: pb.Resource, expected: str = "", fence: Fence | None = None) -> Position:
    """Store a resource by a commit of its own."""
    return await backend.commit([putting(resource, expected)], fence)


async def fill(backend: Backend, count: int, letter: str = "n") -> None:
    """Store so many things, n0000 and on, in commits of a size that every store takes."""
    for start in range(0, count, MOST_OPERATIONS):
        names = range(start, min(start + MOST_OPERATIONS, count))
        await backend.commit([putting(thing(f"{letter}{index:04}")) for index in names])


async def remove(
    backend: Backend, resource: pb.Resource, expected: str, *, uid: str | None = None, fence: Fence | None = None
) -> Position:
    """Delete a resource by a commit of its own."""
    return await backend.commit([removing(resource, expected, uid=uid)], fence)


async def stored(backend: Backend, resource: pb.Resource) -> pb.Resource | None:
    """What is stored under a resource's kind and key."""
    found, _ = await backend.read(kind_of(resource), resource_key(resource))
    return found


async def names(backend: Backend, within: Within = EVERYTHING, kind: Kind = KIND) -> list[str]:
    """The names that a list finds."""
    found, _ = await backend.list(kind, within)
    return [name_of(resource) for resource in found]


Held = dict[Key, tuple[str, str]]
"""What somebody believes to be stored: (uid, version) by key."""


def held(resources: Sequence[pb.Resource]) -> Held:
    """What a list has found."""
    return {resource_key(resource): (uid_of(resource), resource.version) for resource in resources}


class Reader:
    """Reads a watch, holds every item to promise 5, and keeps what it was told.

    Attributes:
        frontier: the revision up to which the watch has said everything; None before the snapshot's end.
        held: what is there, as told.
        changes: what came after the snapshot.
        items: how many items have come.
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
        """The next item, having looked at it."""
        with trio.move_on_after(QUIET):
            return self._hear(await self.watch.next())
        fail(f"a watch that has said everything up to {self.frontier} says no more, and there is more to say")

    def _hear(self, item: StreamItem) -> StreamItem:
        match item:
            case SnapshotChunk():
                self._hear_chunk(item)
            case EndOfSnapshot():
                must(self.frontier is None, "a watch ended its snapshot after it had begun to say changes")
                self.frontier, self.snapshot_at = item.position.revision, item.position
                self.snapshot = dict(self.held)
            case Changes():
                self._hear_changes(item)
            case Bookmark():
                self._hear_bookmark(item)
        self.items += 1
        return item

    async def until(self, revision: int) -> None:
        """Read until the watch has said everything up to a revision."""
        while self.frontier is None or self.frontier < revision:
            await self.next()

    async def until_snapshot(self) -> Position:
        """Read to the end of the snapshot and return where it stands."""
        while self.snapshot_at is None:
            await self.next()
        return self.snapshot_at

    def _hear_chunk(self, item: SnapshotChunk) -> None:
        must(self.frontier is None, "a chunk of a snapshot came after its end")
        for resource in item.resources:
            key = resource_key(resource)
            must(key not in self.held, f"a snapshot named {key} twice")
            self.held[key] = (uid_of(resource), resource.version)

    def _hear_changes(self, item: Changes) -> None:
        must(self.frontier is not None, "a change came before the end of the snapshot")
        must(item.changes, "a watch handed out no changes at all")
        must(not item.changes[-1].more, "an item ended within a commit")
        last = self.frontier or 0
        for index, change in enumerate(item.changes):
            if index and item.changes[index - 1].more:
                must(change.revision == last, f"a commit at {last} went on at {change.revision}")
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
        must(change.resource.version == str(change.revision), "a change's resource has another version than its commit")
        self.held[key] = (uid_of(change.resource), change.resource.version)

    def _hear_bookmark(self, item: Bookmark) -> None:
        if item.resumed:
            must(self.items == 0, "only a resumed watch's first item says that it was resumed")
        else:
            must(self.frontier is not None, "a bookmark came before the end of the snapshot")
        must(item.position.revision >= (self.frontier or 0), "a bookmark stood below what had been said")
        self.frontier = item.position.revision
        self.bookmarks.append(item)


async def reading(
    backend: Backend, within: Within = EVERYTHING, *, kind: Kind = KIND, after: Position | None = None
) -> Reader:
    """A reader of a new watch."""
    return Reader(await backend.watch(kind, within, after))


def told(changes: Sequence[Change]) -> list[tuple[int, str, bool]]:
    """Changes as (revision, name, whether deleted), those of one commit in order of name."""
    return sorted((change.revision, name_of(change.resource), change.deleted) for change in changes)

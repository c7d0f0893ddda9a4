"""A check that a store is consistent. It compares the answers to all kinds of requests with each other.

It writes nothing. Others may write during the check. Differences that such writes explain are not reported.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import trio

from headway.errors import FailedPrecondition, HistoryCompacted
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Kind,
    Position,
    SnapshotChunk,
    pb,
    resource_key,
)
from headway.storage._backend import Backend, Watch
from headway.storage._open import UNFINISHED, source_of
from headway.storage._operations import Within
from headway.storage.upkeep._progress import OnProgress, Progress

Place = tuple[Kind, Key]

_OFTEN = 100
"""The number of resources between two reports of progress."""

_ATTEMPTS = 5
"""The number of attempts at a watch that falls behind the kept history because others write."""


@dataclass
class Verified:
    """The result of a verification.

    Attributes:
        position: the store's position when the verification began.
        oldest: the lowest revision that a watch can resume after.
        resources: the number of resources by kind.
        problems: one sentence for each problem.
    """

    position: Position
    oldest: int = 0
    resources: dict[Kind, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


async def verify_store(backend: Backend, *, progress: OnProgress | None = None) -> Verified:
    """Compare the reads, lists, owners, watches and history of a store, and find differences.

    Every resource is read by its key, and the resources that it owns are listed. This takes a while for a large store.
    The result includes the problems that the store finds itself (`ChecksItself`).

    Args:
        backend: an open store.
        progress: called at the beginning of each step, and often while it goes on.

    Raises:
        FailedPrecondition: others write so much that history is compacted before it can be checked.
    """
    found = Verified(backend.position, await _oldest_kept(backend))
    progress = progress or (lambda _: None)
    verification = _Verification(backend, found, progress)
    kinds = await backend.kinds()
    if list(kinds) != sorted(set(kinds)):
        found.problems.append(f"the list of kinds is not in order, or repeats a kind: {[*map(named, kinds)]}")
    if await source_of(backend) is not None:
        found.problems.append(UNFINISHED)
    for kind in kinds:
        await verification.check_kind(kind)
    await verification.check_owners()
    own: Callable[[], Awaitable[Sequence[str]]] | None = getattr(backend, "check_itself", None)
    if own is not None:
        progress(Progress("the store's own check"))
        found.problems += await own()
    return found


class _Verification:
    def __init__(self, backend: Backend, found: Verified, progress: OnProgress) -> None:
        self._backend = backend
        self._found = found
        self._progress = progress
        self._places: dict[str, Place] = {}
        # The resources that each owner owns according to the lists, with their versions.
        self._owned: dict[str, dict[Place, str]] = {}

    def _report(self, problem: str) -> None:
        self._found.problems.append(problem)

    async def check_kind(self, kind: Kind) -> None:
        """Compare the list of a kind with its reads, its watch and its history."""
        step = f"checking {named(kind)}"
        self._progress(Progress(step))
        listed, at, there = await self._list_and_watch(kind)
        self._found.resources[kind] = len(listed)
        here = {resource_key(each): each for each in listed}
        if not listed and at == self._found.position:
            self._report(f"{named(kind)} is in the list of kinds but has no resources")
        for earlier, later in pairwise(map(resource_key, listed)):
            if earlier >= later:
                self._report(f"{named(kind, later)} is listed after {named(kind, earlier)}")
        for key in sorted(there.keys() | here.keys()):
            if there.get(key) != here.get(key):
                self._report(
                    f"{named(kind, key)} is {_version(here.get(key))} in a list at revision {at.revision} but "
                    f"{_version(there.get(key))} in a watch"
                )
        for key, problem in await _replay(self._backend, kind, self._found.oldest, at, here):
            self._report(f"{named(kind, key)} {problem}")
        for done, resource in enumerate(listed):
            if done % _OFTEN == 0:
                self._progress(Progress(step, done, len(listed)))
            self._check_resource(kind, resource, at)
            await self._check_read(kind, resource, at)
        self._progress(Progress(step, len(listed), len(listed)))

    async def _list_and_watch(self, kind: Kind) -> tuple[Sequence[pb.Resource], Position, Mapping[Key, pb.Resource]]:
        """Return a list of the kind, its position, and the state there according to a watch opened before."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(HistoryCompacted):
                async with follow(self._backend, kind, self._report) as followed:
                    listed, at = await self._backend.list(kind, Within())
                    return listed, at, await followed.until(at)
        raise FailedPrecondition(
            f"others write so much that a watch of {named(kind)} falls behind before it has delivered its snapshot: "
            "stop them, or keep more history"
        )

    def _check_resource(self, kind: Kind, resource: pb.Resource, at: Position) -> None:
        place = (kind, resource_key(resource))
        id = resource.id
        if id is None or id.type is None or (id.type.group, id.type.kind) != kind:
            self._report(f"{named(*place)} is listed under another kind")
            return
        if not resource.version.isdigit() or not 1 <= int(resource.version) <= at.revision:
            self._report(f"{named(*place)} has version {resource.version!r}; the store is at revision {at.revision}")
        other = self._places.setdefault(id.uid, place)
        if not id.uid:
            self._report(f"{named(*place)} has no uid")
        elif other != place:
            self._report(f"{named(*place)} and {named(*other)} have the same uid {id.uid}")
        if resource.owner is not None and resource.owner.uid:
            self._owned.setdefault(resource.owner.uid, {})[place] = resource.version

    async def _check_read(self, kind: Kind, listed: pb.Resource, at: Position) -> None:
        read, read_at = await self._backend.read(kind, resource_key(listed))
        if read != listed and not _changed_since(at, read, read_at):
            self._report(
                f"{named(kind, resource_key(listed))} is {_version(listed)} in a list but {_version(read)} "
                "when read by its key"
            )

    async def check_owners(self) -> None:
        """Compare the list of each owner with the owners in the lists of the kinds."""
        step = "checking owners"
        uids = [*self._places, *(self._owned.keys() - self._places.keys())]
        for done, uid in enumerate(uids):
            if done % _OFTEN == 0:
                self._progress(Progress(step, done, len(uids), "owners"))
            wanted = self._owned.get(uid, {})
            owned, at = await self._backend.list_by_owner(uid)
            found = {place_of(each): each for each in owned}
            for place in sorted(wanted.keys() ^ found.keys()):
                read, read_at = await self._backend.read(*place)
                if _changed_since(at, read, read_at) or (place in wanted and _version(read) != wanted[place]):
                    continue
                if place in wanted:
                    self._report(f"{named(*place)} is owned by uid {uid} but missing from the list by that owner")
                elif read is None or read.owner is None or read.owner.uid != uid:
                    self._report(f"{named(*place)} is in the list by owner of uid {uid} but not owned by it")
        self._progress(Progress(step, len(uids), len(uids), "owners"))


def _changed_since(at: Position, read: pb.Resource | None, read_at: Position) -> bool:
    """Return True if the resource may have changed between a position and the read."""
    return read_at.revision > at.revision and (read is None or int(read.version) > at.revision)


def place_of(resource: pb.Resource) -> Place:
    """Return the kind and the key of a resource."""
    type = resource.id.type if resource.id is not None else None
    return (type.group, type.kind) if type is not None else ("", ""), resource_key(resource)


def _version(resource: pb.Resource | None) -> str:
    """Return the version of a resource, or "missing"."""
    return "missing" if resource is None else resource.version


def named(kind: Kind, key: Key | None = None) -> str:
    """Return the name of a kind, or of one of its resources, for display."""
    return ".".join(kind) if key is None else f"{'.'.join(kind)} {'/'.join(key)}"


_PATIENCE = 30.0
"""The seconds to wait for an item that a watch should deliver. After that, the item counts as lost."""


class Followed:
    """A watch and the items that it has delivered so far."""

    def __init__(self, watch: Watch, report: Callable[[str], object], name: str) -> None:
        self._watch = watch
        self._report = report
        self._name = name
        self._held: dict[Key, pb.Resource] = {}
        self._frontier = 0
        self.changes: list[Change] = []

    async def begin(self) -> None:
        """Read the snapshot, or the bookmark of a resumed watch."""
        with trio.move_on_after(_PATIENCE):
            while True:
                item = await self._watch.next()
                if isinstance(item, EndOfSnapshot | Bookmark):
                    self._frontier = item.position.revision
                    return
                if isinstance(item, SnapshotChunk):
                    self._held.update((resource_key(each), each) for each in item.resources)
                else:
                    self._report(f"{self._name} delivered changes before the end of its snapshot")
        self._report(f"{self._name} has not ended its snapshot within {_PATIENCE:g} s")

    async def until(self, at: Position) -> Mapping[Key, pb.Resource]:
        """Return the resources at a position. It must not be before the snapshot's position."""
        with trio.move_on_after(_PATIENCE) as patience:
            while self._frontier < at.revision:
                self._receive(await self._watch.next())
        if patience.cancelled_caught:
            self._report(f"{self._name} stays at revision {self._frontier}; the store is at revision {at.revision}")
        for change in self.changes:
            if change.revision > at.revision:
                break
            self._held.pop(resource_key(change.resource), None)
            if not change.deleted:
                self._held[resource_key(change.resource)] = change.resource
        return self._held

    def _receive(self, item: object) -> None:
        if isinstance(item, Bookmark):
            self._frontier = item.position.revision
        elif isinstance(item, Changes):
            for change in item.changes:
                before = self.changes[-1] if self.changes else None
                whole = before is None or not before.more
                if change.revision < self._frontier or (whole and change.revision == self._frontier):
                    self._report(f"{self._name} delivered revision {change.revision} after revision {self._frontier}")
                self.changes.append(change)
                self._frontier = change.revision
        else:
            self._report(f"{self._name} delivered more of its snapshot after its end")


@asynccontextmanager
async def follow(
    backend: Backend, kind: Kind, report: Callable[[str], object], after: Position | None = None
) -> AsyncIterator[Followed]:
    """Follow a watch of a kind for the length of the block. ``report`` is called with each problem of the watch."""
    watch = await backend.watch(kind, Within(), after)
    try:
        followed = Followed(watch, report, f"a watch of {'.'.join(kind)}{'' if after is None else ', resumed,'}")
        await followed.begin()
        yield followed
    finally:
        watch.close()


async def _oldest_kept(backend: Backend) -> int:
    """Return the lowest revision that a watch can resume after. It can also resume after every later one."""
    here = backend.position
    low, high = 0, here.revision
    while low < high:
        middle = (low + high) // 2
        try:
            (await backend.watch(("", ""), Within(), here._replace(revision=middle))).close()
        except HistoryCompacted:
            low = middle + 1
        else:
            high = middle
    return low


async def _replay(
    backend: Backend, kind: Kind, oldest: int, at: Position, here: Mapping[Key, pb.Resource]
) -> Sequence[tuple[Key, str]]:
    """Compare a kind's history since a revision with its resources at a position. Return each problem with its key.

    If others write so much that the history up to that position is compacted, return no problems.
    """
    problems: list[tuple[Key, str]] = []

    def report(problem: str) -> None:
        problems.append((("", "", ""), problem))

    try:
        async with follow(backend, kind, report, at._replace(revision=oldest)) as followed:
            await followed.until(at)
    except HistoryCompacted:
        later = await _oldest_kept(backend)
        return await _replay(backend, kind, later, at, here) if later < at.revision else []
    last = {resource_key(each.resource): each for each in followed.changes if each.revision <= at.revision}
    for key, change in last.items():
        stored = here.get(key)
        if change.deleted and stored is not None:
            problems.append((key, f"is stored, but history has it deleted at revision {change.revision}"))
        elif not change.deleted and stored != change.resource:
            problems.append((key, f"differs from history, which has it written at revision {change.revision}"))
    for key, stored in here.items():
        if key not in last and stored.version.isdigit() and int(stored.version) > oldest:
            problems.append((key, f"has version {stored.version}, but history from {oldest} on has no such commit"))
    return problems

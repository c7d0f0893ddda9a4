"""Whether a store agrees with itself: everything that can be asked of it, held against everything else.

Nothing is written. Others may write meanwhile: what differs because of them is told from what is wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headway.errors import FailedPrecondition, HistoryCompacted
from headway.resource import Key, Kind, Position, pb, resource_key
from headway.storage._backend import Backend, Within
from headway.storage._optional import self_checker
from headway.storage._unfinished import UNFINISHED, is_unfinished
from headway.storage._verify_watches import follow, oldest_kept, replay

Place = tuple[Kind, Key]

_ATTEMPTS = 5
"""At a watch that falls behind what is kept, because others write."""


@dataclass
class Verified:
    """What was looked at, and what is wrong with it.

    Attributes:
        position: where the store stood at first.
        oldest: the lowest revision after which a watch can be resumed.
        resources: how many there are of each kind.
        problems: what is wrong, each in a sentence.
    """

    position: Position
    oldest: int = 0
    resources: dict[Kind, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


async def verify_store(backend: Backend, *, progress: Callable[[str], object] | None = None) -> Verified:
    """Hold the reads, lists, owners, watches and history of a store against each other, and find what doesn't agree.

    Every resource is read by its key and asked for what it owns, so that this takes a while for a large store. What
    the store can tell of itself besides (`ChecksItself`) is among the problems.

    Args:
        backend: an open store.
        progress: is told what is looked at now.

    Raises FailedPrecondition when others write so much that its history is gone before it can be looked at.
    """
    found = Verified(backend.position, await oldest_kept(backend))
    verification = _Verification(backend, found)
    tell = progress or (lambda _: None)
    kinds = await backend.kinds()
    if list(kinds) != sorted(set(kinds)):
        found.problems.append(f"the kinds are not in order, or not each once: {[*map(named, kinds)]}")
    if await is_unfinished(backend):
        found.problems.append(UNFINISHED)
    for kind in kinds:
        tell(f"{named(kind)}: list, reads, watch and history")
        await verification.check_kind(kind)
    tell("what owns what")
    await verification.check_owners()
    own = self_checker(backend)
    if own is not None:
        tell("what the store alone can tell")
        found.problems += await own()
    return found


class _Verification:
    def __init__(self, backend: Backend, found: Verified) -> None:
        self._backend = backend
        self._found = found
        self._places: dict[str, Place] = {}
        # By owner what it owns, with its version, as the lists say it.
        self._owned: dict[str, dict[Place, str]] = {}

    def _say(self, problem: str) -> None:
        self._found.problems.append(problem)

    async def check_kind(self, kind: Kind) -> None:
        """Hold the list of a kind against its reads, its watch and its history."""
        listed, at, there = await self._looked_at(kind)
        self._found.resources[kind] = len(listed)
        here = {resource_key(each): each for each in listed}
        if not listed and at == self._found.position:
            self._say(f"{named(kind)} is among the kinds, and nothing of it is listed")
        for earlier, later in pairwise(map(resource_key, listed)):
            if earlier >= later:
                self._say(f"{named(kind, later)} is listed behind {named(kind, earlier)}")
        for key in sorted(there.keys() | here.keys()):
            if there.get(key) != here.get(key):
                self._say(
                    f"{named(kind, key)} is {version_of(here.get(key))} in a list at revision {at.revision}, and "
                    f"{version_of(there.get(key))} in a watch"
                )
        for key, problem in await replay(self._backend, kind, self._found.oldest, at, here):
            self._say(f"{named(kind, key)} {problem}")
        for resource in listed:
            self._check_resource(kind, resource, at)
            await self._check_read(kind, resource, at)

    async def _looked_at(self, kind: Kind) -> tuple[Sequence[pb.Resource], Position, Mapping[Key, pb.Resource]]:
        """A list of the kind, where it stands, and what a watch that began before it has there."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(HistoryCompacted):
                async with follow(self._backend, kind, self._say) as followed:
                    listed, at = await self._backend.list(kind, Within())
                    return listed, at, await followed.until(at)
        raise FailedPrecondition(
            f"others write so much that a watch of {named(kind)} is behind what is kept before it has said what is "
            "there: stop them, or keep more history"
        )

    def _check_resource(self, kind: Kind, resource: pb.Resource, at: Position) -> None:
        place = (kind, resource_key(resource))
        id = resource.id
        if id is None or id.type is None or (id.type.group, id.type.kind) != kind:
            self._say(f"{named(*place)} is listed under a kind that is not its own")
            return
        if not resource.version.isdigit() or not 1 <= int(resource.version) <= at.revision:
            self._say(f"{named(*place)} is of version {resource.version!r}; the store stands at {at.revision}")
        other = self._places.setdefault(id.uid, place)
        if not id.uid:
            self._say(f"{named(*place)} has no uid")
        elif other != place:
            self._say(f"{named(*place)} has the uid {id.uid}, and {named(*other)} has it too")
        if resource.owner is not None and resource.owner.uid:
            self._owned.setdefault(resource.owner.uid, {})[place] = resource.version

    async def _check_read(self, kind: Kind, listed: pb.Resource, at: Position) -> None:
        read, read_at = await self._backend.read(kind, resource_key(listed))
        if read != listed and not _changed_since(at, read, read_at):
            self._say(
                f"{named(kind, resource_key(listed))} is {version_of(listed)} in a list, and {version_of(read)} "
                "when it is read by its key"
            )

    async def check_owners(self) -> None:
        """Hold what each uid owns against what the lists say that it owns."""
        for uid in [*self._places, *(self._owned.keys() - self._places.keys())]:
            wanted = self._owned.get(uid, {})
            owned, at = await self._backend.list_by_owner(uid)
            found = {place_of(each): each for each in owned}
            for place in sorted(wanted.keys() ^ found.keys()):
                read, read_at = await self._backend.read(*place)
                if _changed_since(at, read, read_at) or (place in wanted and version_of(read) != wanted[place]):
                    continue
                if place in wanted:
                    self._say(f"{named(*place)} is owned by uid {uid}, and missing among what that owns")
                elif read is None or read.owner is None or read.owner.uid != uid:
                    self._say(f"{named(*place)} is among what uid {uid} owns, and not owned by it")


def _changed_since(at: Position, read: pb.Resource | None, read_at: Position) -> bool:
    """Whether what was read may be another than it was at a position, because somebody has written since."""
    return read_at.revision > at.revision and (read is None or int(read.version) > at.revision)


def place_of(resource: pb.Resource) -> Place:
    """The kind and the key of a resource."""
    type = resource.id.type if resource.id is not None else None
    return (type.group, type.kind) if type is not None else ("", ""), resource_key(resource)


def version_of(resource: pb.Resource | None) -> str:
    """The version of what is there."""
    return "missing" if resource is None else resource.version


def named(kind: Kind, key: Key | None = None) -> str:
    """A kind, or one of it, for people."""
    return ".".join(kind) if key is None else f"{'.'.join(kind)} {'/'.join(key)}"

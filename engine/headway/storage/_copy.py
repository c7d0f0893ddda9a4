"""Copying a store into another one, of whatever sort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headway.errors import FailedPrecondition, HistoryCompacted, InvalidArgument
from headway.resource import Key, Kind, Position, copy_message, pb, resource_key
from headway.storage._backend import Backend, Fence, Operation, Put, Remove, Within
from headway.storage._errors import FenceLowered
from headway.storage._optional import fence_lister
from headway.storage._schemas import SCHEMA_KIND
from headway.storage._unfinished import UNFINISHED_KIND, mark_unfinished, refuse_unfinished, source_of, unmark
from headway.storage._verify import named, place_of
from headway.storage._verify_watches import follow

PAGE = 500
"""Resources that are read at a time."""

OPERATIONS = 32
"""In one commit: as many as every store takes."""


@dataclass
class Copied:
    """What a copy has done.

    Attributes:
        source: where the source stood.
        target: where the target stands now.
        resources: how many the target holds of each kind.
        written: how many had to be written or removed for that; fewer when a copy goes on that had been stopped.
        fences: how many fences were raised.
    """

    source: Position
    target: Position
    resources: dict[Kind, int] = field(default_factory=dict)
    written: int = 0
    fences: int = 0


async def copy_store(
    source: Backend, target: Backend, *, progress: Callable[[Kind, int], object] | None = None
) -> Copied:
    """Make an empty store hold what another one holds, and compare the two.

    Uids, generations, owners, statuses, metadata, finalizers and marks of deletion stay; versions are the target's
    own. Every fence stands one term above where the source has it, so that no term is given out again and nothing that
    bears one of the source's terms is written. Leases are not taken over: nobody holds one in the target. What is
    settled is the source's alone.

    The source must not be written to meanwhile, and is not written to. A copy that is stopped, however, leaves a mark
    in the target, by which no engine serves it and the same copy goes on.

    Args:
        source: an open store.
        target: another one, in which there is nothing, or an unfinished copy of this source.
        progress: is told the kind that is copied, and how many of it there are so far.

    Raises:
        FailedPrecondition: the target holds something else; or the source was written to, or the stores are not alike
            afterwards: then the mark stays.
        InvalidArgument: both are one store; or the source doesn't say what its fences are.
        StoreUnusable: the source is itself an unfinished copy.
    """
    list_fences = fence_lister(source)
    if list_fences is None:
        raise InvalidArgument(f"store {source.position.store_id} can't be copied: it has no list_fences()")
    await refuse_unfinished(source)
    copied = Copied(source.position, target.position)
    await _begin(source, target)
    for fence in await list_fences():
        copied.fences += await _raise(target, fence)
    kinds = await source.kinds()
    for kind in sorted({*kinds, *(await target.kinds())} - {UNFINISHED_KIND}):
        written, count = await _copy_kind(source, target, kind, progress or (lambda *_: None))
        copied.written += written
        copied.resources[kind] = count
    await _refuse_if_written_to(source, copied.source, kinds)
    await _compare(source, target, kinds)
    await unmark(target)
    copied.target = target.position
    return copied


async def _begin(source: Backend, target: Backend) -> None:
    here, there = source.position, target.position
    if here.store_id == there.store_id:
        raise InvalidArgument(f"both are the store {here.store_id}: a store can't be copied into itself")
    unfinished = await source_of(target)
    if unfinished == here.store_id:
        return
    if unfinished is not None:
        raise FailedPrecondition(
            f"the store that is to be copied into holds an unfinished copy of store {unfinished}, not of "
            f"{here.store_id}: finish that one, or name an empty store"
        )
    # What an engine has recorded that has found the target empty says nothing of what is to come.
    if kinds := [kind for kind in await target.kinds() if kind != SCHEMA_KIND]:
        raise FailedPrecondition(
            f"the store that is to be copied into is not empty: it holds {', '.join(map(named, kinds))}; "
            "name one that is new"
        )
    await mark_unfinished(target, here.store_id)


async def _raise(target: Backend, fence: Fence) -> int:
    # The term above the source's is nobody's, as after the end of a lease: whoever comes next goes above it.
    try:
        await target.raise_fence(fence.controller, fence.member, fence.term + 1, 0)
    except FenceLowered:
        # It stands there already: a copy goes on.
        return 0
    return 1


async def _copy_kind(
    source: Backend, target: Backend, kind: Kind, tell: Callable[[Kind, int], object]
) -> tuple[int, int]:
    """Make a kind the same in both, page by page, and return how many were changed for that, and how many there are."""
    count, written, after = 0, 0, None
    while True:
        page, _ = await source.list(kind, Within(), after=after, limit=PAGE)
        until = resource_key(page[-1]) if len(page) == PAGE else None
        removed, put = _difference(kind, page, await _between(target, kind, after, until))
        # A name that is removed and made again is so in two commits.
        for operations in (removed, put):
            for start in range(0, len(operations), OPERATIONS):
                await target.commit(operations[start : start + OPERATIONS])
        written += len(removed) + len(put)
        count += len(page)
        tell(kind, count)
        if until is None:
            return written, count
        after = until


def _difference(
    kind: Kind, page: Sequence[pb.Resource], there: dict[Key, pb.Resource]
) -> tuple[Sequence[Operation], Sequence[Operation]]:
    """What has to be removed and what put, so that the target has what the source has; uses up ``there``."""
    removed: list[Operation] = []
    put: list[Operation] = []
    for resource in page:
        key = resource_key(resource)
        stored = there.pop(key, None)
        if stored is not None and _unversioned(stored) == _unversioned(resource):
            continue
        if stored is not None and _uid(stored) != _uid(resource):
            removed.append(Remove(kind, key, _uid(stored), stored.version))
            stored = None
        put.append(Put(kind, key, _unversioned(resource), "" if stored is None else stored.version))
    removed += [Remove(kind, key, _uid(each), each.version) for key, each in there.items()]
    return removed, put


async def _between(backend: Backend, kind: Kind, after: Key | None, until: Key | None) -> dict[Key, pb.Resource]:
    """What is behind a key and up to another one; None: from the first, to the last."""
    found: dict[Key, pb.Resource] = {}
    while True:
        page, _ = await backend.list(kind, Within(), after=after, limit=PAGE)
        for each in page:
            if until is not None and resource_key(each) > until:
                return found
            found[resource_key(each)] = each
        if len(page) < PAGE:
            return found
        after = resource_key(page[-1])


async def _refuse_if_written_to(source: Backend, begun: Position, kinds: Sequence[Kind]) -> None:
    """Raise FailedPrecondition when a resource of the source was changed since. Fences and leases may have been."""
    here = source.position
    if here == begun:
        return
    problem = "the store that is copied was written to meanwhile: stop what writes to it, and run the same copy again"
    for kind in {*kinds, *(await source.kinds())}:
        try:
            async with follow(source, kind, lambda _: None, begun) as followed:
                await followed.until(here)
        except HistoryCompacted as error:
            raise FailedPrecondition(problem) from error
        if followed.changes:
            raise FailedPrecondition(problem)


async def _compare(source: Backend, target: Backend, kinds: Sequence[Kind]) -> None:
    """Raise FailedPrecondition unless both hold the same, but for versions, by list and by owner's list."""
    there = [kind for kind in await target.kinds() if kind != UNFINISHED_KIND]
    if there != list(kinds):
        raise FailedPrecondition(f"the copy has the kinds {[*map(named, there)]}, and not {[*map(named, kinds)]}")
    for kind in kinds:
        after: Key | None = None
        while page := (await source.list(kind, Within(), after=after, limit=PAGE))[0]:
            copies, _ = await target.list(kind, Within(), after=after, limit=PAGE)
            _compare_pages(kind, page, copies)
            for owner in {each.owner.uid for each in page if each.owner is not None and each.owner.uid}:
                await _compare_owned(source, target, owner)
            after = resource_key(page[-1])


def _compare_pages(kind: Kind, page: Sequence[pb.Resource], copies: Sequence[pb.Resource]) -> None:
    here, there = ({resource_key(each): _unversioned(each) for each in found} for found in (page, copies))
    for key in sorted(here.keys() | there.keys()):
        if here.get(key) != there.get(key):
            raise FailedPrecondition(f"{named(kind, key)} is not in the copy as it is in the store that was copied")


async def _compare_owned(source: Backend, target: Backend, owner: str) -> None:
    here, there = await _owned(source, owner), await _owned(target, owner)
    if here != there:
        raise FailedPrecondition(f"uid {owner} owns {len(there)} in the copy, and {len(here)} where it was copied from")


async def _owned(backend: Backend, owner: str) -> list[tuple[Kind, Key]]:
    found, _ = await backend.list_by_owner(owner)
    return sorted(map(place_of, found))


def _unversioned(resource: pb.Resource) -> pb.Resource:
    """A copy without its version, which is the store's."""
    copy = copy_message(resource)
    copy.version = ""
    return copy


def _uid(resource: pb.Resource) -> str:
    return resource.id.uid if resource.id is not None else ""

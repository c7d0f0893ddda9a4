"""Copy a store into another one, which may be of another type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headway.errors import FailedPrecondition, HistoryCompacted, InvalidArgument
from headway.protobuf import copy_message
from headway.resource import Key, Kind, Position, pb, resource_key
from headway.storage._abilities import rules_of
from headway.storage._backend import Backend
from headway.storage._open import UNFINISHED_KIND, mark_unfinished, refuse_unfinished, source_of, unmark
from headway.storage._operations import MOST_OPERATIONS, Fence, FenceLowered, Operation, Put, Remove, Within
from headway.storage.upkeep._progress import OnProgress, Progress
from headway.storage.upkeep._schema_mark import SCHEMA_KIND, without_mark
from headway.storage.upkeep._verify import follow, named, place_of

PAGE = 500
"""The number of resources in one read."""

_QUOTA_KIND: Kind = ("tenancy", "Quota")


@dataclass
class Copied:
    """The result of a copy.

    Attributes:
        source: the position of the source when the copy began.
        target: the position of the target now.
        resources: the number of resources in the target, by kind.
        written: the number of resources that were written or removed. A copy that continues a stopped one writes
            fewer.
        fences: the number of fences that were raised.
    """

    source: Position
    target: Position
    resources: dict[Kind, int] = field(default_factory=dict)
    written: int = 0
    fences: int = 0


async def copy_store(source: Backend, target: Backend, *, progress: OnProgress | None = None) -> Copied:
    """Copy a store into an empty one, and compare the two.

    Uids, generations, owners, statuses, metadata, finalizers and deletion marks are kept. The target assigns its own
    versions. Every fence is raised to one term above the source's, so that no term is granted again and no write that
    carries one of the source's terms is stored. Leases and checkpoints are not copied.

    Nothing may write to the source during the copy. The copy itself only reads it. A copy that was stopped leaves a
    mark in the target. No engine serves a store with the mark, and running the same copy again continues it.

    Args:
        source: an open store.
        target: another open store. It must be empty or hold an unfinished copy of this source.
        progress: called at the beginning of each step, after each page of resources, and at the end of the step. Each
            kind is copied in one step, and compared in another. With it, the resources are counted first.

    Raises:
        FailedPrecondition: the target holds something else, the source was written to during the copy, or the stores
            differ after it. In the last two cases the mark stays.
        InvalidArgument: both are the same store, the source cannot list its fences, or only the source keeps quotas.
        StoreUnusable: the source itself holds an unfinished copy.
    """
    list_fences: Callable[[], Awaitable[Sequence[Fence]]] | None = getattr(source, "list_fences", None)
    if list_fences is None:
        raise InvalidArgument(f"store {source.position.store_id} can't be copied: it has no list_fences()")
    await refuse_unfinished(source)
    copied = Copied(source.position, target.position)
    await _begin(source, target)
    for fence in await list_fences():
        copied.fences += await _raise(target, fence)
    kinds = await source.kinds()
    steps = _Steps(progress, {} if progress is None else await _totals(source, kinds))
    if _QUOTA_KIND in kinds and rules_of(target) is None:
        raise InvalidArgument("the source has quotas, which the target does not keep: it takes no rules of commits")
    # Quotas come last, so that they do not refuse what the source has. Those that a stopped copy has left may be other
    # ones than the source has now.
    copied.written += await _remove_all(target, _QUOTA_KIND)
    for kind in sorted(
        {*kinds, *(await target.kinds())} - {UNFINISHED_KIND}, key=lambda kind: (kind == _QUOTA_KIND, kind)
    ):
        written, count = await _copy_kind(source, target, kind, steps)
        copied.written += written
        copied.resources[kind] = count
    await _refuse_if_written_to(source, copied.source, kinds)
    await _compare(source, target, kinds, steps)
    await unmark(target)
    copied.target = target.position
    return copied


class _Steps:
    """The reports about the steps of a copy."""

    def __init__(self, report: OnProgress | None, totals: Mapping[Kind, int]) -> None:
        self._report = report
        self._totals = totals
        self._last: Progress | None = None

    def at(self, verb: str, kind: Kind, done: int, *, ended: bool = False) -> None:
        """Report how many resources of a kind are done. At the end of a step, that is all of them."""
        if self._report is not None:
            # Others may write in the meantime, so that there are more than have been counted.
            total = done if ended else max(done, self._totals.get(kind, 0))
            progress = Progress(f"{verb} {named(kind)}", done, total)
            if progress != self._last:
                self._report(progress)
            self._last = progress


async def _totals(source: Backend, kinds: Sequence[Kind]) -> Mapping[Kind, int]:
    """Return the number of resources of each kind. A store that cannot count them is listed."""
    count_kinds: Callable[[], Awaitable[Mapping[Kind, int]]] | None = getattr(source, "count_kinds", None)
    if count_kinds is not None:
        return await count_kinds()
    totals = dict.fromkeys(kinds, 0)
    for kind in kinds:
        after: Key | None = None
        while page := (await source.list(kind, Within(), after=after, limit=PAGE))[0]:
            totals[kind] += len(page)
            after = resource_key(page[-1])
    return totals


async def _begin(source: Backend, target: Backend) -> None:
    here, there = source.position, target.position
    if here.store_id == there.store_id:
        raise InvalidArgument(f"source and target are both store {here.store_id}: a store can't be copied into itself")
    unfinished = await source_of(target)
    if unfinished == here.store_id:
        return
    if unfinished is not None:
        raise FailedPrecondition(
            f"the target holds an unfinished copy of store {unfinished}, not of "
            f"{here.store_id}: finish that copy, or choose an empty store"
        )
    # An engine that opened the empty target has recorded its schemas. The copy replaces them.
    if kinds := [kind for kind in await target.kinds() if kind != SCHEMA_KIND]:
        raise FailedPrecondition(
            f"the target is not empty: it holds {', '.join(map(named, kinds))}; choose a new store"
        )
    await mark_unfinished(target, here.store_id)


async def _raise(target: Backend, fence: Fence) -> int:
    # No holder gets the term above the source's, as after the end of a lease. The next holder's term is above it.
    try:
        await target.raise_fence(fence.controller, fence.member, fence.term + 1, 0)
    except FenceLowered:
        # An earlier, stopped copy has already raised it.
        return 0
    return 1


async def _remove_all(target: Backend, kind: Kind) -> int:
    """Remove the resources of a kind from the target. Return their number."""
    there = list((await _between(target, kind, None, None)).values())
    for start in range(0, len(there), MOST_OPERATIONS):
        page = there[start : start + MOST_OPERATIONS]
        await target.commit([Remove(kind, resource_key(each), _uid(each), each.version) for each in page])
    return len(there)


async def _copy_kind(source: Backend, target: Backend, kind: Kind, steps: _Steps) -> tuple[int, int]:
    """Copy a kind page by page. Return the numbers of resources changed in the target, and present in the source."""
    count, written, after = 0, 0, None
    steps.at("copying", kind, 0)
    while True:
        page, _ = await source.list(kind, Within(), after=after, limit=PAGE)
        until = resource_key(page[-1]) if len(page) == PAGE else None
        removed, put = _difference(kind, page, await _between(target, kind, after, until))
        # A resource that is removed and created again needs two commits.
        for operations in (removed, put):
            for start in range(0, len(operations), MOST_OPERATIONS):
                await target.commit(operations[start : start + MOST_OPERATIONS])
        written += len(removed) + len(put)
        count += len(page)
        steps.at("copying", kind, count, ended=until is None)
        if until is None:
            return written, count
        after = until


def _difference(
    kind: Kind, page: Sequence[pb.Resource], there: dict[Key, pb.Resource]
) -> tuple[Sequence[Operation], Sequence[Operation]]:
    """Return the operations that make the target equal to the page: removals and puts. Empties ``there``."""
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
    """Return the resources after one key and up to another. None stands for the beginning or the end."""
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
    """Raise FailedPrecondition if a resource of the source has changed since. Fences and leases may have changed."""
    here = source.position
    if here == begun:
        return
    problem = "the source was written to during the copy: stop its writers, and run the same copy again"
    for kind in {*kinds, *(await source.kinds())}:
        try:
            async with follow(source, kind, lambda _: None, begun) as followed:
                await followed.until(here)
        except HistoryCompacted as error:
            raise FailedPrecondition(problem) from error
        if followed.changes:
            raise FailedPrecondition(problem)


async def _compare(source: Backend, target: Backend, kinds: Sequence[Kind], steps: _Steps) -> None:
    """Raise FailedPrecondition unless both stores list the same resources by kind and by owner. Versions may differ."""
    there = [kind for kind in await target.kinds() if kind != UNFINISHED_KIND]
    if there != list(kinds):
        raise FailedPrecondition(f"the copy has the kinds {[*map(named, there)]}, expected {[*map(named, kinds)]}")
    for kind in kinds:
        count = 0
        after: Key | None = None
        steps.at("comparing", kind, 0)
        while page := (await source.list(kind, Within(), after=after, limit=PAGE))[0]:
            copies, _ = await target.list(kind, Within(), after=after, limit=PAGE)
            _compare_pages(kind, page, copies)
            for owner in {each.owner.uid for each in page if each.owner is not None and each.owner.uid}:
                await _compare_owned(source, target, owner)
            after = resource_key(page[-1])
            count += len(page)
            steps.at("comparing", kind, count)
        steps.at("comparing", kind, count, ended=True)


def _compare_pages(kind: Kind, page: Sequence[pb.Resource], copies: Sequence[pb.Resource]) -> None:
    here, there = ({resource_key(each): _unversioned(each) for each in found} for found in (page, copies))
    for key in sorted(here.keys() | there.keys()):
        if here.get(key) != there.get(key):
            raise FailedPrecondition(f"{named(kind, key)} differs between the copy and its source")


async def _compare_owned(source: Backend, target: Backend, owner: str) -> None:
    here, there = await _owned(source, owner), await _owned(target, owner)
    if here != there:
        raise FailedPrecondition(f"uid {owner} owns {len(there)} resources in the copy, and {len(here)} in its source")


async def _owned(backend: Backend, owner: str) -> list[tuple[Kind, Key]]:
    found, _ = await backend.list_by_owner(owner)
    return sorted(map(place_of, found))


def _unversioned(resource: pb.Resource) -> pb.Resource:
    """Return a copy of a resource without its version and other revisions. Each store has its own."""
    copy = without_mark(resource) if place_of(resource)[0] == SCHEMA_KIND else copy_message(resource)
    copy.version = ""
    return copy


def _uid(resource: pb.Resource) -> str:
    return resource.id.uid if resource.id is not None else ""

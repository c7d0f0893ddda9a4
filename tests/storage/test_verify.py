"""The check of a store finds every inconsistency, and finds nothing in a consistent store."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from headway.protobuf import copy_message
from headway.resource import Changes, Key, Kind, Position, StreamItem, pb
from headway.storage import Fence, Operation, Progress, SqliteBackend, Verified, mark_unfinished, verify_store
from headway.testing.conformance import KIND, OTHER_KIND, Truth, put, putting, remove, store_a_matrix, thing, uid_of
from tests.storage.kept_memory import Found, KeptMemory

PLACE: Key = ("default", "default", "a")


async def _fill(store: KeptMemory | SqliteBackend) -> None:
    owner = thing("owner")
    await put(store, owner)
    at = await put(store, first := thing("a", owner_uid=uid_of(owner)))
    await put(store, thing("a", "again", uid=uid_of(first), owner_uid=uid_of(owner)), str(at.revision))
    at = await put(store, gone := thing("gone"))
    await remove(store, gone, str(at.revision))
    await put(store, thing("other", kind=OTHER_KIND, owner_uid=uid_of(owner)))


async def test_consistent_store_has_no_problems(tmp_path: object) -> None:
    """It may be in memory or in a file, with history or without.

    The result has its position and the number of resources.
    """
    memory = KeptMemory()
    await _fill(memory)
    found = await verify_store(memory)

    assert found == Verified(memory.position, 0, {OTHER_KIND: 1, KIND: 2}, [])
    async with SqliteBackend(f"{tmp_path}/a.db", max_changes=3) as store:
        await store_a_matrix(store)
        await _fill(store)
        found = await verify_store(store)
    assert found.problems == []
    assert 0 < found.oldest < found.position.revision
    assert found.resources == {KIND: 101, OTHER_KIND: 12}


async def test_concurrent_writes_cause_no_findings(autojump_clock: MockClock) -> None:
    """A change between two reads is distinguished from an inconsistency."""
    store = KeptMemory(max_changes=60)
    truth = Truth()
    found: list[Verified] = []

    async def verify_often() -> None:
        while not truth.done:
            found.append(await verify_store(store))

    async with truth.writing(store, steps=200) as lookers:
        lookers.start_soon(verify_often)
        lookers.start_soon(verify_often)

    assert len(found) > 4
    assert [problem for each in found for problem in each.problems] == []
    assert autojump_clock.current_time() < 30


class TwoOfOneUid(KeptMemory):
    def decide(self, operation: Operation) -> tuple[Kind, Key, pb.Resource | None, pb.Resource | None] | None:
        entry = super().decide(operation)
        if entry is not None and entry[3] is not None and entry[3].id is not None:
            entry[3].id.uid = "one"
        return entry


class ReadsOtherMetadata(KeptMemory):
    def read_nowait(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        found, at = super().read_nowait(kind, key)
        if key == PLACE and found is not None:
            found = copy_message(found)
            found.metadata = {}
        return found, at


class ListsBackwards(KeptMemory):
    async def list(self, *given: object, **more: object) -> Found:
        found, at = await super().list(*given, **more)  # type: ignore[arg-type]
        return found[::-1], at


class ListsAnotherKind(KeptMemory):
    async def list(self, kind: Kind, *given: object, **more: object) -> Found:  # noqa: ARG002  # the fault
        found, at = await super().list(KIND, *given, **more)  # type: ignore[arg-type]
        return found, at


class ListsTooFewOwned(KeptMemory):
    async def list_by_owner(self, owner_uid: str) -> Found:
        found, at = await super().list_by_owner(owner_uid)
        return found[:1], at


class ListsTooManyOwned(KeptMemory):
    async def list_by_owner(self, owner_uid: str) -> Found:
        return list(self.tables[KIND].values()) if self.owned.get(owner_uid) else [], self.position


class HasALowPosition(KeptMemory):
    @property
    def position(self) -> Position:
        return self._at(min(self._log.head, 4))


class OmitsResourcesInWatches(KeptMemory):
    async def watch(self, kind: Kind, *given: object) -> object:  # type: ignore[override]
        tables, self.tables = self.tables, {**self.tables, KIND: {}}
        made = await super().watch(kind, *given)  # type: ignore[arg-type]
        self.tables = tables
        return made


class LosesHistory(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        if not isinstance(item, Changes):
            return item
        kept = [each for each in item.changes if not each.deleted and each.resource.id and each.resource.id.name != "a"]
        return Changes(kept) if kept else None


class ReportsAllAsDeleted(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        return Changes([each._replace(deleted=True) for each in item.changes]) if isinstance(item, Changes) else item


class DeliversNothing(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:  # noqa: ARG002  # the fault
        return None


class ListsEmptyKinds(KeptMemory):
    async def kinds(self) -> Sequence[Kind]:
        return [*await super().kinds(), ("a", "None")]


class FindsItsOwnDamage(KeptMemory):
    async def check_itself(self) -> Sequence[str]:
        await trio.lowlevel.checkpoint()
        return ["its third page is torn"]


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (TwoOfOneUid, "and conformance.Other default/default/other have the same uid one"),
        (ReadsOtherMetadata, "conformance.Thing default/default/a is 3 in a list but 3 when read by its key"),
        (
            ListsBackwards,
            "conformance.Thing default/default/a is listed after conformance.Thing default/default/owner",
        ),
        (ListsAnotherKind, "conformance.Other default/default/a is listed under another kind"),
        (ListsTooFewOwned, "is owned by uid"),
        (ListsTooManyOwned, "but not owned by it"),
        (HasALowPosition, "conformance.Other default/default/other has version '6'; the store is at revision 4"),
        (
            OmitsResourcesInWatches,
            "conformance.Thing default/default/a is 3 in a list at revision 6 but missing in a watch",
        ),
        (
            LosesHistory,
            "conformance.Thing default/default/a has version 3, but history from 0 on has no such commit",
        ),
        (ReportsAllAsDeleted, "default/default/a is stored, but history has it deleted at revision 3"),
        (DeliversNothing, "a watch of conformance.Other has not ended its snapshot within 30 s"),
        (ListsEmptyKinds, "the list of kinds is not in order, or repeats a kind: ['conformance.Other', 'conf"),
        (ListsEmptyKinds, "a.None is in the list of kinds but has no resources"),
        (FindsItsOwnDamage, "its third page is torn"),
    ],
)
async def test_inconsistent_store_is_detected(
    broken: type[KeptMemory], problem: str, autojump_clock: MockClock
) -> None:
    """Each inconsistency has a sentence that names what is wrong."""
    store = broken()
    await _fill(store)
    reported: list[Progress] = []
    found = await verify_store(store, progress=reported.append)

    assert [each for each in found.problems if problem in each], found.problems
    assert reported[0] == Progress("checking conformance.Other")
    assert autojump_clock.current_time() < 300


async def test_version_that_is_not_a_revision_is_found() -> None:
    """The version of a resource must be the decimal revision of a commit."""
    store = KeptMemory()
    await _fill(store)
    for version in ("", "0", "x", "99"):
        store.tables[KIND][PLACE].version = version
        found = await verify_store(store)
        assert any(f"default/default/a has version {version!r}; the" in each for each in found.problems)


async def test_unfinished_copy_is_a_problem() -> None:
    """The store holds only a part of another one."""
    store = KeptMemory()
    await mark_unfinished(store, "another")

    assert (await verify_store(store)).problems == ["a copy into this store was not finished: run the same copy again"]


async def test_checking_writes_nothing() -> None:
    """The position and the fences of the store stay the same."""
    store = KeptMemory()
    await _fill(store)
    await store.raise_fence("c", "m", 3, 1)
    before = store.position
    await verify_store(store)

    assert store.position == before
    assert await store.list_fences() == [Fence("c", "m", 3, 1)]
    await store.commit([putting(thing("b"))])

"""A copy of a store has the same content and an identity of its own."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trio

import headway
from headway.errors import FailedPrecondition, InvalidArgument, StoreUnusable
from headway.protobuf import copy_message
from headway.resource import Condition, Key, Kind, Position, pb
from headway.storage import (
    UNFINISHED_KIND,
    Backend,
    EtcdBackend,
    Fence,
    FenceLowered,
    MemoryBackend,
    Operation,
    PostgresBackend,
    Progress,
    SqliteBackend,
    StoreMismatch,
    Within,
    copy_store,
    mark_unfinished,
    verify_store,
)
from headway.testing.conformance import (
    EVERYTHING,
    KIND,
    OTHER_KIND,
    Truth,
    fill,
    names,
    put,
    putting,
    refused,
    remove,
    thing,
    uid_of,
)
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.postgres_server import PostgresServer
from tests.storage.kept_memory import Found, KeptMemory

Store = MemoryBackend | SqliteBackend | EtcdBackend | PostgresBackend
SORTS = ("memory", "sqlite", "etcd", "postgres")


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Store]:
    """Make a new store of one kind at each call."""

    def making(sort: str) -> Store:
        if sort == "memory":
            return MemoryBackend()
        if sort == "sqlite":
            return SqliteBackend(tmp_path / f"{uuid.uuid4()}.db")
        if sort == "postgres":
            running: PostgresServer = request.getfixturevalue("postgres")
            return PostgresBackend(running.new_url())
        server: EtcdServer = request.getfixturevalue("etcd")
        return EtcdBackend(f"etcd://{server.endpoint}{server.new_prefix()}")

    return making


def _full(name: str, owner: str) -> pb.Resource:
    full = thing(name, "x" * 2000, partition="p", namespace="n", owner_uid=owner, kind=OTHER_KIND, version="v2")
    full.metadata |= {"finalizers": "one two", "deletionTimestamp": "2026-01-01T00:00:00Z", "\N{SNOWMAN}": ""}
    condition = Condition(type="Ready", reason="Because", message="it is", resource=pb.Reference(name="b"))
    full.status = {"controller": pb.Status(observed_generation=full.generation, conditions=[condition])}
    return full


async def _fill(store: Backend) -> None:
    truth = Truth()
    async with truth.writing(store, steps=12):
        pass
    await fill(store, 70)
    # The owned resource's kind sorts before its owner's kind, and the owner has been deleted.
    await put(store, owner := thing("owner"))
    await put(store, _full("owned", uid_of(owner)))
    at = await put(store, gone := thing("gone-owner"))
    await put(store, _full("orphan", uid_of(gone)))
    await remove(store, gone, str(at.revision))


def _without_versions(resources: Sequence[pb.Resource]) -> list[pb.Resource]:
    copies = [copy_message(each) for each in resources]
    for each in copies:
        each.version = ""
    return copies


@pytest.mark.parametrize(
    ("of", "to"),
    [
        pytest.param(
            of, to, marks=[pytest.mark.wide] * (of == to or "memory" in (of, to) or {of, to} == {"etcd", "postgres"})
        )
        for of, to in itertools.product(SORTS, SORTS)
    ],
)
async def test_copy_has_all_content_and_another_store_id(of: str, to: str, make: Callable[[str], Store]) -> None:
    """Only versions differ. The owner index is copied too, and no watch resumes in the copy."""
    async with make(of) as source, make(to) as target:
        await _fill(source)
        before = source.position
        copied = await copy_store(source, target)

        assert source.position == before, "the copy wrote to its source"
        assert await target.kinds() == await source.kinds()
        for kind in (KIND, OTHER_KIND):
            here, there = (await source.list(kind, EVERYTHING))[0], (await target.list(kind, EVERYTHING))[0]
            assert _without_versions(here) == _without_versions(there)
            assert copied.resources[kind] == len(here)
            assert all(0 < int(each.version) <= target.position.revision for each in there)
            for owner in {each.owner.uid for each in here if each.owner is not None}:
                owned, copies = (await source.list_by_owner(owner))[0], (await target.list_by_owner(owner))[0]
                assert sorted(map(uid_of, owned)) == sorted(map(uid_of, copies))
        assert target.position.store_id != source.position.store_id
        assert copied.written == sum(copied.resources.values())
        await refused(StoreMismatch, target.watch(KIND, EVERYTHING, before), "resuming in a copy")
        assert (await verify_store(target)).problems == []


@pytest.mark.parametrize(
    ("of", "to"),
    [
        pytest.param(of, to, marks=[pytest.mark.wide] * ("postgres" in (of, to) and "sqlite" not in (of, to)))
        for of, to in itertools.product(SORTS, SORTS)
    ],
)
async def test_copy_never_reuses_a_term_of_the_source(of: str, to: str, make: Callable[[str], Store]) -> None:
    """Every fence is above the fence of the source, also for a held lease. No lease is held in the copy."""
    async with make(of) as source, make(to) as target:
        await put(source, thing("a"))
        await source.raise_fence("c", "m", 7, 9)
        held = (await source.acquire_lease("led", "somebody", 600.0)).held.lease
        copied = await copy_store(source, target)

        assert copied.fences == 2
        assert await target.list_fences() == [Fence("c", "m", 8, 0), Fence("led", "", held.term + 1, 0)]
        for fence in (Fence("c", "m", 7, 99), Fence("led", "", held.term, 99)):
            await refused(FenceLowered, put(target, thing("late"), fence=fence), "a write in a term of the source")
        assert (await target.list_leases())[0] == []
        taken = await target.acquire_lease("led", "another", 600.0)
        assert taken.acquired
        assert taken.held.lease.term > held.term
        assert (await target.raise_fence("c", "m", 0, 0)).fence.term > 7


async def test_copy_into_nonempty_store_is_refused() -> None:
    """The target stays as it is, and the error names its content. The source as target is refused too."""
    source, target = MemoryBackend(), MemoryBackend()
    await put(source, thing("a"))
    await put(target, thing("b"))
    here = target.position
    error = await refused(FailedPrecondition, copy_store(source, target), "copying into a store that is not empty")

    assert "is not empty: it holds conformance.Thing" in str(error)
    assert target.position == here
    error_of_one = await refused(InvalidArgument, copy_store(source, source), "copying into itself")
    assert "can't be copied into itself" in str(error_of_one)


class Stops(MemoryBackend):
    """A store that fails at its third commit of resources."""

    commits = 0
    fails = True

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        self.commits += 1
        if self.fails and self.commits == 4:
            raise StoreUnusable("no more room")
        return await super().commit(operations, fence)


async def test_interrupted_copy_resumes_and_is_not_served_before() -> None:
    """The mark makes an engine refuse the target. The same copy adds what is missing; another copy is refused."""
    source, target = MemoryBackend(), Stops()
    await fill(source, 200)
    await refused(StoreUnusable, copy_store(source, target), "a copy into a store without room")
    part = len(await names(target))
    assert part == 64

    with pytest.raises(StoreUnusable, match="run the same `headway store copy` again"):
        async with headway.open_engine(target, headway.App("staff")):
            pytest.fail("an unfinished copy was served")
    other = await refused(FailedPrecondition, copy_store(MemoryBackend(), target), "another copy")
    assert f"holds an unfinished copy of store {source.position.store_id}" in str(other)
    await refused(StoreUnusable, copy_store(target, MemoryBackend()), "a copy of an unfinished copy")

    # In the end, the target has the changes that were made in the source between the two attempts.
    [first, second, *_] = (await source.list(KIND, EVERYTHING))[0]
    await remove(source, first, first.version)
    await remove(source, second, second.version)
    await put(source, thing("n0001", "another incarnation"))
    target.fails = False
    copied = await copy_store(source, target)

    assert copied.written == 200 - part + 3
    assert _without_versions((await source.list(KIND, EVERYTHING))[0]) == _without_versions(
        (await target.list(KIND, EVERYTHING))[0]
    )
    assert await target.kinds() == [KIND]
    async with headway.open_engine(target, headway.App("staff")):
        pass


async def test_pages_of_a_copy_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds wherever page edges fall, and for a resumed copy that must also remove resources."""
    monkeypatch.setattr("headway.storage.upkeep._copy.PAGE", 3)
    strays = ("a", "n0000b", "n0002b", "n0003", "z1", "z2", "z3", "z4")
    for count in (0, 1, 3, 4, 9):
        counted: list[Progress] = []
        source, target = MemoryBackend(), MemoryBackend()
        await fill(source, count)
        await put(source, thing("other", kind=OTHER_KIND))
        await mark_unfinished(target, source.position.store_id)
        await target.commit([putting(thing(name)) for name in strays])
        copied = await copy_store(source, target, progress=counted.append)

        assert _without_versions((await source.list(KIND, EVERYTHING))[0]) == _without_versions(
            (await target.list(KIND, EVERYTHING))[0]
        )
        assert copied.resources == {KIND: count, OTHER_KIND: 1}
        name = ".".join(KIND)
        copying, comparing = (
            [each for each in counted if each.step == f"{verb} {name}"] for verb in ("copying", "comparing")
        )
        assert [each.done for each in copying] == [*range(0, count, 3), count]
        assert {each.total for each in (*copying, *comparing)} == {count}
        assert all(each[-1].done == count for each in (copying, comparing) if each)


class ChangedDuringTheCopy(MemoryBackend):
    """A source that another writer changes while its second page is read."""

    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        found = await super().list(kind, within, after=after, limit=limit)
        if (
            after is not None
            and after[2] == "n0499"
            and await self.read(KIND, ("default", "default", "late")) is not None
        ):
            await self.raise_fence("c", "m", 0, 0)
            await self.write()
        return found

    async def write(self) -> None:
        """Write as the other writer."""
        await put(self, thing(f"a{self.position.revision}"))


async def test_write_to_the_source_fails_the_copy() -> None:
    """A write behind a page would be missing: the copy fails, keeps its mark, and can be resumed."""
    source, target = ChangedDuringTheCopy(), MemoryBackend()
    await fill(source, 510)
    error = await refused(FailedPrecondition, copy_store(source, target), "copying a store during a write")

    assert "was written to during the copy" in str(error)
    assert UNFINISHED_KIND in await target.kinds()


class FenceRaisedDuringTheCopy(ChangedDuringTheCopy):
    async def write(self) -> None:
        """Raise a fence without another change, as the end of a lease does."""


async def test_lease_expiry_in_the_source_does_not_fail_the_copy() -> None:
    """A revision that changes no resource cannot be missing from a page."""
    source, target = FenceRaisedDuringTheCopy(), MemoryBackend()
    await fill(source, 510)

    assert (await copy_store(source, target)).resources == {KIND: 510}


class Forgetful(KeptMemory):
    """A target that acknowledges writes and loses them."""

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        return await super().commit([each for each in operations if "n0042" not in str(each)], fence)


class Adopting(KeptMemory):
    """A target that loses the owners of resources."""

    async def list_by_owner(self, owner_uid: str) -> Found:  # noqa: ARG002  # the fault
        await trio.lowlevel.checkpoint()
        return [], self.position


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (Forgetful, "conformance.Thing default/default/n0042 differs between the copy and its source"),
        (Adopting, "owns 0 resources in the copy, and 1 in its source"),
    ],
)
async def test_copy_compares_both_stores_at_the_end(target: type[KeptMemory], problem: str) -> None:
    """A target that has lost acknowledged resources or their owners fails the copy."""
    source, broken = MemoryBackend(), target()
    await fill(source, 50)
    await put(source, thing("owned", owner_uid="somebody"))
    error = await refused(FailedPrecondition, copy_store(source, broken), "a copy that is not the same")

    assert problem in str(error)


class WithoutFences(KeptMemory):
    list_fences = None  # type: ignore[assignment]


async def test_store_that_cannot_list_fences_is_not_copied() -> None:
    """Without the fences the copy could give out a term again."""
    error = await refused(InvalidArgument, copy_store(WithoutFences(), MemoryBackend()), "copying without fences")

    assert "list_fences" in str(error)


@pytest.mark.wide
async def test_canceled_copy_leaves_its_mark(tmp_path: Path) -> None:
    """This holds at every point of the copy."""
    async with SqliteBackend(tmp_path / "of") as source, SqliteBackend(tmp_path / "to") as target:
        await fill(source, 3000)
        with trio.CancelScope() as scope:

            def stop(progress: Progress) -> None:
                if progress.done >= 1000:
                    scope.cancel()

            await copy_store(source, target, progress=stop)
        assert scope.cancelled_caught
        assert UNFINISHED_KIND in await target.kinds()
        assert (await copy_store(source, target)).written == 2000

"""Commits that share a transaction of etcd: each has its own revision and its own outcome, as if it were alone."""

from collections.abc import Sequence

import pytest
import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway._gen.etcdserverpb import TxnRequest, TxnResponse
from headway.errors import HeadwayError, HistoryCompacted, OutcomeUnknown
from headway.resource import Position, pb, resource_key
from headway.storage import (
    EtcdBackend,
    Fence,
    FenceLowered,
    Operation,
    Require,
    StorageError,
    VersionConflict,
)
from headway.storage._etcd._records import etcd_revision
from headway.testing._conformance_tools import (
    EVERYTHING,
    kind_of,
    name_of,
    names,
    put,
    putting,
    reading,
    refused,
    remove,
    removing,
    thing,
    told,
    uid_of,
)
from tests.helpers.fake_etcd import serving_etcd
from tests.storage.etcd_kit import Rig, failing, followed, is_write, primed, rigged, until

Outcome = Position | HeadwayError | StorageError


def counted(rig: Rig) -> list[TxnRequest]:
    """The writes that etcd is asked for from now on."""
    writes: list[TxnRequest] = []
    before = rig.fake.on_txn

    def on_txn(request: TxnRequest) -> None:
        if is_write(request):
            writes.append(request)
        before(request)

    rig.fake.on_txn = on_txn
    return writes


async def at_once(
    store: EtcdBackend, commits: Sequence[Sequence[Operation]], fences: Sequence[Fence | None] = ()
) -> list[Outcome]:
    """Make commits by as many tasks; how each ended."""
    outcomes: dict[int, Outcome] = {}

    async def commit(index: int, operations: Sequence[Operation]) -> None:
        try:
            outcomes[index] = await store.commit(operations, fences[index] if fences else None)
        except (HeadwayError, StorageError) as error:
            outcomes[index] = error

    async with trio.open_nursery() as nursery:
        for index, operations in enumerate(commits):
            nursery.start_soon(commit, index, operations)
    return [outcomes[index] for index in range(len(commits))]


def revisions(outcomes: Sequence[Outcome]) -> list[int]:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return [outcome.revision for outcome in outcomes if isinstance(outcome, Position)]


async def test_writers_at_once_share_a_transaction_and_have_a_revision_each() -> None:
    """In one of etcd's; who watches is told of each commit by itself, here and at another engine."""
    async with rigged() as rig, EtcdBackend(rig.url) as other:
        readers = [await primed(rig.store), await primed(other)]
        writes = counted(rig)
        made = revisions(await at_once(rig.store, [[putting(thing(f"n{index:02}"))] for index in range(20)]))
        assert len(writes) == 1
        assert len(set(made)) == 20
        assert {etcd_revision(each) for each in made} == {rig.fake.state.revision}
        for store, reader in zip((rig.store, other), readers, strict=True):
            await followed(reader, store)
            wanted = sorted((revision, f"n{index:02}", False) for index, revision in enumerate(made))
            assert told(reader.changes) == wanted
            assert not any(change.more for change in reader.changes)
            found, at = await store.list(("conformance", "Thing"), EVERYTHING)
            assert [int(each.version) for each in found] == made
            assert at.revision == max(made)


async def test_what_was_written_together_is_read_alike_by_who_comes_later() -> None:
    """From a snapshot every resource has the version that its writer was told, and can be written at it."""
    async with rigged() as rig:
        given = [thing(f"n{index}") for index in range(5)]
        made = revisions(await at_once(rig.store, [[putting(each)] for each in given]))
        async with EtcdBackend(rig.url) as other:
            found, _ = await other.list(("conformance", "Thing"), EVERYTHING)
            assert [int(each.version) for each in found] == made
            version, uid = str(made[3]), uid_of(given[3])
            await refused(VersionConflict, put(other, thing("n3", uid=uid), str(made[2])), "a neighbour's version")
            await put(other, thing("n3", "again", uid=uid), version)


async def test_a_watch_resumes_between_two_that_were_committed_together() -> None:
    """Their revisions are as good as any others."""
    async with rigged() as rig:
        made = sorted(revisions(await at_once(rig.store, [[putting(thing(f"n{index}"))] for index in range(6)])))
        at = rig.store.position
        assert at.revision == made[-1]
        await names(rig.store)
        for index, revision in enumerate(made):
            reader = await reading(rig.store, after=at._replace(revision=revision))
            await reader.until(at.revision)
            assert [each.revision for each in reader.changes] == made[index + 1 :]


async def test_each_of_those_that_come_together_has_its_own_outcome() -> None:
    """What another engine has done meanwhile refuses one of them, and the others go on."""
    async with rigged() as rig, EtcdBackend(rig.url) as other:
        at = await put(rig.store, contested := thing("contested"))
        await names(other)
        rig.fake.muted = rig.fake.watches[-1]
        uid = uid_of(contested)
        await put(rig.store, thing("contested", "first", uid=uid), str(at.revision))
        rig.fake.muted = None
        rig.fake.cancel_watches("etcdserver: no leader")
        commits: list[list[Operation]] = [[putting(thing(f"n{index}"))] for index in range(4)]
        commits.insert(2, [putting(thing("contested", "late", uid=uid), str(at.revision))])
        writes = counted(rig)
        outcomes = await at_once(other, commits)
        assert isinstance(outcomes.pop(2), VersionConflict)
        assert len(set(revisions(outcomes))) == 4
        assert len(writes) == 6, "one for all, and then one each: nobody waits for others to be right"
        assert await names(rig.store) == ["contested", "n0", "n1", "n2", "n3"]


async def test_writes_of_one_fence_share_a_transaction_and_a_raise_refuses_all_of_them() -> None:
    """The fence is compared once for all, and each writer is told what it says (C8)."""
    async with rigged() as rig, EtcdBackend(rig.url) as other:
        fence = (await rig.store.raise_fence("c", "", 0, 0)).fence
        writes = counted(rig)
        commits: list[list[Operation]] = [[putting(thing(f"n{index}"))] for index in range(8)]
        revisions(await at_once(rig.store, commits, [fence] * 8))
        assert len(writes) == 1
        await names(other)
        rig.fake.muted = rig.fake.watches[-1]
        await rig.store.raise_fence("c", "", 0, 0)
        rig.fake.muted = None
        rig.fake.cancel_watches("etcdserver: no leader")
        late: list[list[Operation]] = [[putting(thing(f"late{index}"))] for index in range(8)]
        outcomes = await at_once(other, late, [fence] * 8)
        assert all(isinstance(each, FenceLowered) for each in outcomes)
        assert len(await names(other)) == 8


@pytest.mark.parametrize(
    "message", ["etcdserver: too many operations in txn request", "etcdserver: request is too large"]
)
async def test_what_is_too_much_together_goes_alone(message: str) -> None:
    """An etcd that takes less than by default takes each of them."""
    async with rigged() as rig:
        rig.fake.on_txn = failing(Status.INVALID_ARGUMENT, message)
        writes = counted(rig)
        revisions(await at_once(rig.store, [[putting(thing(f"n{index}"))] for index in range(5)]))
        assert len(writes) == 6
        assert len(await names(rig.store)) == 5


@pytest.mark.parametrize("landed", [True, False])
async def test_what_may_have_happened_is_said_to_all_of_them(landed: bool) -> None:
    """Once to each, and nothing is sent again."""

    def fail(request: TxnRequest) -> None:
        if is_write(request):
            raise GRPCError(Status.UNAVAILABLE, "etcdserver: request timed out")

    def fail_after(request: TxnRequest, response: TxnResponse) -> TxnResponse:
        fail(request)
        return response

    async with rigged() as rig:
        if landed:
            rig.fake.after_txn = fail_after
        else:
            rig.fake.on_txn = fail
        writes = counted(rig)
        outcomes = await at_once(rig.store, [[putting(thing(f"n{index}"))] for index in range(5)])
        assert all(isinstance(each, OutcomeUnknown) for each in outcomes)
        assert len({id(each) for each in outcomes}) == 5
        assert len(writes) == 1
        rig.fake.after_txn, rig.fake.on_txn = (lambda _, response: response), (lambda _: None)
        assert len(await names(rig.store)) == (5 if landed else 0)


async def test_those_that_touch_the_same_are_decided_one_after_the_other() -> None:
    """Each requires what the other one deletes: one of them at most can be right."""
    async with rigged() as rig:
        left, right = thing("left"), thing("right")
        at = [await put(rig.store, each) for each in (left, right)]
        await names(rig.store)

        def removing_first(gone: pb.Resource, version: int, needs: pb.Resource) -> list[Operation]:
            return [Require(kind_of(needs), resource_key(needs), uid_of(needs)), removing(gone, str(version))]

        commits = [removing_first(left, at[0].revision, right), removing_first(right, at[1].revision, left)]
        outcomes = await at_once(rig.store, commits)
        assert sorted(type(each).__name__ for each in outcomes) == ["Position", "VersionConflict"]
        assert len(await names(rig.store)) == 1


async def test_deletions_and_creations_go_together() -> None:
    """And are told in order of their revisions."""
    async with rigged() as rig:
        old = [thing(f"old{index}", owner_uid="o") for index in range(3)]
        at = revisions(await at_once(rig.store, [[putting(each)] for each in old]))
        reader = await primed(rig.store)
        writes = counted(rig)

        async with trio.open_nursery() as nursery:
            for each, version in zip(old, at, strict=True):
                nursery.start_soon(remove, rig.store, each, str(version))
            nursery.start_soon(put, rig.store, thing("new", owner_uid="o"))
        assert len(writes) == 1
        await followed(reader, rig.store)
        assert sorted((name, deleted) for _, name, deleted in told(reader.changes)) == [
            ("new", False),
            *((f"old{index}", True) for index in range(3)),
        ]
        assert [name_of(each) for each in (await rig.store.list_by_owner("o"))[0]] == ["new"]


async def test_a_resource_of_another_commit_than_the_head_says_is_nothing_that_headway_wrote() -> None:
    """Its version would be another one in a snapshot than on a watch."""
    async with rigged() as rig:

        def displace(request: TxnRequest) -> None:
            for each in request.success:
                if each.request_put is not None and b"/resource/" in each.request_put.key:
                    each.request_put.value = b"\xc0\x3e\x05" + each.request_put.value

        rig.fake.on_txn = displace
        await put(rig.store, thing("a"))
        await until(lambda: rig.store._opened is not None and rig.store._opened._stopped is not None)
        raised = await refused(HeadwayError, names(rig.store), "a store that somebody else has written to")
        assert "as the head says" in str(raised)


async def test_a_store_of_an_earlier_program_is_read_and_gone_on_with() -> None:
    """Its head counted one commit, and no body had a place; its versions conflict, and its positions are too old."""
    async with rigged() as rig:
        at = await put(rig.store, given := thing("a"))
    told = [kv for _, events in rig.fake.state.history for event in events for kv in (event.kv, event.prev_kv)]
    for head in (rig.fake.state.keys[b"/staff/head"], *told):
        if head is not None and head.key == b"/staff/head":
            head.value = head.value.removeprefix(b"\x02")
            assert len(head.value) == 12
    async with serving_etcd(rig.fake) as (_, endpoint), EtcdBackend(f"etcd://{endpoint}/staff") as store:
        assert await names(store) == ["a"]
        former = at._replace(revision=etcd_revision(at.revision))
        await refused(HistoryCompacted, reading(store, after=former), "a position of an earlier program")
        uid = uid_of(given)
        await refused(VersionConflict, put(store, thing("a", uid=uid), str(former.revision)), "a version likewise")
        made = revisions(
            await at_once(store, [[putting(thing("a", uid=uid), str(at.revision))], [putting(thing("b"))]])
        )
        assert min(made) > at.revision
        assert not store.counts, "its history was read, too"

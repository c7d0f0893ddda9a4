"""Commits that share an etcd transaction: each has its own revision and outcome, as if it were alone."""

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
from headway.storage.etcd import etcd_revision
from headway.testing.conformance import (
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
    summary,
    thing,
    uid_of,
)
from tests.helpers.fake_etcd import serving_etcd
from tests.storage.etcd_kit import Rig, failing, followed, is_write, primed, rigged, until

Outcome = Position | HeadwayError | StorageError


def counted(rig: Rig) -> list[TxnRequest]:
    """Record all later writes that etcd receives, and return the list."""
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
    """Make commits in concurrent tasks, and return the outcome of each."""
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


async def test_concurrent_commits_share_a_transaction_and_have_separate_revisions() -> None:
    """Watchers receive each commit by itself, at this engine and at another one."""
    async with rigged() as rig, EtcdBackend(rig.url) as other:
        readers = [await primed(rig.store), await primed(other)]
        writes = counted(rig)
        committed = revisions(await at_once(rig.store, [[putting(thing(f"n{index:02}"))] for index in range(20)]))
        assert len(writes) == 1
        assert len(set(committed)) == 20
        assert {etcd_revision(each) for each in committed} == {rig.fake.state.revision}
        for store, reader in zip((rig.store, other), readers, strict=True):
            await followed(reader, store)
            wanted = sorted((revision, f"n{index:02}", False) for index, revision in enumerate(committed))
            assert summary(reader.changes) == wanted
            assert not any(change.more for change in reader.changes)
            found, at = await store.list(("conformance", "Thing"), EVERYTHING)
            assert [int(each.version) for each in found] == committed
            assert at.revision == max(committed)


async def test_snapshot_has_the_versions_of_commits_that_shared_a_transaction() -> None:
    """Each resource has the version that its writer received, and can be written at it."""
    async with rigged() as rig:
        given = [thing(f"n{index}") for index in range(5)]
        committed = revisions(await at_once(rig.store, [[putting(each)] for each in given]))
        async with EtcdBackend(rig.url) as other:
            found, _ = await other.list(("conformance", "Thing"), EVERYTHING)
            assert [int(each.version) for each in found] == committed
            version, uid = str(committed[3]), uid_of(given[3])
            await refused(
                VersionConflict,
                put(other, thing("n3", uid=uid), str(committed[2])),
                "a write at the version of another commit of the batch",
            )
            await put(other, thing("n3", "again", uid=uid), version)


async def test_watch_resumes_between_two_commits_of_one_transaction() -> None:
    """Their revisions are as good as any others."""
    async with rigged() as rig:
        committed = sorted(revisions(await at_once(rig.store, [[putting(thing(f"n{index}"))] for index in range(6)])))
        at = rig.store.position
        assert at.revision == committed[-1]
        await names(rig.store)
        for index, revision in enumerate(committed):
            reader = await reading(rig.store, after=at._replace(revision=revision))
            await reader.until(at.revision)
            assert [each.revision for each in reader.changes] == committed[index + 1 :]


async def test_each_commit_of_a_batch_has_its_own_outcome() -> None:
    """A change by another engine rejects one commit, and the others succeed."""
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
        assert len(writes) == 6, "expected one transaction for all, and then one for each commit"
        assert await names(rig.store) == ["contested", "n0", "n1", "n2", "n3"]


async def test_writes_of_one_fence_share_a_transaction_and_a_raised_fence_rejects_them_all() -> None:
    """The fence is compared once for all, and each writer gets its value (C8)."""
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
    ("status", "message"),
    [
        (Status.INVALID_ARGUMENT, "etcdserver: too many operations in txn request"),
        (Status.INVALID_ARGUMENT, "etcdserver: request is too large"),
        (Status.RESOURCE_EXHAUSTED, "grpc: received message larger than max (2100000 vs. 2097152)"),
    ],
)
async def test_batch_that_is_too_large_is_split(status: Status, message: str) -> None:
    """An etcd with a lower limit than the default takes the commits one by one."""
    async with rigged() as rig:
        rig.fake.on_txn = failing(status, message)
        writes = counted(rig)
        revisions(await at_once(rig.store, [[putting(thing(f"n{index}"))] for index in range(5)]))
        assert len(writes) == 6
        assert len(await names(rig.store)) == 5


@pytest.mark.parametrize("landed", [True, False])
async def test_unknown_outcome_is_reported_to_every_writer_of_a_batch(landed: bool) -> None:
    """Each writer gets it once, and nothing is sent again."""

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


async def test_conflicting_commits_are_decided_one_by_one() -> None:
    """Each requires what the other one deletes: at most one of them can succeed."""
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


async def test_deletions_and_creations_share_a_transaction() -> None:
    """Watchers receive them in order of their revisions."""
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
        assert sorted((name, deleted) for _, name, deleted in summary(reader.changes)) == [
            ("new", False),
            *((f"old{index}", True) for index in range(3)),
        ]
        assert [name_of(each) for each in (await rig.store.list_by_owner("o"))[0]] == ["new"]


async def test_resource_that_does_not_match_its_head_is_foreign() -> None:
    """A snapshot would give it another version than a watch."""
    async with rigged() as rig:

        def displace(request: TxnRequest) -> None:
            for each in request.success:
                if each.request_put is not None and b"/resource/" in each.request_put.key:
                    each.request_put.value = b"\xc0\x3e\x05" + each.request_put.value

        rig.fake.on_txn = displace
        await put(rig.store, thing("a"))
        await until(lambda: rig.store._session is not None and rig.store._session._stopped is not None)
        raised = await refused(HeadwayError, names(rig.store), "reading a store with foreign bytes")
        assert "as the head says" in str(raised)


async def test_store_of_an_earlier_version_can_be_opened_and_written() -> None:
    """Its head counted one commit, and its bodies had no index.

    Its versions conflict, and its positions are expired.
    """
    async with rigged() as rig:
        at = await put(rig.store, given := thing("a"))
    recorded = [kv for _, events in rig.fake.state.history for event in events for kv in (event.kv, event.prev_kv)]
    for head in (rig.fake.state.keys[b"/staff/head"], *recorded):
        if head is not None and head.key == b"/staff/head":
            head.value = head.value.removeprefix(b"\x02")
            assert len(head.value) == 12
    async with serving_etcd(rig.fake) as (_, endpoint), EtcdBackend(f"etcd://{endpoint}/staff") as store:
        assert await names(store) == ["a"]
        former = at._replace(revision=etcd_revision(at.revision))
        await refused(HistoryCompacted, reading(store, after=former), "a position of an earlier program")
        uid = uid_of(given)
        await refused(
            VersionConflict,
            put(store, thing("a", uid=uid), str(former.revision)),
            "a write at a version of an earlier program",
        )
        committed = revisions(
            await at_once(store, [[putting(thing("a", uid=uid), str(at.revision))], [putting(thing("b"))]])
        )
        assert min(committed) > at.revision
        assert not store.counts, "its history was read, too"

"""Commits to a fake etcd that fail, are too large, or race; and the fences and leases of the store."""

from pathlib import Path

import pytest
import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway._gen.etcdserverpb import LeaseKeepAliveRequest, RangeRequest, RangeResponse, TxnRequest, TxnResponse
from headway.errors import HeadwayError, InvalidArgument, OutcomeUnknown, StoreUnusable, Unavailable
from headway.storage import (
    EtcdBackend,
    Fence,
    FenceLowered,
    Operation,
    RequireOwnsNothing,
    StillOwns,
    TermEnded,
    VersionConflict,
    WrongUid,
)
from headway.storage.etcd import _session, _snapshot
from headway.testing.conformance import names, put, putting, read_back, refused, removing, thing, uid_of
from tests.helpers.etcd_server import need_etcd, single_member
from tests.storage.etcd_kit import failing, is_write, lagging, primed, rigged


@pytest.mark.parametrize(
    ("status", "message", "error", "says"),
    [
        (Status.INVALID_ARGUMENT, "etcdserver: request is too large", InvalidArgument, "--max-request-bytes"),
        (
            Status.RESOURCE_EXHAUSTED,
            "grpc: received message larger than max (3800384 vs. 2097152)",
            InvalidArgument,
            "--max-request-bytes",
        ),
        (Status.INVALID_ARGUMENT, "etcdserver: too many operations in txn request", InvalidArgument, "--max-txn-ops"),
        (Status.RESOURCE_EXHAUSTED, "etcdserver: too many requests", Unavailable, "too many requests"),
        (Status.UNAVAILABLE, "etcdserver: no leader", Unavailable, "no leader"),
        (Status.PERMISSION_DENIED, "etcdserver: permission denied", StoreUnusable, "refuses this user"),
        (Status.UNIMPLEMENTED, "Method not found", StoreUnusable, "not an etcd"),
    ],
)
async def test_rejected_commit_changes_nothing(
    status: Status, message: str, error: type[HeadwayError], says: str
) -> None:
    """An error that etcd returns before it begins counts as a rejection, and names the limit that was exceeded."""
    async with rigged() as rig:
        here = rig.store.position
        rig.fake.on_txn = failing(status, message)
        raised = await refused(error, put(rig.store, thing("a")), message)
        assert says in str(raised)
        assert await names(rig.store) == []
        assert rig.store.position == here
        await put(rig.store, thing("a"))


async def test_refused_commit_waits_for_no_further_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this process or etcd refuses it. Such a wait, of 20 ms, was the largest part of each refused write."""
    monkeypatch.setattr(_session, "_AGAIN", 3600.0)
    async with rigged() as rig:
        await put(rig.store, thing("a"))
        with trio.fail_after(30):
            # The mirror does not have the first commit yet, so etcd refuses the first of these.
            for _ in range(2):
                await refused(WrongUid, put(rig.store, thing("a")), "another incarnation")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (Status.UNAVAILABLE, "etcdserver: request timed out"),
        (Status.UNAVAILABLE, "etcdserver: leader changed"),
        (Status.DEADLINE_EXCEEDED, "context deadline exceeded"),
        (Status.UNKNOWN, "context canceled"),
        # The member that applies a write also returns this error, after the write was applied.
        (Status.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"),
        (Status.INTERNAL, "anything"),
    ],
)
@pytest.mark.parametrize("landed", [True, False])
async def test_commit_with_unknown_outcome_is_never_resent(status: Status, message: str, landed: bool) -> None:
    """The writer gets OutcomeUnknown, whether or not etcd has applied the commit."""
    writes = 0

    def fail(request: TxnRequest) -> None:
        nonlocal writes
        if is_write(request):
            writes += 1
            raise GRPCError(status, message)

    def fail_after(request: TxnRequest, response: TxnResponse) -> TxnResponse:
        fail(request)
        return response

    async with rigged() as rig:
        if landed:
            rig.fake.after_txn = fail_after
        else:
            rig.fake.on_txn = fail
        await refused(OutcomeUnknown, put(rig.store, thing("a")), message)
        rig.fake.after_txn, rig.fake.on_txn = (lambda _, response: response), (lambda _: None)
        assert await names(rig.store) == (["a"] if landed else [])
        assert writes == 1


async def test_failed_read_is_retried() -> None:
    """A member without a leader may soon have one, and a read can be repeated safely."""
    async with rigged() as rig:
        await put(rig.store, thing("a"))
        failures = 2

        def fail(_: RangeRequest, response: RangeResponse) -> RangeResponse:
            nonlocal failures
            if failures:
                failures -= 1
                raise GRPCError(Status.UNAVAILABLE, "etcdserver: no leader")
            return response

        rig.fake.on_range = fail
        assert await names(rig.store) == ["a"]
        assert failures == 0


async def test_canceled_commit_returns_its_outcome() -> None:
    """A commit in flight ends first. The caller's cancellation is delivered after it."""
    async with rigged() as rig:
        returned = False
        with trio.CancelScope() as scope:
            rig.fake.on_txn = lambda _: scope.cancel()
            await put(rig.store, thing("a"))
            returned = True
            await trio.lowlevel.checkpoint()
            raise AssertionError("a canceled caller continued after its checkpoint")
        assert returned
        assert await names(rig.store) == ["a"]


async def test_commit_is_decided_again_after_another_engine_changed_its_input() -> None:
    """The mirror may lag, but the transaction compares, so that a rejection reflects the current state."""
    async with rigged() as rig, EtcdBackend(rig.url) as other:
        at = await put(rig.store, resource := thing("a", "first"))
        await names(other)
        await put(rig.store, thing("a", "second", uid=uid_of(resource)), str(at.revision))
        await refused(
            VersionConflict, put(other, thing("a", "late", uid=uid_of(resource)), str(at.revision)), "a stale version"
        )
        at = await put(rig.store, thing("a", "third", uid=uid_of(resource)), str(rig.store.position.revision))
        await put(other, thing("a", "fourth", uid=uid_of(resource)), str(at.revision))
        found = await read_back(rig.store, resource)
        assert found is not None
        assert found.version == str(other.position.revision)


@pytest.mark.parametrize("what", ["a resource", "a fence", "what it would refuse"])
async def test_commit_compares_everything_it_was_decided_on(what: str) -> None:
    """An engine with a lagging mirror neither undoes the commits of another engine nor rejects what they allow."""
    async with rigged() as rig, EtcdBackend(rig.url) as other:
        at = await put(rig.store, resource := thing("a", "first"))
        fence = (await rig.store.raise_fence("c", "", 0, 0)).fence
        await names(other)
        rig.fake.muted = rig.fake.watches[-1]
        uid = uid_of(resource)
        second = await put(rig.store, thing("a", "second", uid=uid), str(at.revision))
        await rig.store.raise_fence("c", "", 0, 0)
        assert other.position.revision < second.revision, "the lagging engine has received the change"
        rig.fake.muted = None
        rig.fake.on_range = lagging(rig.fake)
        if what == "a resource":
            await refused(VersionConflict, put(other, thing("a", "late", uid=uid), str(at.revision)), "a stale version")
        elif what == "a fence":
            await refused(FenceLowered, put(other, thing("b"), fence=fence), "a write below the fence")
        else:
            await put(other, thing("a", "third", uid=uid), str(second.revision))
        assert await names(other) == ["a"]


async def test_removal_of_an_owner_sees_children_created_by_another_engine() -> None:
    """A new child keeps its owner, though the mirror has not received the child yet."""
    async with rigged() as rig, EtcdBackend(rig.url) as other:
        at = await put(rig.store, owner := thing("owner"))
        await names(other)
        rig.fake.muted = rig.fake.watches[-1]
        await put(rig.store, thing("child", owner_uid=uid_of(owner)))
        rig.fake.muted = None
        rig.fake.cancel_watches("etcdserver: no leader")
        asked: list[Operation] = [removing(owner, str(at.revision)), RequireOwnsNothing(uid_of(owner))]
        await refused(StillOwns, other.commit(asked), "the removal of an owner")
        assert await names(rig.store) == ["child", "owner"]


async def test_snapshot_of_many_pages_has_one_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion between two pages does not change the snapshot."""
    monkeypatch.setattr(_snapshot, "FIRST_PAGE", 3)
    monkeypatch.setattr(_snapshot, "PAGE", 4)
    async with rigged() as rig:
        await rig.store.commit([putting(thing(f"n{index:02}")) for index in range(20)])
        pages: list[RangeRequest] = []

        def delete_between(request: RangeRequest, response: RangeResponse) -> RangeResponse:
            if request.key.startswith(b"/staff/resource/"):
                if not pages:
                    rig.fake.delete(b"/staff/resource/conformance/Thing/default/default/n19")
                pages.append(request)
            return response

        rig.fake.compact(rig.fake.state.revision)
        rig.fake.on_range = delete_between
        async with EtcdBackend(rig.url) as other:
            assert len(await names(other)) == 20
        assert len(pages) == 6
        assert len({each.revision for each in pages}) == 1
        assert all(each.revision and each.limit <= 4 for each in pages)


async def test_lease_that_expires_during_a_write_rejects_it() -> None:
    """The holder may have stalled, so the transaction itself compares the key of the lease (C8)."""
    async with rigged() as rig:
        term = (await rig.store.acquire_lease("c", "a", 60)).held.lease.term
        fence = Fence("c", "", term, 0)
        await put(rig.store, thing("in time"), fence=fence)
        await names(rig.store)

        def end_it(request: TxnRequest) -> None:
            if is_write(request) and rig.fake.state.leases:
                rig.fake.end_lease(next(iter(rig.fake.state.leases)))

        rig.fake.on_txn = end_it
        await refused(FenceLowered, put(rig.store, thing("late"), fence=fence), "a write in an expired term")
        await refused(TermEnded, rig.store.keep_lease("c", "a", term), "renewing an expired lease")
        rig.fake.on_txn = lambda _: None
        assert await names(rig.store) == ["in time"]
        assert (await rig.store.acquire_lease("c", "b", 60)).held.lease.term > term + 1


async def test_write_of_a_former_holder_is_rejected_at_every_engine() -> None:
    """The writer's engine has not yet received that another engine granted the lease to a new holder."""
    async with rigged() as rig, EtcdBackend(rig.url) as other:
        term = (await rig.store.acquire_lease("c", "a", 60)).held.lease.term
        await put(other, thing("in time"), fence=Fence("c", "", term, 0))
        await names(other)
        rig.fake.muted = rig.fake.watches[-1]
        await rig.store.release_lease("c", "a", term)
        assert (await rig.store.acquire_lease("c", "b", 60)).held.lease.term == term + 2
        rig.fake.muted = None
        rig.fake.cancel_watches("etcdserver: no leader")
        late = put(other, thing("late"), fence=Fence("c", "", term, 7))
        await refused(FenceLowered, late, "a write of a term that was released")
        assert await names(rig.store) == ["in time"]


async def test_lease_request_with_unknown_outcome_is_repeated() -> None:
    """The repeated request is granted, whether or not the first one was."""

    def fail(request: TxnRequest, response: TxnResponse) -> TxnResponse:
        if is_write(request):
            raise GRPCError(Status.UNAVAILABLE, "etcdserver: request timed out")
        return response

    async with rigged() as rig:
        rig.fake.after_txn = fail
        await refused(OutcomeUnknown, rig.store.acquire_lease("c", "a", 60, "attempt"), "a lost answer")
        rig.fake.after_txn = lambda _, response: response
        acquired = await rig.store.acquire_lease("c", "a", 60, "attempt")
        assert acquired.acquired
        # The store revoked the etcd lease while the outcome of the acquisition was unknown.
        assert (await rig.store.acquire_lease("c", "b", 60)).held.lease.holder == "a"


async def test_late_request_does_not_end_a_term_in_use_at_another_engine() -> None:
    """Only the engine that made a renewal knows about it, but every engine knows about a raised fence."""
    async with rigged() as rig, EtcdBackend(rig.url) as other:
        term = (await rig.store.acquire_lease("c", "a", 60, "attempt")).held.lease.term
        await other.keep_lease("c", "a", term)
        assert not (await other.acquire_lease("c", "a", 60, "attempt")).acquired
        await other.raise_fence("c", "", term, 1)
        late = await rig.store.acquire_lease("c", "a", 60, "attempt")
        assert (late.acquired, late.held.lease.term) == (False, term)
        assert (await rig.store.acquire_lease("c", "a", 60, "another")).held.lease.term > term


async def test_lease_ends_with_its_etcd_lease_and_can_be_renewed_at_any_engine() -> None:
    """The lease is acquired at one engine and renewed at another. The etcd lease lasts at least the requested time."""
    async with rigged() as rig, EtcdBackend(rig.url) as other:
        term = (await rig.store.acquire_lease("c", "a", 7.2)).held.lease.term
        assert list(rig.fake.state.leases.values()) == [8]
        await other.keep_lease("c", "a", term)
        assert "/etcdserverpb.Lease/LeaseKeepAlive" in rig.fake.calls
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.wait_lease_ended, "c", term)
            await trio.testing.wait_all_tasks_blocked()
            rig.fake.end_lease(next(iter(rig.fake.state.leases)))
        assert (await other.list_leases())[0] == []


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (Status.UNAVAILABLE, "etcdserver: no leader", Unavailable),
        (Status.PERMISSION_DENIED, "etcdserver: permission denied", StoreUnusable),
    ],
)
async def test_failed_renewal_is_an_error_of_the_store(status: Status, message: str, error: type[HeadwayError]) -> None:
    """etcd fails after the store has confirmed that the lease is held. Its own status must not reach clients."""

    def fail(_: LeaseKeepAliveRequest) -> None:
        raise GRPCError(status, message)

    async with rigged() as rig:
        term = (await rig.store.acquire_lease("c", "a", 60)).held.lease.term
        rig.fake.on_keep_alive = fail
        raised = await refused(error, rig.store.keep_lease("c", "a", term), "a renewal that etcd rejects")
        assert message in str(raised)
        rig.fake.on_keep_alive = lambda _: None
        await rig.store.keep_lease("c", "a", term)


async def test_no_changes_are_kept_for_transactions_that_have_ended() -> None:
    """A recorded checkpoint and a raised fence change no resource. A recorded checkpoint has no head, either."""
    async with rigged() as rig:
        raised = await rig.store.raise_fence("c", "", 0, 0)
        await put(rig.store, thing("a"))
        for revision in range(3):
            await rig.store.record_checkpoint(raised.fence, revision)
        assert await names(rig.store) == ["a"]
        assert rig.store._session is not None
        assert rig.store._session.mirror.given == {}


async def test_closing_the_store_wakes_all_waiters_with_an_error() -> None:
    """A commit in flight still ends."""
    async with rigged() as rig:
        async with EtcdBackend(rig.url) as store, trio.open_nursery() as nursery:
            reader = await primed(store)
            await store.acquire_lease("c", "a", 60)

            async def receive() -> None:
                await refused(StoreUnusable, _forever(reader.next), "a watch of a closed store")

            async def wait() -> None:
                await refused(StoreUnusable, store.wait_lease_ended("c", 1), "waiting in a closed store")

            nursery.start_soon(receive)
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert store._session is not None
            store._session.stop(lambda: StoreUnusable("closed"))
        await refused(StoreUnusable, names(store), "a read of a closed store")


async def _forever(call: object) -> None:
    while True:
        await call()  # type: ignore[operator]


async def test_commit_with_too_many_operations_is_not_sent() -> None:
    """etcd takes 128 comparisons at once, two of them for the anchor and the quotas. The error gives the remedy."""
    sent: list[TxnRequest] = []
    async with rigged() as rig:
        rig.fake.on_txn = sent.append
        many = [putting(thing(f"n{number:03}")) for number in range(127)]
        raised = await refused(InvalidArgument, rig.store.commit(many), "a commit of 127 resources")
        assert "needs 129 operations" in str(raised)
        assert "accepts 128 in one transaction" in str(raised)
        assert "max_txn_ops=129" in str(raised)
        # An owner's index takes an operation, too.
        owned = [putting(thing(f"n{number:03}", owner_uid="o")) for number in range(64)]
        await refused(InvalidArgument, rig.store.commit(owned), "a commit of 64 owned resources")
        # Comparisons are counted separately.
        compared = [RequireOwnsNothing(f"owner-{number}") for number in range(128)]
        await refused(InvalidArgument, rig.store.commit([*compared, putting(thing("a"))]), "128 comparisons")
        assert not sent
        await rig.store.commit(many[1:])
        await rig.store.commit(owned[:1])
        assert len(sent) == 2
        assert len(await names(rig.store)) == 127


async def test_url_can_raise_the_limit_on_operations() -> None:
    """The members may have been started with a higher --max-txn-ops."""
    async with rigged() as rig, EtcdBackend(f"{rig.url}?max_txn_ops=129") as larger:
        await larger.commit([putting(thing(f"n{number:03}")) for number in range(127)])
        more = [putting(thing(f"m{number:03}")) for number in range(128)]
        await refused(InvalidArgument, larger.commit(more), "a commit of 128 resources")


async def test_operations_are_counted_as_etcd_counts_them(tmp_path: Path) -> None:
    """A commit is sent if and only if etcd would take it."""
    with single_member(need_etcd(), tmp_path) as member, trio.fail_after(40):
        url = f"etcd://{member.endpoint}/counted"
        async with EtcdBackend(url) as store, EtcdBackend(f"{url}?max_txn_ops=1000") as beyond:
            many = [putting(thing(f"n{number:03}")) for number in range(128)]
            raised = await refused(InvalidArgument, beyond.commit(many), "a commit above etcd's own limit")
            assert "max_txn_ops" in str(raised)
            await refused(InvalidArgument, store.commit(many[1:]), "a commit of 127 resources")
            await store.commit(many[2:])
            owned = [putting(thing(f"o{number:03}", owner_uid="o")) for number in range(63)]
            await store.commit(owned)

"""The `problem` of an open store in etcd."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway._gen.etcdserverpb import RangeRequest, TxnRequest
from headway.errors import OutcomeUnknown, Unavailable
from headway.storage import EtcdBackend, StoreProblem, find_problem
from headway.testing.conformance import names, put, thing
from tests.helpers.etcd_server import need_etcd, single_member
from tests.storage.etcd_kit import is_write, rigged

QUOTA = 4 << 20


async def test_store_reports_a_problem_while_etcd_has_no_leader() -> None:
    """A read through the leader detects it."""

    def no_leader(_: RangeRequest, __: object) -> object:
        raise GRPCError(Status.UNAVAILABLE, "etcdserver: no leader")

    async with rigged() as rig:
        assert await find_problem(rig.store) is None
        answer, rig.fake.on_range = rig.fake.on_range, no_leader  # type: ignore[assignment]  # it never returns
        found = await find_problem(rig.store)
        assert found is not None
        assert (found[0], type(found[1])) == (StoreProblem.AWAY, Unavailable)
        rig.fake.on_range = answer
        assert await find_problem(rig.store) is None
    found = await find_problem(rig.store)
    assert found is not None
    assert found[0] is StoreProblem.UNUSABLE


async def test_failed_write_is_followed_by_probe_writes_without_changes() -> None:
    """The probes begin after a failure, and end when etcd takes one."""
    asked: list[TxnRequest] = []

    def full(request: TxnRequest) -> None:
        if is_write(request):
            asked.append(request)
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")

    async with rigged() as rig:
        rig.fake.on_txn = full
        assert await find_problem(rig.store) is None
        assert not asked
        with pytest.raises(OutcomeUnknown):
            await put(rig.store, thing("a"))
        for _ in range(2):
            found = await find_problem(rig.store)
            assert found is not None
            assert found[0] is StoreProblem.AWAY
            assert "database space exceeded: compact its history" in str(found[1])
        rig.fake.on_txn = lambda _: None
        here = rig.store.position
        assert await find_problem(rig.store) is None
        assert rig.store.position == here
        assert await names(rig.store) == []


async def test_etcd_without_space_is_a_problem(tmp_path: Path) -> None:
    """A real etcd has raised its alarm; reads still work."""
    options = [f"--quota-backend-bytes={QUOTA}", "--max-txn-ops=10000"]
    with single_member(need_etcd(), tmp_path, options) as member, trio.fail_after(40):
        async with EtcdBackend(f"etcd://{member.endpoint}/full") as store:
            await put(store, thing("small"))
            with pytest.raises(OutcomeUnknown, match="database space exceeded"):
                await _fill(store)
            found = await find_problem(store)
            assert found is not None
            assert found[0] is StoreProblem.AWAY
            assert "database space exceeded" in str(found[1])
            assert "small" in await names(store)


async def _fill(store: EtcdBackend) -> None:
    for number in range(100):
        await put(store, thing(f"t{number}", "x" * 500_000))

"""Connections to etcd: several members, TLS, users, and a member that does not answer."""

from pathlib import Path
from typing import NoReturn

import trio
import trustme
from grpclib import GRPCError
from grpclib.const import Status

from headway.errors import StoreUnusable, Unavailable
from headway.rpc import server_tls
from headway.storage import EtcdBackend
from headway.testing.conformance import names, put, refused, thing
from tests.helpers.fake_etcd import FakeEtcd, serving_etcd
from tests.helpers.secret_files import write_secret
from tests.storage.etcd_kit import followed, primed, until


async def test_another_member_serves_after_one_has_failed() -> None:
    """The watch, reads and writes continue there. Nothing is repeated or lost."""
    async with serving_etcd() as (fake, lasting), trio.open_nursery() as nursery:
        ended = trio.CancelScope()

        async def serve(*, task_status: trio.TaskStatus[str]) -> None:
            with ended:
                async with serving_etcd(fake) as (_, endpoint):
                    task_status.started(endpoint)
                    await trio.sleep_forever()

        going = await nursery.start(serve)
        async with EtcdBackend(f"etcd://{going},{lasting}/staff") as store:
            reader = await primed(store)
            await put(store, thing("before"))
            await until(lambda: fake.watchers)
            ended.cancel()
            with trio.fail_after(20):
                await until(lambda: len(fake.watches) == 2)
                await put(store, thing("after"))
                assert await names(store) == ["after", "before"]
                await followed(reader, store)
            assert len(reader.changes) == 2


async def test_connection_uses_tls(tmp_path: Path) -> None:
    """The authority in the url verifies the members. Without it the connection fails with a certificate error."""
    authority = trustme.CA()
    certificate, ca = tmp_path / "certificate.pem", tmp_path / "ca.pem"
    issued = authority.issue_cert("etcd.test")
    write_secret(certificate, issued.private_key_and_cert_chain_pem.bytes())
    authority.cert_pem.write_to_path(str(ca))
    async with serving_etcd(tls=server_tls(certificate)) as (_, endpoint):
        async with EtcdBackend(f"etcd://{endpoint}/staff?ca={ca}&server_name=etcd.test") as store:
            await put(store, thing("a"))
            assert await names(store) == ["a"]
        with trio.fail_after(40):
            other = EtcdBackend(f"etcd://{endpoint}/staff?tls=1&server_name=etcd.test")
            error = await refused(Unavailable, other.__aenter__(), "a connection to a member with an unknown authority")
        assert "certificate" in str(error).lower()
        missing = EtcdBackend(f"etcd://{endpoint}/staff?ca={tmp_path}/missing.pem")
        assert "missing.pem" in str(await refused(StoreUnusable, missing.__aenter__(), "no authority"))


async def test_expired_user_token_is_replaced() -> None:
    """Simple tokens last for minutes: calls and the watch continue with the next one."""
    fake = FakeEtcd()
    fake.token = "first"
    async with serving_etcd(fake) as (_, endpoint):
        async with EtcdBackend(f"etcd://root:secret@{endpoint}/staff") as store:
            reader = await primed(store)
            await until(lambda: fake.watchers)
            fake.token = "second"
            fake.cancel_watches("etcdserver: no leader")
            await until(lambda: len(fake.watches) == 2)
            at = await put(store, thing("a"))
            await reader.until(at.revision)
            fake.token = "third"
            await put(store, thing("b"))
            assert await names(store) == ["a", "b"]
        wrong = EtcdBackend(f"etcd://root:wrong@{endpoint}/staff")
        error = await refused(StoreUnusable, wrong.__aenter__(), "a wrong password")
        assert "refuses user 'root'" in str(error)
        assert "wrong" not in str(error).removeprefix("etcd at ").partition(":")[0]


async def test_member_without_a_leader_is_replaced_by_another() -> None:
    """The member answers that it has no leader, so the next call goes to another one."""
    cut_off, whole = FakeEtcd(), FakeEtcd()
    cut_off.state = whole.state

    def refuse(*_: object) -> NoReturn:
        raise GRPCError(Status.UNAVAILABLE, "etcdserver: no leader")

    cut_off.on_txn = cut_off.on_range = refuse
    async with serving_etcd(cut_off) as (_, first), serving_etcd(whole) as (_, second):
        async with EtcdBackend(f"etcd://{first},{second}/staff") as store:
            await put(store, thing("a"))
            assert await names(store) == ["a"]
        asked = [path for path in cut_off.calls if "/etcdserverpb.KV/" in path]
        assert len(asked) == 1

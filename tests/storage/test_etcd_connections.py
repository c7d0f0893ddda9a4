"""Ways to etcd: its members in turn, TLS, users, and a member that doesn't answer."""

from pathlib import Path
from typing import NoReturn

import trio
import trustme
from grpclib import GRPCError
from grpclib.const import Status

from headway.errors import StoreUnusable, Unavailable
from headway.rpc import server_tls
from headway.storage import EtcdBackend
from headway.testing._conformance_tools import names, put, refused, thing
from tests.helpers.fake_etcd import FakeEtcd, serving_etcd
from tests.helpers.secret_files import write_secret
from tests.storage.etcd_kit import followed, primed, until


async def test_another_member_serves_when_one_has_gone() -> None:
    """The watch goes on there, and so do reads and writes; nothing is said twice, and nothing is lost."""
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


async def test_members_are_asked_over_tls(tmp_path: Path) -> None:
    """By the authority that the url names; without it their certificate is refused, and that is said."""
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
            error = await refused(Unavailable, other.__aenter__(), "a certificate that nobody has signed")
        assert "certificate" in str(error).lower()
        missing = EtcdBackend(f"etcd://{endpoint}/staff?ca={tmp_path}/missing.pem")
        assert "missing.pem" in str(await refused(StoreUnusable, missing.__aenter__(), "no authority"))


async def test_a_user_gets_a_token_and_a_new_one_when_that_has_run_out() -> None:
    """Simple tokens live for minutes: calls and the watch go on with the next one."""
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


async def test_a_member_without_a_leader_is_left_for_another() -> None:
    """It answers, and says that it can't: the next call goes elsewhere."""
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

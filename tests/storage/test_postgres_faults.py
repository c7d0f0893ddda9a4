"""A store in PostgreSQL whose server is killed, restarted, cut off, frozen or full: its answers, and its content."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from headway.errors import (
    HeadwayError,
    OutcomeUnknown,
    QuotaExceeded,
    RemoteError,
    Unavailable,
    WriteRejected,
)
from headway.resource import Kind, Position
from headway.storage import Fence, PostgresBackend, StoreMismatch, Within
from headway.storage.postgres import _follow, _schema, _session
from headway.storage.postgres._connection import Connection, NotPermitted, Rows, Statement
from headway.storage.postgres._standing import read_server, read_standing
from headway.testing.conformance import names, put, reading, refused, thing
from headway.testing.conformance.quotas import keep_quotas, quota
from tests.helpers.cancel_everywhere import cancel_at_every_step
from tests.helpers.loopback_wires import OUTSIDE
from tests.helpers.postgres_server import PostgresServer, postgres_server, wired
from tests.storage.etcd_kit import until

KIND = ("conformance", "Thing")
ENDS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headway'"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that the tests of this module kill and restart."""
    with postgres_server(tmp_path_factory.mktemp("own"), "fsync=off", "full_page_writes=off") as server:
        yield server


async def fill(store: PostgresBackend) -> None:
    """Use every connection that the store may have for reads."""
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(store.list, KIND, Within())
            nursery.start_soon(store.list_leases)


def crash(server: PostgresServer) -> None:
    os.kill(server.backends()[0], signal.SIGKILL)


def restart(server: PostgresServer) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("delivered", [False, True], ids=["before it is delivered", "before it is answered"])
async def test_broken_commit_has_an_unknown_outcome(server: PostgresServer, delivered: bool) -> None:
    """It is stored once or not at all, and the next commit goes on."""
    async with wired(server) as (url, wires), PostgresBackend(url) as store, PostgresBackend(url) as other:
        reader = await reading(other)
        await reader.until_snapshot()
        wires.break_at(b"pg_notify", delivered=delivered)
        await refused(OutcomeUnknown, put(store, thing("a")), "a commit whose connection was cut")
        await put(store, thing("b"))
        assert await names(store) == (["a", "b"] if delivered else ["b"])
        await reader.until(store.position.revision)
        assert [change.revision for change in reader.changes] == ([3, 4] if delivered else [3])


@pytest.mark.parametrize("fault", [crash, restart, lambda server: server.sql(ENDS)], ids=["crash", "restart", "ended"])
async def test_first_calls_after_a_fault_succeed(
    server: PostgresServer, fault: Callable[[PostgresServer], None]
) -> None:
    """No read and no write meets a connection that has ended, and a watch resumes after what a write has returned."""
    async with PostgresBackend(server.new_url()) as store:
        reader = await reading(store)
        await put(store, thing("a"))
        await fill(store)
        former = server.backends()
        fault(server)
        await until(lambda: not any(Path(f"/proc/{each}").exists() for each in former))
        await server.until_healthy()
        position = await put(store, thing("b"))
        await fill(store)
        assert await names(store) == ["a", "b"]
        resumed = await store.watch(KIND, Within(), position)
        resumed.close()
        await reader.until(position.revision)
        assert position.session == store.position.session


@pytest.mark.parametrize("fault", [crash, restart])
async def test_lease_counts_anew_after_a_fault(server: PostgresServer, fault: Callable[[PostgresServer], None]) -> None:
    """Promise 10: the lease that was held counts as held for a whole ttl, and can be renewed."""
    async with PostgresBackend(server.new_url()) as store:
        taken = await store.acquire_lease("a", "web-1", 10.0)
        server.sql(
            f"UPDATE {store._address.schema}.leases SET expires = clock_timestamp() + make_interval(secs => 0.1)"
        )
        former = server.backends()
        fault(server)
        await until(lambda: not any(Path(f"/proc/{each}").exists() for each in former))
        await server.until_healthy()
        [left], _ = await store.list_leases()
        assert left.remaining > 1.0
        await store.keep_lease("a", "web-1", taken.held.lease.term)


async def test_expired_term_ends_by_a_revision_that_is_stored(server: PostgresServer) -> None:
    """Also when nothing else is stored with it: the next commit has another revision."""
    async with PostgresBackend(server.new_url()) as store, PostgresBackend(store._address) as other:
        taken = await store.acquire_lease("a", "web-1", 0.1)
        await store.wait_lease_ended("a", taken.held.lease.term)
        with pytest.raises(HeadwayError):
            await store.commit([], Fence("a", "", taken.held.lease.term, 1))
        ended = store.position.revision
        assert ended == taken.position.revision + 1
        assert (await put(other, thing("a"))).revision > ended


async def test_frozen_engine_holds_up_nobody(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends its transaction. Another engine acquires its lease, and nothing of its term is stored then."""
    monkeypatch.setattr(_schema, "SETTINGS", _schema.SETTINGS.replace("5s", "300ms"))
    url = server.new_url()
    async with PostgresBackend(url) as frozen, PostgresBackend(url) as other, trio.open_nursery() as nursery:
        taken = await frozen.acquire_lease("a", "web-1", 0.5)
        stopped, resumed = trio.Event(), trio.Event()
        usual = Connection.ask

        async def ask(self: Connection, *statements: Statement) -> list[Rows]:
            if any("pg_notify" in each for each, _ in statements) and not stopped.is_set():
                stopped.set()
                await resumed.wait()
            return await usual(self, *statements)

        monkeypatch.setattr(Connection, "ask", ask)

        async def write_late() -> None:
            fence = Fence("a", "", taken.held.lease.term, 0)
            await refused(RemoteError, put(frozen, thing("a"), "", fence), "a commit of a transaction that was ended")

        nursery.start_soon(write_late)
        await stopped.wait()
        with trio.fail_after(5):
            await other.wait_lease_ended("a", taken.held.lease.term)
            assert (await other.acquire_lease("a", "web-2", 10.0)).acquired
        resumed.set()
    async with PostgresBackend(url) as store:
        assert await names(store) == []


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("53100", WriteRejected),
        ("40001", Unavailable),
        ("55P03", Unavailable),
        ("57014", Unavailable),
        ("XX000", Unavailable),
        ("P0001", Unavailable),
        ("42501", NotPermitted),
    ],
)
async def test_failed_statement_of_a_commit_has_written_nothing(
    server: PostgresServer, code: str, error: type[HeadwayError]
) -> None:
    """The disk is full, for example. It is known, and the next commit goes on."""
    url = server.new_url()
    async with PostgresBackend(url) as store:
        schema = store._address.schema
        server.sql(
            f"CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION 'it fails' USING ERRCODE = '{code}'; END $$;"
            f"CREATE TRIGGER fail BEFORE INSERT ON {schema}.resources EXECUTE FUNCTION {schema}.fail()"
        )
        assert type(await refused(error, put(store, thing("a")), "a commit")) is error
        server.sql(f"DROP TRIGGER fail ON {schema}.resources")
        await put(store, thing("a"))
        assert store.position.revision == 2


async def test_failed_commit_counts_for_no_rule(server: PostgresServer) -> None:
    """Quotas have counted it before it has failed."""
    async with PostgresBackend(server.new_url()) as store:
        keep_quotas(store)
        await put(store, quota(resources=2))
        await put(store, thing("a"))
        schema = store._address.schema
        server.sql(f"ALTER TABLE {schema}.resources ADD CONSTRAINT fails CHECK (name <> 'b')")
        await refused(Unavailable, put(store, thing("b")), "a commit")
        await put(store, thing("c"))
        await refused(QuotaExceeded, put(store, thing("d")), "a commit above the quota")


async def test_engines_begin_one_session_on_a_restarted_server(server: PostgresServer) -> None:
    """Whichever connects first begins it."""
    url = server.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        restart(server)
        await server.until_healthy()
        async with trio.open_nursery() as nursery:
            for each in (store, other):
                nursery.start_soon(fill, each)
        sessions = f"SELECT count(*) FROM {store._address.schema}.sessions"
        assert await trio.to_thread.run_sync(server.sql, sessions) == "3"


@pytest.fixture
def small(server: PostgresServer) -> Iterator[Path]:
    """A file system of one megabyte, with the tablespace "small"."""
    folder = server.data.parent / "small"
    folder.mkdir()
    options = f"size=1m,uid={server.data.stat().st_uid}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", folder], check=False).returncode:
        pytest.skip("no right to mount a small file system")
    try:
        server.sql(f"CREATE TABLESPACE small LOCATION '{folder}'")
        yield folder
        server.sql("DROP TABLESPACE small")
        server.sql("CHECKPOINT")
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def make_room(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=4m", folder], check=True)


async def test_full_disk_rejects_writes_until_there_is_room(server: PostgresServer, small: Path) -> None:
    async with PostgresBackend(f"{server.new_url()}&options=-c%20default_tablespace%3Dsmall") as store:
        stored: list[Position] = []

        async def write_much() -> None:
            for number in range(200):
                stored.append(await put(store, thing(f"n{number}", os.urandom(20_000).hex())))

        assert "No space left" in str(await refused(WriteRejected, write_much(), "a commit on a full disk"))
        assert len(await names(store)) == len(stored) > 0
        assert store.position == stored[-1]
        make_room(small)
        await put(store, thing("after"))
        schema = store._address.schema
    server.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.parametrize("code", ["53100", "40P01", "55P03", "XX000"])
async def test_follower_goes_on_when_it_cannot_delete_history(
    server: PostgresServer, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk does not end the store, nor does another error that may pass."""
    monkeypatch.setattr(_follow, "TRIM_STEP", 1)
    async with PostgresBackend(server.new_url(), max_changes=1) as store:
        schema = store._address.schema
        server.sql(
            f"CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION 'it fails' USING ERRCODE = '{code}'; END $$;"
            f"CREATE TRIGGER fail BEFORE DELETE ON {schema}.history EXECUTE FUNCTION {schema}.fail()"
        )
        for name in "abc":
            await put(store, thing(name))
        await until(lambda: store.counts["followers ended"] > 1)
        position = await put(store, thing("d"))
        await until(lambda: store._use().history.log.head == position.revision)


async def test_commit_that_the_replica_may_not_have_is_unknown(server: PostgresServer) -> None:
    """The server only warns when a canceled COMMIT has waited for a replica in vain."""
    async with PostgresBackend(server.new_url()) as store, trio.open_nursery() as nursery:
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        server.sql("SELECT pg_reload_conf()")
        try:
            await until(lambda: server.sql("SHOW synchronous_standby_names") == "nobody")
            late = put(store, thing("a"))
            nursery.start_soon(refused, OutcomeUnknown, late, "a commit that no replica has")
            canceled = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            await until(lambda: server.sql(canceled))
        finally:
            server.sql("ALTER SYSTEM RESET synchronous_standby_names")
            server.sql("SELECT pg_reload_conf()")


async def test_commit_that_waits_for_a_replica_holds_up_no_other_store(server: PostgresServer) -> None:
    local = f"{server.new_url()}&options=-c%20synchronous_commit%3Dlocal"
    async with (
        PostgresBackend(server.new_url()) as store,
        PostgresBackend(local) as other,
        trio.open_nursery() as nursery,
    ):
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        server.sql("SELECT pg_reload_conf()")
        try:
            await until(lambda: server.sql("SHOW synchronous_standby_names") == "nobody")
            nursery.start_soon(put, store, thing("a"))
            await until(lambda: server.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
            with trio.fail_after(5):
                await put(other, thing("b"))
        finally:
            server.sql("ALTER SYSTEM RESET synchronous_standby_names")
            server.sql("SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    "fails", ["SELECT 1/0, %(channel)s::text, %(payload)s::text", ENDS + " AND %(channel)s > %(payload)s"]
)
async def test_commit_that_cannot_notify_is_stored(
    server: PostgresServer, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others hear of it by themselves."""
    monkeypatch.setattr(_follow, "SILENCE", 0.1)
    async with PostgresBackend(server.new_url()) as store:
        monkeypatch.setattr(store._use().sql, "notify", fails)
        position = await put(store, thing("a"))
        with trio.fail_after(5):
            await store._use().until_reached(store._use().history, position.revision)
        await put(store, thing("b"))


@pytest.mark.parametrize("comes_back", [False, True], ids=["stays so", "is passed"])
async def test_store_that_was_restored_in_place_is_noticed(
    server: PostgresServer, comes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No engine that has seen more writes to it. Watches end with StoreMismatch, and another session begins."""
    monkeypatch.setattr(_follow, "SILENCE", 0.3)
    async with PostgresBackend(server.new_url()) as store:
        schema = store._address.schema
        await put(store, thing("a"))
        kept = store.position
        await put(store, thing("b"))
        lost = await put(store, thing("c"))
        reader = await reading(store)
        await reader.until_snapshot()
        server.sql(
            f"DELETE FROM {schema}.history WHERE revision > {kept.revision};"
            f"DELETE FROM {schema}.resources WHERE revision > {kept.revision};"
            f"UPDATE {schema}.store SET revision = {kept.revision}"
        )
        if comes_back:
            # Another engine, which begins a session.
            async with PostgresBackend(store._address) as other:
                for name in "uvwxyz":
                    await put(other, thing(name))
        else:
            await refused(Unavailable, put(store, thing("d")), "a commit after one that is lost")
        await refused(StoreMismatch, reader.until(2**60), "a watch of the lost history")
        await until(lambda: store.position.session != lost.session)
        await put(store, thing("e"))
        await refused(StoreMismatch, store.watch(KIND, Within(), lost), "a watch after a lost position")
        watch = await store.watch(KIND, Within(), kept)
        watch.close()


async def test_silent_server_delays_but_ends_nothing(server: PostgresServer) -> None:
    """A partition for longer than a lease: the calls under way end as they would have."""
    async with wired(server) as (url, wires), PostgresBackend(url) as store, trio.open_nursery() as nursery:
        taken = await store.acquire_lease("a", "web-1", 0.3)
        wires.cut("server", OUTSIDE)
        nursery.start_soon(put, store, thing("a"))
        await until(lambda: wires.held_back)
        await trio.sleep(0.5)
        wires.mend()
        await store.wait_lease_ended("a", taken.held.lease.term)
        assert (await store.acquire_lease("a", "web-2", 5.0)).acquired
    assert server.sql("SELECT 1") == "1"


async def test_calls_are_canceled_at_every_step(server: PostgresServer) -> None:
    """Promise 4: a commit is canceled before it begins or not at all. No task and no connection is left."""
    async with PostgresBackend(server.new_url()) as store:
        session = store._use()
        done: list[str] = []
        runs = 0

        async def program() -> None:
            nonlocal runs
            runs += 1
            name = f"n{runs}"
            await put(store, thing(name))
            done.append(name)
            await store.read(KIND, ("default", "default", name))
            await store.list(KIND, Within())
            taken = await store.acquire_lease("a", "web-1", 60.0)
            await store.keep_lease("a", "web-1", taken.held.lease.term)
            watch = await store.watch(KIND, Within())
            await watch.next()
            watch.close()
            await store.release_lease("a", "web-1", taken.held.lease.term)

        steps = await cancel_at_every_step(program, lambda: None)
        assert steps > 20
        await until(lambda: not session.readers._limiter.borrowed_tokens + session.scans._limiter.borrowed_tokens)
        assert not session.writer._pending
        assert set(done) <= set(await names(store))


async def test_settings_of_a_user_change_no_promise(server: PostgresServer) -> None:
    """Commits are on the disk before they are acknowledged, and a time zone makes no other server.

    Nothing fails because another statement is under way.
    """
    url = server.new_url()
    zone = f"{url}&options=-c%20timezone%3DAsia/Tokyo%20-c%20synchronous_commit%3Doff"
    zone += "%20-c%20lock_timeout%3D1%20-c%20default_transaction_isolation%3Dserializable"
    async with PostgresBackend(url) as one, PostgresBackend(zone) as other:
        for name, store in (("a", one), ("b", other)):
            await fill(store)
            await put(store, thing(name))
            for name, value in (
                ("synchronous_commit", "on"),
                ("lock_timeout", "0"),
                ("idle_in_transaction_session_timeout", "5s"),
                ("transaction_isolation", "read committed"),
            ):
                assert await store._use().readers.ask((f"SHOW {name}", {})) == [[(value,)]]
        assert not one.counts["other servers"] + other.counts["other servers"]


async def test_notification_of_another_program_ends_nothing(server: PostgresServer) -> None:
    """Anyone who may connect to the database can send one."""
    async with PostgresBackend(server.new_url()) as store:
        for number, payload in enumerate(("x", "\u0663", "9" * 25, "9" * 5000)):
            server.sql(f"SELECT pg_notify('{store._use().sql.channel}', '{payload}')")
            position = await put(store, thing(f"n{number}"))
            with trio.fail_after(5):
                await store._use().until_reached(store._use().history, position.revision)
        assert not store.counts["followers ended"]


async def replaced(store: PostgresBackend) -> None:
    """Let a store begin with a history that is another one."""
    session = store._use()
    connection = await session.connect()
    standing = await read_standing(connection, session.sql, session.where)
    assert standing is not None
    await session.begin(standing, connection, lambda: StoreMismatch("another history"))
    connection.drop()


async def test_snapshot_of_a_replaced_history_is_read_again(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresBackend(postgres.new_url()) as store:
        snapshots = store._use().snapshots
        usual, reads = snapshots.read, 0

        async def read(kind: Kind, within: Within) -> object:
            nonlocal reads
            reads += 1
            found = await usual(kind, within)
            if reads == 1:
                await replaced(store)
            return found

        monkeypatch.setattr(snapshots, "read", read)
        reader = await reading(store)
        await reader.until_snapshot()
        assert reads == 2


async def test_nobody_waits_for_a_revision_of_a_replaced_history(postgres: PostgresServer) -> None:
    async with PostgresBackend(postgres.new_url()) as store, trio.open_nursery() as nursery:
        session = store._use()
        nursery.start_soon(session.until_reached, session.history, 1000)
        await wait_all_tasks_blocked()
        lost = store.position.session
        await replaced(store)
        # An answer of the lost history that comes late.
        session.note(lost, 500)
        assert store.position.revision == 1


async def test_connections_to_a_former_server_are_used_no_more(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still serve them, when it was frozen and another one has taken its place."""
    monkeypatch.setattr(_follow, "SILENCE", 0.1)
    async with PostgresBackend(postgres.new_url()) as store:
        await put(store, thing("a"))
        await fill(store)
        former = set(postgres.backends())
        assert len(former) > 2

        async def read_another(connection: Connection) -> str:
            return f"another than {await read_server(connection)}"

        monkeypatch.setattr(_session, "read_server", read_another)
        # A connection has ended, so another one is made.
        (await store._use().connect()).drop()
        await fill(store)
        await put(store, thing("b"))
        await until(lambda: former.isdisjoint(postgres.backends()))


async def test_renewal_that_fails_when_it_is_committed_is_not_acknowledged(postgres: PostgresServer) -> None:
    """It is one statement without a COMMIT, so the server commits it behind its answer."""
    async with PostgresBackend(postgres.new_url()) as store:
        term = (await store.acquire_lease("a", "web-1", 30.0)).held.lease.term
        s = store._use().sql.schema
        postgres.sql(
            f"CREATE FUNCTION {s}.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''refused''; END';"
            f"CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON {s}.leases DEFERRABLE INITIALLY DEFERRED"
            f" FOR EACH ROW EXECUTE FUNCTION {s}.refuse()"
        )
        with pytest.raises(Unavailable, match="refused"):
            await store.keep_lease("a", "web-1", term)

"""Several engines on one store in PostgreSQL: what one does while another has not heard of it."""

from __future__ import annotations

import time

import pytest
import trio
import trio.testing

from headway.errors import QuotaExceeded
from headway.storage import PostgresBackend
from headway.storage._leases import TermEnded
from headway.storage.postgres import _follow
from headway.storage.postgres._connection import Connection, Rows, Statement
from headway.storage.postgres._follow import Follower
from headway.storage.postgres._requests import State
from headway.storage.postgres._writer import Writer
from headway.testing.conformance import EVERYTHING, KIND, names, put, reading, refused, thing
from headway.testing.conformance._tools import putting
from headway.testing.conformance.quotas import keep_quotas, quota
from tests.helpers.postgres_server import PostgresServer
from tests.storage.etcd_kit import until


async def test_commit_has_the_session_that_another_engine_has_begun(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own follower may not have read of that session. A watch resumes after the position nevertheless."""
    url = postgres.new_url()
    async with PostgresBackend(url) as store:
        publish, go_on = Follower._catch_up, trio.Event()

        async def late(self: Follower, connection: object) -> bool:
            await go_on.wait()
            return await publish(self, connection)  # type: ignore[arg-type]  # it passes what it gets

        monkeypatch.setattr(Follower, "_catch_up", late)
        async with PostgresBackend(url) as other:
            at = await put(store, thing("a"))
            raised = await store.raise_fence("c", "", 0, 0)
            assert at.session == other.position.session
            assert raised.position.session == other.position.session
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_begins_at, store, other.position.session)
                await trio.testing.wait_all_tasks_blocked(0.05)
                go_on.set()
            reader = await reading(store, after=at)
            await put(other, thing("b"))
            await reader.until((await store.list(KIND, EVERYTHING))[1].revision)
            assert list(reader.held) == [("default", "default", "b")]


async def _begins_at(store: PostgresBackend, session: str) -> None:
    assert (await (await reading(store)).until_snapshot()).session == session


async def test_engines_see_the_commits_of_each_other_in_one_order(postgres: PostgresServer) -> None:
    """Readers of all engines have received the same changes when the writers have ended."""
    url = postgres.new_url()
    async with PostgresBackend(url) as one, PostgresBackend(url) as two, PostgresBackend(url) as three:
        stores = (one, two, three)
        readers = [await reading(store) for store in stores]
        for reader in readers:
            await reader.until_snapshot()

        async def write(store: PostgresBackend, writer: str) -> None:
            for number in range(10):
                await put(store, thing(f"{writer}-{number}"))

        async with trio.open_nursery() as nursery:
            for number, store in enumerate(stores):
                for writer in range(4):
                    nursery.start_soon(write, store, f"w{number}-{writer}")
        head = (await one.list(KIND, EVERYTHING))[1].revision
        for reader in readers:
            await reader.until(head)
        assert readers[0].held == readers[1].held == readers[2].held
        assert len(await names(three)) == len(readers[0].held) == 120


async def test_rules_that_begin_anew_read_no_history(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be long, and the transaction has the lock of the store."""
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        keep_quotas(store)
        await put(store, quota(resources=10))
        since = store._use().sql.since
        usual, asked = Connection.ask, list[str]()

        async def ask(self: Connection, *statements: Statement) -> list[Rows]:
            asked.extend(each for each, _ in statements)
            return await usual(self, *statements)

        monkeypatch.setattr(Connection, "ask", ask)
        for name in "ab":
            await put(store, thing(name))
        assert since not in asked
        await put(other, thing("c"))
        await put(store, thing("d"))
        assert since in asked


async def test_term_that_is_renewed_is_not_replaced_by_a_late_request(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal waits for the transaction that has looked whether the term was renewed."""
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other, trio.open_nursery() as nursery:
        term = (await store.acquire_lease("a", "web-1", 60.0, "x")).held.lease.term
        usual, ends = Writer._read, list[str]()

        async def renew() -> None:
            try:
                await store.keep_lease("a", "web-1", term)
                ends.append("renewed")
            except TermEnded:
                ends.append("ended")

        async def read(self: Writer, *arguments: object) -> object:
            found = await usual(self, *arguments)  # type: ignore[arg-type]  # it passes what it gets
            if self is other._use().writer:
                nursery.start_soon(renew)
                waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                await until(lambda: ends or postgres.sql(waits) != "0")
            return found

        monkeypatch.setattr(Writer, "_read", read)
        assert (await other.acquire_lease("a", "web-1", 60.0, "x")).acquired
        await until(lambda: ends)
        assert ends == ["ended"]


async def test_lease_runs_by_the_clock_of_the_server(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by that of the engine that acquires it, which may be an hour slow."""
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now - 3600.0)
        term = (await store.acquire_lease("a", "web-1", 60.0)).held.lease.term
        refusal = await other.acquire_lease("a", "web-2", 60.0)
        assert not refusal.acquired
        assert 50.0 < refusal.held.remaining <= 60.0
        await store.keep_lease("a", "web-1", term)


async def test_engine_hears_at_once_of_commits_and_of_the_ends_of_terms(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would ask by itself much later."""
    monkeypatch.setattr(_follow, "SILENCE", 600.0)
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        term = (await other.acquire_lease("a", "web-1", 600.0)).held.lease.term
        with trio.fail_after(5):
            for name in "ab":
                position = await put(other, thing(name))
                await store._use().until_reached(store._use().history, position.revision)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.wait_lease_ended, "a", term)
                await until(lambda: store._use().leases._waiting)
                await other.release_lease("a", "web-1", term)


async def test_rules_miss_nothing_beside_a_transaction_that_asks_them_nothing(postgres: PostgresServer) -> None:
    """Such as one of a fence, which does not follow what others have committed before it."""
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        keep_quotas(store)
        await put(store, quota(resources=4))
        await put(store, thing("a"))
        for name in "bc":
            await put(other, thing(name))
        await store.raise_fence("c", "", 0, 0)
        await put(store, thing("d"))
        await refused(QuotaExceeded, put(store, thing("e")), "a commit above the quota")


async def test_fenced_commit_reads_the_fences_that_it_names(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its controller may have thousands of members. They count when a term begins."""
    async with PostgresBackend(postgres.new_url()) as store:
        fences = [(await store.raise_fence("c", f"{number}/4", 0, 0)).fence for number in range(4)]
        for number in range(4):
            await store.acquire_lease(f"c#{number}/4", "web-1", 60.0)
        usual, read = Writer._read, list[State]()

        async def noted(self: Writer, *arguments: object) -> tuple[State, object, object]:
            found = await usual(self, *arguments)  # type: ignore[arg-type]  # it passes what it gets
            read.append(found[0])
            return found

        monkeypatch.setattr(Writer, "_read", noted)
        await store.commit([putting(thing("a"))], fences[2]._replace(term=2))
        assert len(read[-1].fences) == len(read[-1].leases) == 1
        assert (await store.acquire_lease("c", "web-1", 60.0)).held.lease.term == 3
        assert len(read[-1].leases) == 1

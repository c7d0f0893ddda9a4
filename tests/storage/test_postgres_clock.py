"""Leases in PostgreSQL while the clock of the server is set forward and back."""

from __future__ import annotations

import pytest
import trio

from headway.storage import Fence, PostgresBackend
from headway.storage.postgres import _follow
from headway.storage.postgres._connection import Connection, Rows, Statement
from headway.testing.conformance import put, thing
from tests.helpers.postgres_server import PostgresServer
from tests.storage.etcd_kit import until

HOUR = 3600


class Clock:
    """The clock of a server, as its stores read it."""

    def __init__(self, server: PostgresServer, store: PostgresBackend) -> None:
        self._server = server
        s = store._use().sql
        server.sql(
            f"CREATE TABLE {s.schema}.moved AS SELECT 0 AS seconds;"
            f"CREATE FUNCTION {s.schema}.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS"
            f" 'SELECT clock_timestamp() + make_interval(secs => (SELECT seconds FROM {s.schema}.moved))'"
        )
        self._schema = s.schema
        # Those of the schema are shared by all that have it open.
        for name, statement in vars(s).items():
            if isinstance(statement, str):
                setattr(s, name, statement.replace("clock_timestamp()", f"{s.schema}.now()"))

    def move(self, seconds: int) -> None:
        """Set the clock forward, or back."""
        self._server.sql(f"UPDATE {self._schema}.moved SET seconds = seconds + {seconds}")


async def test_lease_outlives_a_clock_that_is_set_forward(postgres: PostgresServer) -> None:
    """Its holder counts by a clock of its own. Another one that waits gets it when it would have, or later."""
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        clock = Clock(postgres, store)
        term = (await store.acquire_lease("a", "web-1", 30.0)).held.lease.term
        await put(other, thing("a"))
        clock.move(HOUR)
        taken = await other.acquire_lease("a", "web-2", 30.0)
        assert (taken.acquired, taken.held.lease.holder) == (False, "web-1")
        assert taken.held.remaining > 20
        await store.keep_lease("a", "web-1", term)
        clock.move(HOUR)
        await put(store, thing("b"), "", Fence("a", "", term, 0))
        clock.move(HOUR)
        await store.keep_lease("a", "web-1", term)


async def test_clock_that_is_set_forward_is_noticed_without_a_commit(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_follow, "SILENCE", 0.1)
    async with PostgresBackend(postgres.new_url()) as store:
        clock = Clock(postgres, store)
        term = (await store.acquire_lease("a", "web-1", 30.0)).held.lease.term
        clock.move(HOUR)
        left = f"SELECT expires > {store._use().sql.schema}.now() FROM {store._use().sql.schema}.leases"
        await until(lambda: postgres.sql(left) == "t")
        # An engine that has seen nothing of it.
        async with PostgresBackend(store._address) as late:
            assert not (await late.acquire_lease("a", "web-2", 30.0)).acquired
        await store.keep_lease("a", "web-1", term)


async def test_no_lease_ends_while_another_task_renews_all(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower has noticed that the clock was set forward, but its renewal takes long, or fails."""
    monkeypatch.setattr(_follow, "SILENCE", 0.1)
    async with PostgresBackend(postgres.new_url()) as store:
        clock = Clock(postgres, store)
        await store.acquire_lease("a", "web-1", 30.0)
        renewing, go_on = trio.Event(), trio.Event()
        usual, renewal = Connection.ask, store._use().sql.renew_all

        async def ask(self: Connection, *statements: Statement) -> list[Rows]:
            if len(statements) == 1 and statements[0][0] == renewal:
                renewing.set()
                await go_on.wait()
            return await usual(self, *statements)

        monkeypatch.setattr(Connection, "ask", ask)
        clock.move(HOUR)
        await renewing.wait()
        assert not (await store.acquire_lease("a", "web-2", 30.0)).acquired
        go_on.set()


async def test_lease_of_a_holder_that_died_before_the_clock_was_set_back_ends(postgres: PostgresServer) -> None:
    url = postgres.new_url()
    async with PostgresBackend(url) as other:
        async with PostgresBackend(url) as store:
            clock = Clock(postgres, store)
            term = (await store.acquire_lease("a", "web-1", 1.0)).held.lease.term
        clock.move(-HOUR)
        with trio.fail_after(10):
            await other.wait_lease_ended("a", term)
            assert (await other.acquire_lease("a", "web-2", 1.0)).acquired

"""What one caller of a store in PostgreSQL may cost the others, and what is refused before it costs them anything."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from headway.errors import StoreUnusable
from headway.storage import PostgresBackend
from headway.storage.postgres._connection import Connection, Rows, Statement
from headway.testing.conformance import EVERYTHING, KIND, put, refused, thing
from tests.helpers.postgres_server import PostgresServer
from tests.storage.etcd_kit import until


class HeldLists:
    """The lists of all stores, which are held up until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = trio.Event()
        self.held = 0
        usual = Connection.ask

        async def ask(connection: Connection, *statements: Statement) -> list[Rows]:
            if any("ORDER BY partition" in each for each, _ in statements):
                self.held += 1
                await self.go_on.wait()
            return await usual(connection, *statements)

        monkeypatch.setattr(Connection, "ask", ask)


async def test_lists_do_not_hold_up_renewals(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, and however long they take."""
    async with PostgresBackend(postgres.new_url()) as store, trio.open_nursery() as nursery:
        await put(store, thing("a"))
        taken = await store.acquire_lease("a", "web-1", 60.0)
        lists = HeldLists(monkeypatch)
        for _ in range(8):
            nursery.start_soon(store.list, KIND, EVERYTHING)
            nursery.start_soon(store.watch, KIND, EVERYTHING)
        await until(lambda: lists.held)
        with trio.fail_after(5):
            await store.keep_lease("a", "web-1", taken.held.lease.term)
            await store.read(KIND, ("default", "default", "a"))
            await store.list_leases()
        lists.go_on.set()


async def test_connection_that_is_lent_while_the_store_closes_is_closed(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that waits for a connection opens none any more."""
    url = postgres.new_url()
    name = f"closed-{url[-12:]}"
    async with trio.open_nursery() as nursery:
        async with PostgresBackend(f"{url}&application_name={name}") as store:
            lists = HeldLists(monkeypatch)
            for _ in range(2):
                nursery.start_soon(store.list, KIND, EVERYTHING)
            await until(lambda: lists.held == 2)
            nursery.start_soon(refused, StoreUnusable, store.list(KIND, EVERYTHING), "a list of a store that closes")
            await trio.testing.wait_all_tasks_blocked()
        lists.go_on.set()
    left = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'"
    await until(lambda: postgres.sql(left) == "0")


async def test_plans_are_not_those_of_a_younger_table(postgres: PostgresServer) -> None:
    async with PostgresBackend(postgres.new_url()) as store:
        assert await store._use().readers.ask(("SHOW plan_cache_mode", {})) == [[("force_custom_plan",)]]

"""What one caller of a store in PostgreSQL may cost the others, and what is refused before it costs them anything."""

from __future__ import annotations

import math
import os

import pytest
import trio
import trio.testing

from headway.errors import CallerError, InvalidArgument, StoreUnusable
from headway.resource import Within
from headway.storage import Fence, PostgresBackend, Require, RequireOwnsNothing
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


UNFIT = {"a NUL": "a\0", "half of a pair": "a\ud800", "too long": os.urandom(3_000).hex()}


@pytest.mark.parametrize("text", UNFIT.values(), ids=UNFIT)
async def test_text_that_postgres_cannot_have_is_refused(postgres: PostgresServer, text: str) -> None:
    """It fails neither the store nor a call of somebody else, with which it would share a transaction."""
    async with PostgresBackend(postgres.new_url()) as store, trio.open_nursery() as nursery:
        key = ("default", "default", text)
        for what, call in {
            "a name": put(store, thing(text)),
            "a uid": put(store, thing("a", uid=text)),
            "an owner": put(store, thing("a", owner_uid=text)),
            "an owner to require": store.commit([RequireOwnsNothing(text)]),
            "a place to require": store.commit([Require(KIND, key, "")]),
            "a fence": put(store, thing("a"), "", Fence(text, "", 0, 0)),
            "a fence to raise": store.raise_fence("c", text, 0, 0),
            "a checkpoint": store.record_checkpoint(Fence(text, "", 0, 0), 0),
            "a lease": store.acquire_lease(text, "web-1", 1.0),
            "a holder": store.acquire_lease("a", text, 1.0),
            "an attempt": store.acquire_lease("a", "web-1", 1.0, text),
            "a lease to keep": store.keep_lease(text, "web-1", 1),
            "a holder to keep": store.keep_lease("a", text, 1),
            "a lease to release": store.release_lease(text, "web-1", 1),
            "a lease to wait for": store.wait_lease_ended(text, 1),
            "a key to read": store.read(KIND, key),
            "a kind to read": store.read(("conformance", text), ("default", "default", "a")),
            "a prefix": store.list(KIND, Within(name_prefix=text)),
            "a partition": store.list(KIND, Within(text)),
            "a key to go on behind": store.list(KIND, EVERYTHING, after=key),
            "an owner to list": store.list_by_owner(text),
            "a kind to watch": store.watch(("conformance", text), EVERYTHING),
        }.items():
            nursery.start_soon(refused, CallerError, call, what)
        nursery.start_soon(put, store, thing("b"))
        nursery.start_soon(store.read, KIND, ("default", "default", "b"))
    assert not store.counts


@pytest.mark.parametrize("ttl", [math.inf, math.nan, 1e300, 0.0])
async def test_ttl_that_postgres_cannot_have_is_refused(postgres: PostgresServer, ttl: float) -> None:
    async with PostgresBackend(postgres.new_url()) as store, trio.open_nursery() as nursery:
        nursery.start_soon(refused, InvalidArgument, store.acquire_lease("a", "web-1", ttl), "a lease")
        nursery.start_soon(put, store, thing("b"))


async def test_commit_that_takes_too_long_to_send_is_refused(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.storage.postgres._requests.MOST_BYTES", 1 << 20)
    async with PostgresBackend(postgres.new_url()) as store:
        await put(store, thing("a", "x" * 1_000_000))
        with pytest.raises(InvalidArgument, match="at most 1 MiB of resources, got"):
            await put(store, thing("b", "x" * 1_050_000))

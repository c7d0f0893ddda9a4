"""A store in PostgreSQL whose tables are put back to a backup while engines run on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import trio

from headway.errors import Unavailable
from headway.resource import Position
from headway.storage import PostgresBackend, StoreMismatch, Within
from headway.storage.postgres import _follow
from headway.storage.postgres._follow import Follower
from headway.testing.conformance import KIND, names, put, refused, thing
from tests.helpers.postgres_server import PostgresServer
from tests.storage.etcd_kit import until

TABLES = ("store", "sessions", "resources", "history", "fences", "leases")


def dumped(server: PostgresServer, schema: str) -> Iterator[None]:
    """Put the tables themselves back."""
    backup = server.data.parent / f"{schema}.sql"
    server.run("pg_dump", "-d", server.dsn(), "-n", schema, "--clean", "-f", str(backup))
    yield
    server.run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", server.dsn(), "-f", str(backup))


def copied(server: PostgresServer, schema: str) -> Iterator[None]:
    """Put the rows back into the tables."""
    server.sql(f"CREATE SCHEMA kept_{schema}")
    for table in TABLES:
        server.sql(f"CREATE TABLE kept_{schema}.{table} AS TABLE {schema}.{table}")
    yield
    server.sql(
        ";".join(
            f"DELETE FROM {schema}.{table}; INSERT INTO {schema}.{table} TABLE kept_{schema}.{table}"
            for table in TABLES
        )
    )


def undone(server: PostgresServer, schema: str) -> Iterator[None]:
    """Take the last commits back."""
    revision = server.sql(f"SELECT revision FROM {schema}.store")
    yield
    server.sql(
        f"DELETE FROM {schema}.history WHERE revision > {revision};"
        f"DELETE FROM {schema}.resources WHERE revision > {revision};"
        f"UPDATE {schema}.store SET revision = {revision}"
    )


async def write(store: PostgresBackend, name: str) -> Position:
    """Write a resource, and repeat what was refused because the tables were restored."""
    with trio.fail_after(10):
        while True:
            try:
                return await put(store, thing(name))
            except Unavailable:
                await trio.sleep(0.01)


@pytest.mark.parametrize("way", [dumped, copied, undone])
@pytest.mark.parametrize("writes", [True, False], ids=["writes", "only follows"])
async def test_engine_that_has_not_seen_the_lost_commits_begins_a_session(
    postgres: PostgresServer,
    way: Callable[[PostgresServer, str], Iterator[None]],
    writes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next commits have the revisions of the lost ones. Whoever has seen those finds that they are others."""
    monkeypatch.setattr(_follow, "SILENCE", 0.1)
    url = postgres.new_url()
    usual, goes_on, late = Follower._catch_up, trio.Event(), list[object]()

    async def catch_up(self: Follower, connection: object) -> bool:
        if self._session in late:
            await goes_on.wait()
        return await usual(self, connection)  # type: ignore[arg-type]  # it passes what it gets

    monkeypatch.setattr(Follower, "_catch_up", catch_up)
    async with PostgresBackend(url) as store:
        async with PostgresBackend(url) as other:
            kept = await put(other, thing("kept"))
            await store._use().until_reached(store._use().history, kept.revision)
            late.append(store._use())
            restoring = way(postgres, url.partition("schema=")[2])
            next(restoring)
            lost = await put(other, thing("lost"))
            assert lost.session == kept.session == store.position.session
        for _ in restoring:
            pass
        if not writes:
            goes_on.set()
            await until(lambda: store.counts["restored in place"])
        found = await write(store, "a")
        goes_on.set()
        assert found.session != lost.session
        while found.revision <= lost.revision:
            found = await write(store, f"b{found.revision}")
        await store._use().until_reached(store._use().history, found.revision)
        await refused(StoreMismatch, store.watch(KIND, Within(), lost), "a watch after a lost position")
        (await store.watch(KIND, Within(), kept)).close()
        assert "lost" not in await names(store)


async def test_engine_that_has_seen_lost_commits_writes_nothing_before_it_knows(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another engine has begun the session meanwhile. What this one would write rests on what is lost."""
    url = postgres.new_url()
    usual, goes_on, late = Follower._catch_up, trio.Event(), list[object]()

    async def catch_up(self: Follower, connection: object) -> bool:
        if self._session in late:
            await goes_on.wait()
        return await usual(self, connection)  # type: ignore[arg-type]  # it passes what it gets

    monkeypatch.setattr(Follower, "_catch_up", catch_up)
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        late.append(store._use())
        restoring = undone(postgres, url.partition("schema=")[2])
        next(restoring)
        for name in ("lost", "lost too", "lost as well"):
            await put(store, thing(name))
        for _ in restoring:
            pass
        await write(other, "a")
        await refused(Unavailable, put(store, thing("b")), "a commit that rests on lost commits")
        assert await names(other) == ["a"]
        goes_on.set()


async def test_store_whose_row_is_away_ends_no_engine(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while its rows are restored one after the other. It is neither empty nor a new one."""
    monkeypatch.setattr(_follow, "SILENCE", 0.1)
    async with PostgresBackend(postgres.new_url()) as store:
        schema = store._use().sql.schema
        await put(store, thing("a"))
        postgres.sql(f"CREATE TABLE {schema}.kept AS TABLE {schema}.store; DELETE FROM {schema}.store")
        for call in (
            store.read(KIND, ("default", "default", "a")),
            store.list(KIND, Within()),
            store.list_part(KIND, Within(), None, 1),
            store.list_by_owner("uid"),
            store.list_leases(),
            store.watch(KIND, Within()),
            store.watch(KIND, Within(), store.position),
            put(store, thing("b")),
        ):
            await refused(Unavailable, call, "a call without the row of the store")
        await until(lambda: store.counts["followers ended"])
        postgres.sql(f"INSERT INTO {schema}.store TABLE {schema}.kept")
        await write(store, "b")
        assert await names(store) == ["a", "b"]

"""What a store costs PostgreSQL over time: history, and watchers that never read. tests/postgres has its dead rows."""

import pytest
import trio

from headway.errors import HistoryCompacted
from headway.storage import PostgresBackend, Watch
from headway.storage.postgres._connection import Connection
from headway.storage.postgres._follow import Follower
from headway.testing.conformance import EVERYTHING, KIND, fill, put, reading, thing, uid_of
from tests.helpers.postgres_server import PostgresServer
from tests.storage.etcd_kit import until


async def test_watchers_that_never_read_cost_the_server_nothing(postgres: PostgresServer) -> None:
    """No transaction of theirs is open, however long they wait with a snapshot that was read in part."""
    url = postgres.new_url()
    name = f"watched-{url[-12:]}"
    async with PostgresBackend(f"{url}&application_name={name}") as store:
        await fill(store, 3_000)
        watches = [await store.watch(KIND, EVERYTHING) for _ in range(20)]
        await watches[0].next()
        await put(store, thing("later"))
        listed = await trio.to_thread.run_sync(
            postgres.sql,
            f"SELECT count(*), count(backend_xmin) FROM pg_stat_activity WHERE application_name = '{name}'",
        )
        connections, open_snapshots = map(int, listed.split("|"))
        assert connections <= 6
        assert open_snapshots == 0


async def test_slowest_snapshot_is_given_up_for_others(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of all snapshots that wait have one bound. Its reader is told, and can begin anew."""
    monkeypatch.setattr("headway.storage.postgres._snapshots.MOST_BYTES", 500_000)
    async with PostgresBackend(postgres.new_url()) as store:
        await fill(store, 600)
        slow = await store.watch(KIND, EVERYTHING)
        await slow.next()
        others = [await reading(store) for _ in range(4)]
        await others[-1].until_snapshot()
        assert len(others[-1].held) == 600
        with pytest.raises(HistoryCompacted, match="a snapshot was read too slowly"):
            await _read_to_the_end(slow)


async def _read_to_the_end(watch: Watch) -> None:
    while True:
        await watch.next()


async def test_history_is_deleted_beyond_its_bound(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.storage.postgres._follow.TRIM_STEP", 10)
    url = postgres.new_url(max_changes=20)
    async with PostgresBackend(url) as store:
        at = await put(store, made := thing("a"))
        for _ in range(100):
            at = await put(store, thing("a", uid=uid_of(made)), str(at.revision))
        schema = url.partition("schema=")[2].partition("&")[0]
        await until(lambda: int(postgres.sql(f"SELECT count(*) FROM {schema}.history")) <= 32)
        floor = int(await trio.to_thread.run_sync(postgres.sql, f"SELECT floor FROM {schema}.store"))
        assert at.revision - 32 <= floor <= at.revision - 20
        # An engine with a longer history, which has deleted less.
        await store._use().readers.ask((store._use().sql.raise_floor, {"floor": 5}))
        assert int(await trio.to_thread.run_sync(postgres.sql, f"SELECT floor FROM {schema}.store")) >= floor


async def test_engine_that_has_missed_deleted_history_tells_its_watchers(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They get no gap."""
    monkeypatch.setattr("headway.storage.postgres._follow.TRIM_STEP", 1)
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url, max_changes=2) as other:
        reader = await reading(store)
        await reader.until_snapshot()
        catch_up, go_on, mine = Follower._catch_up, trio.Event(), store._use()

        async def late(self: Follower, connection: Connection) -> bool:
            if self._session is mine:
                await go_on.wait()
            return await catch_up(self, connection)

        monkeypatch.setattr(Follower, "_catch_up", late)
        for number in range(20):
            await put(other, thing(f"n{number}"))
        await until(lambda: postgres.sql(f"SELECT floor FROM {store._address.schema}.store") > "10")
        go_on.set()
        with pytest.raises(HistoryCompacted):
            await reader.until(other.position.revision)
        assert len((await store.list(KIND, EVERYTHING))[0]) == 20


async def test_watcher_behind_deleted_history_is_told(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another engine may have deleted what this one would still keep."""
    monkeypatch.setattr("headway.storage.postgres._session.IN_MEMORY", 1)
    async with PostgresBackend(postgres.new_url()) as store:
        reader = await reading(store)
        await reader.until_snapshot()
        for number in range(5):
            await put(store, thing(f"n{number}"))
        await store._use().until_reached(store._use().history, store.position.revision)
        await store._use().readers.ask((store._use().sql.raise_floor, {"floor": 4}))
        await store._use().readers.ask((store._use().sql.trim, {"floor": 4, "most": 10}))
        with pytest.raises(HistoryCompacted):
            await reader.until(store.position.revision)


@pytest.mark.parametrize(("bounds", "kept"), [({"max_bytes": 100_000}, 8), ({"max_age": 0.5}, 1)], ids=["bytes", "age"])
async def test_history_is_deleted_beyond_its_bytes_and_its_age(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, float], kept: int
) -> None:
    """However few its revisions are, and also while nothing is written."""
    monkeypatch.setattr("headway.storage.postgres._follow.SILENCE", 0.1)
    url = postgres.new_url(**bounds)
    async with PostgresBackend(url) as store:
        at = await put(store, made := thing("a"))
        for _ in range(20):
            at = await put(store, thing("a", "x" * 15_000, uid=uid_of(made)), str(at.revision))
        await until(lambda: int(postgres.sql(f"SELECT count(*) FROM {store._address.schema}.history")) <= kept)

"""What a store costs PostgreSQL over time: dead rows, history, and watchers that never read."""

from collections.abc import Iterator

import pytest
import trio

from headway.errors import HistoryCompacted
from headway.storage import PostgresBackend, Watch
from headway.testing.conformance import EVERYTHING, KIND, fill, put, reading, thing, uid_of
from tests.helpers.postgres_server import QUICK, PostgresServer, postgres_server
from tests.storage.etcd_kit import until

UPDATES = 6_000


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that looks every second for what to clean up, instead of every minute: time is short here."""
    with postgres_server(tmp_path_factory.mktemp("busy"), *QUICK, "autovacuum_naptime=1s") as server:
        yield server


def grown(server: PostgresServer, url: str) -> dict[str, tuple[int, int, int]]:
    """Return the size of each table in bytes, the share of its updates that were HOT in percent, and its rows."""
    listed = server.sql(
        "SELECT relname, pg_table_size(relid), 100 * n_tup_hot_upd / greatest(n_tup_upd, 1), n_live_tup"
        f" FROM pg_stat_user_tables WHERE schemaname = '{url.partition('schema=')[2].partition('&')[0]}'"
    )
    rows = [line.split("|") for line in listed.splitlines()]
    return {name: (int(size), int(hot), int(rows)) for name, size, hot, rows in rows}


@pytest.mark.wide
async def test_tables_stay_small_under_updates_of_one_key(busy: PostgresServer) -> None:
    """Rows are replaced in their pages, and what history no longer has makes room for what comes."""
    url = busy.new_url(max_changes=500)
    async with PostgresBackend(url) as store:
        at = await put(store, thing("a", uid="u"))
        fence = (await store.raise_fence("c", "", 0, 0)).fence
        halfway: dict[str, tuple[int, int, int]] = {}
        for number in range(UPDATES):
            at = await put(store, thing("a", f"{number}" + "x" * 200, uid="u"), str(at.revision))
            await store.record_checkpoint(fence, at.revision) if number % 10 == 0 else None
            if number == UPDATES // 2:
                halfway = await trio.to_thread.run_sync(grown, busy, url)
        # It counts and cleans up in its own time.
        await until(lambda: grown(busy, url)["history"][2] <= 3_000, 30)
    now = grown(busy, url)
    for table in ("store", "resources", "fences"):
        assert now[table][0] < 500_000, (table, now)
        assert now[table][1] > 80, (table, now)
    assert now["history"][0] < 2 * halfway["history"][0], (halfway, now)


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

"""The tables of a store stay small under a thousand updates a second, most of them of one key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from headway.storage import PostgresBackend
from headway.testing.conformance import EVERYTHING, KIND, put, thing
from tests.helpers.postgres_server import QUICK, PostgresServer, postgres_server
from tests.storage.etcd_kit import until

SECONDS = float(os.environ.get("HEADWAY_GROWTH_SECONDS", "20"))
"""The seconds of updates. The demand on the store is ten minutes."""

RATE = 1_000
"""The updates in a second."""

ROW = 300
"""The bytes of a version of a row, about."""

OTHERS = 7
"""The number of other keys. One key alone has a transaction for each update, and they may be too slow for the rate."""

MAX_CHANGES = min(100_000, int(RATE * SECONDS / 4))
"""The history that the store keeps: by default 100,000 changes, but a short run would not fill that."""

pytestmark = pytest.mark.postgres


class Grown(NamedTuple):
    """A table at a moment: bytes of the table and of its indexes, live and dead rows, and the share of HOT updates."""

    table: int
    indexes: int
    live: int
    dead: int
    hot: int


class Load:
    """The updates of one key, and of others if they are behind the rate."""

    def __init__(self, store: PostgresBackend) -> None:
        self._store = store
        self._began = trio.current_time()
        self.made = 0
        self.of_one = 0

    async def update_one(self) -> None:
        """Update the key, and record a checkpoint from time to time, as a controller does."""
        fence = (await self._store.raise_fence("c", "", 0, 0)).fence
        at = await put(self._store, thing("one", uid="u"))
        while True:
            await self._wait(0)
            at = await put(self._store, thing("one", f"{self.made}" + "x" * 200, uid="u"), str(at.revision))
            self.made += 1
            self.of_one += 1
            if self.of_one % 100 == 0:
                await self._store.record_checkpoint(fence, at.revision)

    async def update_other(self, number: int) -> None:
        """Update another key while the updates are behind the rate."""
        name, at = f"other{number}", await put(self._store, thing(f"other{number}", uid="u"))
        while True:
            await self._wait(RATE // 20)
            at = await put(self._store, thing(name, f"{self.made}" + "x" * 200, uid="u"), str(at.revision))
            self.made += 1

    async def _wait(self, behind: int) -> None:
        # Until fewer updates than are due were made, by this number.
        await trio.sleep_until(self._began + (self.made + behind) / RATE)


def tables(server: PostgresServer, schema: str) -> dict[str, Grown]:
    """Return what each table has grown to."""
    listed = server.sql(
        "SELECT relname, pg_table_size(relid), pg_indexes_size(relid), n_live_tup, n_dead_tup,"
        f" 100 * n_tup_hot_upd / greatest(n_tup_upd, 1) FROM pg_stat_user_tables WHERE schemaname = '{schema}'"
    )
    rows = [line.split("|") for line in listed.splitlines()]
    return {name: Grown(*map(int, numbers)) for name, *numbers in rows}


@pytest.mark.timeout(SECONDS + 120)
async def test_tables_stay_small_under_a_thousand_updates_a_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are replaced in their pages, and what history no longer has makes room for what comes."""
    # A short run has no time for the usual minute between two looks at what to clean up.
    naptime = f"autovacuum_naptime={max(1, min(60, int(SECONDS / 10)))}s"
    with postgres_server(tmp_path, *QUICK, naptime) as server:
        url = server.new_url(max_changes=MAX_CHANGES)
        seen: list[dict[str, Grown]] = []
        async with PostgresBackend(url) as store, trio.open_nursery() as nursery:
            schema = store._address.schema
            idle = await store.watch(KIND, EVERYTHING)
            load = Load(store)
            nursery.start_soon(load.update_one)
            for number in range(OTHERS):
                nursery.start_soon(load.update_other, number)
            for step in range(1, 21):
                await trio.sleep(SECONDS / 20)
                now = await trio.to_thread.run_sync(tables, server, schema)
                floor = await trio.to_thread.run_sync(server.sql, f"SELECT floor FROM {schema}.store")
                seen.append(now)
                with capsys.disabled():
                    print(
                        f"\n{SECONDS * step / 20:.0f} s: {load.made} updates, {load.of_one} of one key, floor {floor}"
                    )
                    for name in ("store", "resources", "history", "fences"):
                        print(f"  {name}: {now[name]}")
            nursery.cancel_scope.cancel()
            idle.close()
            # The server counts in its own time.
            await until(lambda: tables(server, schema)["history"].live < 1.5 * MAX_CHANGES + 2_000, 60)
        last, halfway = tables(server, schema), seen[len(seen) // 2]
    # An open snapshot, such as that of an ANALYZE, keeps all that is written meanwhile until the next vacuum.
    written = load.made * ROW
    for name in ("store", "resources", "fences"):
        assert last[name].table + last[name].indexes < written / 10, (name, last)
        assert last[name].hot > 80, (name, last)
    assert last["history"].table < 1.5 * halfway["history"].table, (halfway, last)
    assert last["history"].indexes < 1.5 * halfway["history"].indexes, (halfway, last)
    # Fewer updates would prove little.
    assert load.made > RATE * SECONDS / 4

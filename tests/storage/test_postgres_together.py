"""Several engines on one store in PostgreSQL: what one does while another has not heard of it."""

import pytest
import trio
import trio.testing

from headway.storage import PostgresBackend
from headway.storage.postgres._connection import Connection, Rows, Statement
from headway.storage.postgres._follow import Follower
from headway.testing.conformance import EVERYTHING, KIND, names, put, reading, thing
from headway.testing.conformance.quotas import keep_quotas, quota
from tests.helpers.postgres_server import PostgresServer


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
    async with PostgresBackend(postgres.new_url()) as store:
        keep_quotas(store)
        await put(store, quota(resources=10))
        since = store._use().sql.since
        usual, asked = Connection.ask, list[str]()

        async def ask(self: Connection, *statements: Statement) -> list[Rows]:
            asked.extend(each for each, _ in statements)
            return await usual(self, *statements)

        monkeypatch.setattr(Connection, "ask", ask)
        await put(store, thing("a"))
        assert since not in asked
        await put(store, thing("b"))
        assert since in asked

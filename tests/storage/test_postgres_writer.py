"""The writer of a store in PostgreSQL: who shares a transaction, what is published at once, and what is read before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

import headway
from headway.errors import OutcomeUnknown, QuotaExceeded, StoreUnusable
from headway.events import ignore
from headway.storage import PostgresBackend
from headway.storage.postgres import _session, _writer
from headway.storage.postgres._connection import Connection, Rows, Statement
from headway.storage.postgres._follow import Follower
from headway.storage.postgres._requests import Request, State
from headway.storage.postgres._writer import MOST_IN_A_BATCH, Turns, Writer
from headway.testing.conformance import KIND, names, put, reading, refused, thing
from headway.testing.conformance._tools import removing
from headway.testing.conformance.quotas import keep_quotas, quota
from tests.helpers.postgres_server import PostgresServer
from tests.helpers.resources import Team
from tests.storage.etcd_kit import until

KEY = ("default", "default", "a")


class TestTurns:
    """When half of the writers go first."""

    def test_half_goes_first_if_the_store_waits_for_the_writers(self) -> None:
        turns = Turns()
        turns.begin(64, 10.0)
        turns.end(10.002)
        turns.submitted = 10.005
        assert turns.most(64, 10.005, idle=True) == 32

    def test_both_halves_stay_apart(self) -> None:
        turns = Turns()
        turns.submitted = 10.0
        for at in (10.0, 10.002, 10.004):
            assert turns.most(64 if at == 10.0 else 32, at, idle=at == 10.0) == 32
            turns.begin(32, at)
            turns.end(at + 0.002)
            turns.submitted = at + 0.0015

    def test_all_go_together_if_they_wait_for_the_store(self) -> None:
        """With a slow disk, the number of transactions decides, and not the processor."""
        turns = Turns()
        turns.begin(64, 10.0)
        turns.end(10.008)
        turns.submitted = 10.010
        assert turns.most(64, 10.010, idle=True) == MOST_IN_A_BATCH

    def test_halves_join_if_both_wait_for_the_store(self) -> None:
        turns = Turns()
        assert turns.most(64, 10.0, idle=True) == 32
        turns.begin(32, 10.0)
        turns.submitted = 10.001
        turns.end(10.008)
        assert turns.most(32, 10.008, idle=False) == MOST_IN_A_BATCH

    def test_one_writer_is_never_halved_away(self) -> None:
        assert Turns().most(1, 10.0, idle=True) == 1


class HeldFollower:
    """The follower of one store, which reads nothing until it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: PostgresBackend) -> None:
        self.go_on = trio.Event()
        self.reads = 0
        usual = Follower._catch_up

        async def catch_up(follower: Follower, connection: Connection) -> bool:
            if follower._session is store._use():
                await self.go_on.wait()
                self.reads += 1
            return await usual(follower, connection)

        monkeypatch.setattr(Follower, "_catch_up", catch_up)


async def test_commit_is_published_before_its_writer_continues(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresBackend(postgres.new_url()) as store:
        reader = await reading(store)
        await reader.until_snapshot()
        held = HeldFollower(monkeypatch, store)
        for name in "abc":
            position = await put(store, thing(name))
            assert store._use().history.log.head == position.revision
        await reader.until(position.revision)
        assert sorted(key[-1] for key in reader.held) == ["a", "b", "c"]
        assert not held.reads
        held.go_on.set()


async def test_commit_behind_one_that_is_not_known_is_published_in_order(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        reader = await reading(store)
        await reader.until_snapshot()
        held = HeldFollower(monkeypatch, store)
        before = store._use().history.log.head
        await put(other, thing("a"))
        position = await put(store, thing("b"))
        assert store._use().history.log.head == before
        held.go_on.set()
        await reader.until(position.revision)
        assert sorted(key[-1] for key in reader.held) == ["a", "b"]


async def test_follower_that_reads_beside_the_writer_repeats_nothing(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has asked for may have been published meanwhile."""
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        reader = await reading(store)
        await reader.until_snapshot()
        answered, go_on = trio.Event(), trio.Event()
        usual = Connection.ask

        async def ask(self: Connection, *statements: Statement) -> list[Rows]:
            found = await usual(self, *statements)
            if statements[0][1] == {} and any("former_version" in each for each, _ in statements):
                answered.set()
                await go_on.wait()
            return found

        held = HeldFollower(monkeypatch, store)
        first = await put(other, thing("a"))
        last = await put(other, thing("b"))
        monkeypatch.setattr(Connection, "ask", ask)
        held.go_on.set()
        await answered.wait()
        # As the writer does with a commit whose answer comes after that of the follower.
        store._use().history.publish([], first.revision)
        go_on.set()
        await reader.until(last.revision)
        assert sorted(key[-1] for key in reader.held) == ["b"]


async def test_deletion_is_published_with_what_was_deleted(postgres: PostgresServer) -> None:
    async with PostgresBackend(postgres.new_url()) as store:
        reader = await reading(store)
        await reader.until_snapshot()
        given = thing("a")
        position = await put(store, given)
        position = await store.commit([removing(given, str(position.revision))])
        await reader.until(position.revision)
        assert sorted(key[-1] for key in reader.held) == []


async def test_rules_follow_what_the_engine_has_not_heard_of(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        keep_quotas(store)
        await put(store, quota(resources=3))
        await put(store, thing("a"))
        held = HeldFollower(monkeypatch, store)
        for name in "bc":
            await put(other, thing(name))
        await refused(QuotaExceeded, put(store, thing("d")), "a commit above the quota")
        held.go_on.set()


async def test_resource_that_was_not_met_is_believed_absent(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_session, "MOST_MET", 2)
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        await put(other, thing("a"))
        assert (await store.read_optimistic(KIND, KEY))[0] is None
        assert (await store.read(KIND, KEY))[0] is not None
        assert (await store.read_optimistic(KIND, KEY))[0] is not None
        await put(store, thing("b"))
        assert (await store.read_optimistic(KIND, ("default", "default", "b")))[0] is not None
        # It knows of two at most, and then begins anew.
        await put(store, thing("c"))
        assert (await store.read_optimistic(KIND, KEY))[0] is None
        assert (await store.read_optimistic(KIND, ("default", "default", "c")))[0] is not None


async def test_write_that_believed_its_resource_absent_replaces_it(postgres: PostgresServer) -> None:
    url = postgres.new_url()
    app = headway.App("test")
    team = app.type("test", "v1", "Team", Team)
    async with (
        headway.open_engine(url, app, report=ignore) as one,
        headway.open_engine(url, app, report=ignore) as other,
    ):
        first = await one.client.write(team.new("a", Team(members=["x"])))
        second = await other.client.write(team.new("a", Team(members=["y"])))
        assert second.id.uid == first.id.uid
        assert second.version != first.version
        assert (await one.client.read(team, "a")).data.members == ["y"]


async def test_creation_needs_no_read(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    app = headway.App("test")
    team = app.type("test", "v1", "Team", Team)
    async with headway.open_engine(postgres.new_url(), app, report=ignore) as engine:
        reads, usual = 0, PostgresBackend.read

        async def read(self: PostgresBackend, *at: object) -> object:
            nonlocal reads
            reads += 1
            return await usual(self, *at)  # type: ignore[arg-type]  # as given

        monkeypatch.setattr(PostgresBackend, "read", read)
        await engine.client.write(team.new("a", Team(members=["x"])))
        assert not reads


@pytest.mark.parametrize("slow", [0.01, 0.0])
async def test_writers_that_are_done_do_not_wait_for_the_lock_of_the_next_transaction(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, slow: float
) -> None:
    """Another engine may hold it for long, also if nobody has held it before."""
    monkeypatch.setattr(_writer, *(("LATE", 60.0) if slow else ("PATIENCE", 60.0)))
    async with PostgresBackend(postgres.new_url()) as store:
        await put(store, thing("a"))
        begun, go_on, held = trio.Event(), trio.Event(), 0
        usual = Connection.ask

        async def ask(self: Connection, *statements: Statement) -> list[Rows]:
            nonlocal held
            if "FOR UPDATE" in statements[min(1, len(statements) - 1)][0]:
                held += 1
                if held == 2:
                    begun.set()
                    await go_on.wait()
                else:
                    await trio.sleep(slow)
            return await usual(self, *statements)

        monkeypatch.setattr(Connection, "ask", ask)
        monkeypatch.setattr(Writer, "_taken", one_at_a_time)
        async with trio.open_nursery() as nursery:
            ends: list[str] = []

            async def write(name: str) -> None:
                await put(store, thing(name))
                ends.append(name)

            nursery.start_soon(write, "b")
            nursery.start_soon(write, "c")
            await begun.wait()
            try:
                await until(lambda: ends)
            finally:
                go_on.set()
        assert set(await names(store)) == {"a", "b", "c"}


def one_at_a_time(writer: Writer, most: int) -> list[Request]:  # noqa: ARG001  # as it is called
    return [writer._pending.popleft()]


class Broken(BaseException):
    """An error as from Ctrl-C, which no code expects."""


async def test_no_writer_waits_or_is_acknowledged_when_the_writing_task_is_interrupted(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: dict[str, type[BaseException]] = {}

    async def write(store: PostgresBackend, name: str) -> None:
        try:
            await put(store, thing(name))
        except (OutcomeUnknown, StoreUnusable) as error:
            ends[name] = type(error)

    def interrupted(*_: object) -> None:
        raise Broken

    async with trio.open_nursery() as nursery:
        with pytest.raises(Broken):  # noqa: PT012  # the error comes while the store is open
            async with PostgresBackend(postgres.new_url()) as store:
                await put(store, thing("a"))
                monkeypatch.setattr(_writer, "_run", interrupted)
                monkeypatch.setattr(Writer, "_taken", one_at_a_time)
                for name in "bc":
                    nursery.start_soon(write, store, name)
                await trio.sleep_forever()
    assert sorted(ends.values(), key=str) == [OutcomeUnknown, StoreUnusable]


async def test_ctrl_c_does_not_end_a_transaction_in_its_middle(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    protected: list[bool] = []
    usual = _writer._run

    def run(state: State, requests: Sequence[Request]) -> None:
        protected.append(trio.lowlevel.currently_ki_protected())
        usual(state, requests)

    monkeypatch.setattr(_writer, "_run", run)
    async with PostgresBackend(postgres.new_url()) as store:
        await put(store, thing("a"))
    assert protected == [True]

"""What one caller of a store in PostgreSQL may cost the others, and what is refused before it costs them anything."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest
import trio
import trio.testing

from headway.errors import CallerError, InvalidArgument, QuotaExceeded, StoreUnusable
from headway.resource import Key, Within, pb
from headway.storage import Fence, PostgresBackend, Require, RequireOwnsNothing, Snapshot
from headway.storage.postgres._connection import Connection, Rows, Statement
from headway.storage.postgres._follow import Follower
from headway.storage.postgres._reads import rows_within
from headway.testing.conformance import EVERYTHING, KIND, name_of, names, put, reading, refused, thing, uid_of
from headway.testing.conformance._tools import putting
from headway.testing.conformance.quotas import keep_quotas, quota
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


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of bodies in each answer of a server from now on, of which each may have about 10,000."""
    monkeypatch.setattr("headway.storage.postgres._schema.ANSWER_BYTES", 10_000)
    sizes: list[int] = []
    usual = Connection.ask

    async def ask(connection: Connection, *statements: Statement) -> list[Rows]:
        found = await usual(connection, *statements)
        sizes.append(sum(len(cell) for rows in found for row in rows for cell in row if isinstance(cell, bytes)))
        return found

    monkeypatch.setattr(Connection, "ask", ask)
    return sizes


async def fill_with_large(store: PostgresBackend) -> list[str]:
    filled = [f"n{number:02}" for number in range(30)]
    for name in filled:
        await put(store, thing(name, "x" * 4_000, owner_uid="o"))
    return filled


async def read_out(snapshot: Snapshot) -> list[str]:
    found: list[str] = []
    while part := await snapshot.next():
        found += [name_of(each) for each in part]
    return found


async def test_lists_of_large_resources_are_read_in_small_answers(postgres: PostgresServer, answers: list[int]) -> None:
    """And no more of them than were asked for."""
    async with PostgresBackend(postgres.new_url()) as store:
        filled = await fill_with_large(store)
        assert await names(store) == filled
        assert len((await store.list(KIND, EVERYTHING, limit=7))[0]) == 7
        reader = await reading(store)
        await reader.until_snapshot()
        assert [key[2] for key in reader.held] == filled
        listed: list[pb.Resource] = []
        behind: Key | None = None
        while not listed or behind is not None:
            some, behind, _ = await store.list_part(KIND, EVERYTHING, behind, 5)
            listed += some
        assert [name_of(each) for each in listed] == filled
        assert [name_of(each) for each in (await store.list_by_owner("o"))[0]] == filled
        assert await read_out((await store.owned_parts("o"))[0]) == filled
        assert 10_000 <= max(answers) < 15_000
        answers.clear()
        await store.list_part(KIND, EVERYTHING, None, 1)
        assert max(answers) < 10_000


async def test_list_by_metadata_reads_no_more_than_its_limit(postgres: PostgresServer, answers: list[int]) -> None:
    """However many resources have these entries, and however many others there are."""
    async with PostgresBackend(postgres.new_url()) as store:
        await fill_with_large(store)
        for number in range(20):
            other = thing(f"a{number}", "x" * 4_000)
            other.metadata["tier"] = "gold"
            await put(store, other)
        await store._use().until_reached(store._use().history, store.position.revision)
        answers.clear()
        written = Within(metadata=(("written-by", "conformance"),))
        gold = written._replace(metadata=(*written.metadata, ("tier", "gold")))
        assert len((await store.list(KIND, written, limit=7))[0]) == 7
        assert len((await store.list(KIND, gold, limit=7))[0]) == 7
        assert sum(answers) < 2 * 9 * 4_500
        answers.clear()
        assert len((await store.list(KIND, gold))[0]) == 20
        assert sum(answers) < 20 * 4_500


UNUSUAL = ["", "a", "a\0", "a\x01", "a\x010", "a\x011", "\0\x01", '"\\u0000', "\N{SNOWMAN}", "\U0001f600", "x" * 10_000]


async def test_scope_has_exactly_its_resources_whatever_the_text(postgres: PostgresServer) -> None:
    """JSON in PostgreSQL has no NUL character."""
    async with PostgresBackend(postgres.new_url()) as store:
        for number, text in enumerate(UNUSUAL):
            made = thing(f"n{number:02}")
            made.metadata = {"tier": text, f"of {text}": "yes"}
            await put(store, made)
        bare = thing("without")
        bare.metadata = {}
        await put(store, bare)
        for number, text in enumerate(UNUSUAL):
            for entry in (("tier", text), (f"of {text}", "yes")):
                found, _ = await store.list(KIND, Within(metadata=(entry,)))
                assert [name_of(each) for each in found] == [f"n{number:02}"], entry
        await refused(InvalidArgument, store.list(KIND, Within(metadata=(("tier", "\ud800"),))), "half of a pair")
        version = bare.version
        for metadata in ({"tier": "new"}, dict[str, str]()):
            changed = thing("without", uid=uid_of(bare))
            changed.metadata = metadata
            version = str((await put(store, changed, version)).revision)
            now = await names(store, Within(metadata=(("tier", "new"),)))
            assert now == (["without"] if metadata else [])


async def test_few_resources_of_a_scope_are_found_by_an_index(postgres: PostgresServer) -> None:
    """A snapshot of them does not look at all the others."""
    async with PostgresBackend(postgres.new_url()) as store:
        await store.commit([putting(_in_tier(number)) for number in range(1_000)])
        session = store._use()
        await session.readers.ask((f"ANALYZE {session.sql.schema}.resources", {}))
        for limit in (11, 2_000):
            statement, values = rows_within(session.sql, KIND, Within(metadata=(("tier", "t7"),)), None, limit)
            [plan] = await session.readers.ask((f"EXPLAIN {statement}", values))
            assert "resources_by_metadata" in "".join(line for (line,) in plan), plan
        assert len((await store.list(KIND, Within(metadata=(("tier", "t7"),))))[0]) == 10


def _in_tier(number: int) -> pb.Resource:
    made = thing(f"n{number:04}")
    made.metadata["tier"] = f"t{number % 100}"
    return made


async def test_rules_follow_long_history_in_small_answers(postgres: PostgresServer, answers: list[int]) -> None:
    """An engine that has written nothing for long follows what others have written, whole, and does not begin anew."""
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        keep_quotas(store)
        await put(store, quota(resources=32))
        await put(store, thing("a"))
        await fill_with_large(other)
        answers.clear()
        await put(store, thing("b"))
        await refused(QuotaExceeded, put(store, thing("c")), "a commit above the quota")
        assert 10_000 <= max(answers) < 15_000


@pytest.mark.wide
async def test_memory_of_what_rules_follow_is_bounded(postgres: PostgresServer) -> None:
    """200 MB that others have written pass through the memory of an engine in pages."""
    url = postgres.new_url()
    async with PostgresBackend(url) as store:
        keep_quotas(store)
        await put(store, quota(resources=202))
        await put(store, thing("a"))
        async with PostgresBackend(url) as other:
            for number in range(200):
                await put(other, thing(f"n{number}", "x" * 1_000_000))
            await until(lambda: store._use().history.log.head == other.position.revision)
        before = _peak_from_now_on()
        await put(store, thing("b"))
        assert _memory("VmHWM") - before < 60 << 20
        await refused(QuotaExceeded, put(store, thing("c")), "a commit above the quota")


def _memory(what: str) -> int:
    """Return a number of bytes from the system's report on this process."""
    return int(re.findall(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) << 10


def _peak_from_now_on() -> int:
    """Let the system forget the peak of the memory of this process. Return the memory now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


async def test_history_of_large_resources_is_read_in_small_answers(
    postgres: PostgresServer, answers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an engine that has fallen behind, and by a watcher that has."""
    monkeypatch.setattr("headway.storage.postgres._session.IN_MEMORY", 1_000)
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        at = store.position
        catch_up, go_on = Follower._catch_up, trio.Event()

        async def late(self: Follower, connection: Connection) -> bool:
            await go_on.wait()
            return await catch_up(self, connection)

        monkeypatch.setattr(Follower, "_catch_up", late)
        filled = await fill_with_large(other)
        answers.clear()
        go_on.set()
        await until(lambda: store._use().history.log.head == other.position.revision)
        assert 10_000 <= max(answers) < 15_000
        answers.clear()
        reader = await reading(store, after=at)
        await reader.until(other.position.revision)
        assert [key[2] for key in reader.held] == filled
        assert 10_000 <= max(answers) < 15_000


@pytest.mark.parametrize(("most", "size"), [(5, 1 << 20), (1_000, 1_000)], ids=["changes", "bytes"])
async def test_commit_is_never_cut_by_the_end_of_an_answer(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, most: int, size: int
) -> None:
    """Its changes come together to those who follow, and to a watcher that has fallen behind."""
    monkeypatch.setattr("headway.storage.postgres._follow.PAGE", most)
    monkeypatch.setattr("headway.storage.postgres._history.PAGE_CHANGES", most)
    monkeypatch.setattr("headway.storage.postgres._schema.ANSWER_BYTES", size)
    monkeypatch.setattr("headway.storage.postgres._session.IN_MEMORY", 1)
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        reader, behind = await reading(store), await reading(store)
        await reader.until_snapshot()
        await behind.until_snapshot()
        for commit in range(3):
            await other.commit([putting(thing(f"n{commit}-{number}", "x" * 200)) for number in range(8)])
            await reader.until(other.position.revision)
        await behind.until(other.position.revision)
        assert len(reader.held) == len(behind.held) == 24


async def test_list_in_pages_is_of_one_revision(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed between two pages is not in it."""
    monkeypatch.setattr("headway.storage.postgres._reads.PAGE", 5)
    async with PostgresBackend(postgres.new_url()) as store:
        filled = [f"n{number:02}" for number in range(12)]
        await store.commit([putting(thing(name)) for name in filled])
        before, usual = store.position, Connection.ask
        pages = 0

        async def ask(connection: Connection, *statements: Statement) -> list[Rows]:
            nonlocal pages
            found = await usual(connection, *statements)
            if any("ORDER BY partition" in each for each, _ in statements):
                pages += 1
                await put(store, thing(f"z{pages}"))
            return found

        monkeypatch.setattr(Connection, "ask", ask)
        found, at = await store.list(KIND, EVERYTHING)
        assert [name_of(each) for each in found] == filled
        assert (at, pages) == (before, 3)


async def test_waits_for_leases_share_their_reads(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby that waits for many reads nothing while they are held, and all of them at once when one has changed."""
    url = postgres.new_url()
    async with PostgresBackend(url) as store, PostgresBackend(url) as other, trio.open_nursery() as nursery:
        terms = [(await other.acquire_lease(f"l{number}", "web-1", 600.0)).held.lease.term for number in range(20)]
        session, reads, usual = store._use(), 0, Connection.ask
        # The notification of a term comes with that of its commit.
        await until(lambda: session.head >= other.position.revision)

        async def ask(connection: Connection, *statements: Statement) -> list[Rows]:
            nonlocal reads
            reads += statements[0][0] == session.sql.lease
            return await usual(connection, *statements)

        monkeypatch.setattr(Connection, "ask", ask)
        ended = trio.Event()

        async def wait(number: int) -> None:
            await store.wait_lease_ended(f"l{number}", terms[number])
            ended.set()

        for number in range(20):
            nursery.start_soon(wait, number)
        await until(lambda: len(session.leases._waiting) == 20)
        reads = 0
        await trio.sleep(1.2)
        assert reads == 0
        await other.release_lease("l7", "web-1", terms[7])
        await ended.wait()
        await until(lambda: len(session.leases._waiting) == 19)
        assert reads <= 2
        nursery.cancel_scope.cancel()


async def test_term_that_ends_while_it_is_read_is_noticed(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its notification may come before the answer of the read that began earlier."""
    async with PostgresBackend(postgres.new_url()) as store:
        session, usual = store._use(), Connection.ask
        term = (await store.acquire_lease("a", "web-1", 600.0)).held.lease.term
        released = False

        async def ask(connection: Connection, *statements: Statement) -> list[Rows]:
            nonlocal released
            found = await usual(connection, *statements)
            if statements[0][0] == session.sql.lease and not released:
                released = True
                beats = session.lease_beats
                await store.release_lease("a", "web-1", term)
                await until(lambda: session.lease_beats > beats)
            return found

        monkeypatch.setattr(Connection, "ask", ask)
        with trio.fail_after(5):
            await store.wait_lease_ended("a", term)

"""The store in an SQLite file: what it keeps over a restart, shares between writers, and says when the disk fails."""

import os
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from headway.errors import HistoryGone, InvalidArgument, OutcomeUnknown, PayloadError, StoreUnusable
from headway.resource import EndOfSnapshot, Position
from headway.storage import (
    Backend,
    Fence,
    MemoryBackend,
    SqliteBackend,
    StoreMismatch,
    VersionConflict,
    _sqlite,
    _sqlite_commit,
    _sqlite_reader,
    _sqlite_writer,
    open_sqlite,
    open_store,
)
from headway.storage._sqlite_commit import Request
from headway.storage._sqlite_file import OpenedFile
from headway.testing._conformance_tools import (
    EVERYTHING,
    KIND,
    Reader,
    held,
    names,
    put,
    putting,
    reading,
    remove,
    removing,
    thing,
    told,
    uid_of,
)


class Gate:
    """Holds a function that runs in a worker thread, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self._entered = threading.Semaphore(0)
        self._open = threading.Event()

    def pass_through(self) -> None:
        self.calls += 1
        self._entered.release()
        assert self._open.wait(20), "nobody opened the gate"

    async def reached(self) -> None:
        assert await trio.to_thread.run_sync(lambda: self._entered.acquire(timeout=20)), "nobody came to the gate"

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def commit_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Every transaction waits here just before its COMMIT."""
    gate, commit = Gate(), _sqlite_commit.end_transaction

    def end_transaction(connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            gate.pass_through()
        commit(connection)

    monkeypatch.setattr(_sqlite_commit, "end_transaction", end_transaction)
    yield gate
    gate.open()


# --- What outlives the process -------------------------------------------------


async def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    """Resources, owners, the store id and the revisions go on; the incarnation is a new one."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, kept := thing("kept", "text", owner_uid="o"))
        at = await put(backend, gone := thing("gone"))
        before = await remove(backend, gone, str(at.revision))
        fence_at = (await backend.raise_fence("c", "m", 0, 0)).position
    async with open_sqlite(tmp_path / "a.db") as backend:
        here = backend.position
        assert (here.store_id, here.revision) == (before.store_id, fence_at.revision)
        assert here.incarnation != before.incarnation
        assert await backend.list(KIND, EVERYTHING) == ([kept], here)
        assert await backend.list_by_owner("o") == ([kept], here)
        assert (await put(backend, thing("new"))).revision == fence_at.revision + 1


async def test_a_watch_resumes_over_a_restart(tmp_path: Path) -> None:
    """Every position of the former process is resumed after exactly: changes, deletions, fences' revisions."""
    positions, facts = [], []
    async with open_sqlite(tmp_path / "a.db") as backend:
        for index in range(5):
            at = await put(backend, resource := thing(f"n{index}"))
            positions.append(at)
            facts.append((at.revision, f"n{index}", False))
            positions.append((await backend.raise_fence("c", "m", 0, 0)).position)
            at = await backend.commit([putting(thing(f"m{index}")), removing(resource, str(at.revision))])
            positions.append(at)
            facts += [(at.revision, f"m{index}", False), (at.revision, f"n{index}", True)]
        positions.append((await backend.raise_fence("c", "m", 0, 0)).position)
    async with open_sqlite(tmp_path / "a.db") as backend:
        at = await put(backend, thing("new"))
        facts.append((at.revision, "new", False))
        for position in positions:
            reader = await reading(backend, after=position)
            await reader.until(at.revision)
            assert told(reader.changes) == [fact for fact in facts if fact[0] > position.revision]


async def test_a_deletion_heard_after_a_restart_has_the_resource_as_it_last_was(tmp_path: Path) -> None:
    """Replayed from the file, a deletion brings the last content and the last version."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        first = await put(backend, resource := thing("a", "last words"))
        await remove(backend, resource, str(first.revision))
    async with open_sqlite(tmp_path / "a.db") as backend:
        reader = await reading(backend, after=first)
        await reader.until(first.revision + 1)
        assert [(each.deleted, each.resource) for each in reader.changes] == [(True, resource)]
        assert reader.changes[0].resource.version == str(first.revision)


async def test_history_in_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the log has dropped goes from the file now and then; what it keeps is there after a restart."""
    monkeypatch.setattr(_sqlite_writer, "TRIM_STEP", 10)
    async with open_sqlite(tmp_path / "a.db", max_changes=20) as backend:
        positions = [await put(backend, thing(f"n{index}")) for index in range(100)]
    with _plain(tmp_path / "a.db") as plain:
        (count,) = plain.execute("SELECT count(*) FROM history").fetchone()
    assert 20 <= count <= 20 + 10 + 2
    async with open_sqlite(tmp_path / "a.db", max_changes=20) as backend:
        reader = await reading(backend, after=positions[-21])
        await reader.until(positions[-1].revision)
        assert len(reader.changes) == 20
        with pytest.raises(HistoryGone):
            await backend.watch(KIND, EVERYTHING, positions[-22])
    async with open_sqlite(tmp_path / "a.db", max_changes=5) as backend:
        await reading(backend, after=positions[-6])
        with pytest.raises(HistoryGone):
            await backend.watch(KIND, EVERYTHING, positions[-7])


async def test_a_restart_does_not_bring_back_history_that_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a larger bound than before, what the file has let go of is refused, and what it has not is not."""
    monkeypatch.setattr(_sqlite_writer, "TRIM_STEP", 10)
    async with open_sqlite(tmp_path / "a.db", max_changes=20) as backend:
        positions = [await put(backend, thing(f"n{index}")) for index in range(50)]
    with _plain(tmp_path / "a.db") as plain:
        (floor,) = plain.execute("SELECT value FROM meta WHERE key = 'history_floor'").fetchone()
    assert 10 <= floor <= 30
    async with open_sqlite(tmp_path / "a.db") as backend:
        await backend.watch(KIND, EVERYTHING, positions[floor - 1])
        with pytest.raises(HistoryGone):
            await backend.watch(KIND, EVERYTHING, positions[floor - 2])


async def test_fences_and_what_is_settled_outlive_the_process(tmp_path: Path) -> None:
    """A write below a fence of the former process is refused by the next one."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, thing("a"), fence=Fence("c", "m", 1, 0))
        raised = await backend.raise_fence("c", "m", 2, 3)
        await backend.record_settled(raised.fence, 5)
    async with open_sqlite(tmp_path / "a.db") as backend:
        with pytest.raises(Exception, match=r"is at \(2, 3\), above \(1, 0\)"):
            await put(backend, thing("b"), fence=Fence("c", "m", 1, 0))
        assert (await backend.raise_fence("c", "m", 0, 0))[::2] == (Fence("c", "m", 3, 0), 5)


async def test_an_older_copy_in_place_of_the_file_is_found_out(tmp_path: Path) -> None:
    """Positions that the copy can have had are resumed after; those of what it lost are refused, for good."""
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    async with open_sqlite(path) as backend:
        known = await put(backend, thing("known"))
    shutil.copy(path, copy)
    async with open_sqlite(path) as backend:
        lost = [await put(backend, thing(f"lost{index}")) for index in range(3)]
    shutil.copy(copy, path)
    async with open_sqlite(path) as backend:
        for _ in range(2):
            await backend.watch(KIND, EVERYTHING, known)
            for position in lost:
                with pytest.raises(StoreMismatch):
                    await backend.watch(KIND, EVERYTHING, position)
            for index in range(4):
                await put(backend, thing(f"else{index}{backend.position.revision}"))


async def test_a_copy_taken_while_the_store_was_open_is_found_out(tmp_path: Path) -> None:
    """A copy knows the incarnation that went on without it, and up to where it went along."""
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    async with open_sqlite(path) as backend:
        known = await put(backend, thing("known"))
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
        lost = await put(backend, thing("lost"))
    async with open_sqlite(copy) as backend:
        await put(backend, thing("other"))
        await put(backend, thing("another"))
        await backend.watch(KIND, EVERYTHING, known)
        with pytest.raises(StoreMismatch, match="this copy doesn't have"):
            await backend.watch(KIND, EVERYTHING, lost)


# --- Writers that share a commit -----------------------------------------------


async def test_concurrent_writers_share_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 writers of ten writes each need little more than ten transactions, not 640."""
    transactions = _count_batches(monkeypatch)

    async def write(backend: Backend, writer: int) -> None:
        for index in range(10):
            await put(backend, thing(f"n{writer}-{index}"))

    async with open_sqlite(tmp_path / "a.db") as backend:
        async with trio.open_nursery() as nursery:
            for writer in range(64):
                nursery.start_soon(write, backend, writer)
        assert len(await names(backend)) == 640
    assert sum(transactions) == 640
    assert len(transactions) <= 15, transactions


def _count_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    run_batch = _sqlite_commit.run_batch

    def counted(file: OpenedFile, requests: Sequence[Request], head: int, floor: int | None) -> int:
        sizes.append(len(requests))
        return run_batch(file, requests, head, floor)

    monkeypatch.setattr(_sqlite_writer, "run_batch", counted)
    return sizes


async def test_a_batch_is_bounded_and_leadership_is_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit_gate: Gate
) -> None:
    """Who led one batch returns, whatever is still pending; the others are led by one of themselves."""
    monkeypatch.setattr(_sqlite_writer, "MOST_IN_A_BATCH", 4)
    sizes = _count_batches(monkeypatch)
    finished: list[int] = []
    batches_at_first: list[int] = []

    async def write(backend: Backend, writer: int) -> None:
        for index in range(3):
            await put(backend, thing(f"n{writer}-{index}"))
            if writer == 0 and index == 0:
                batches_at_first.append(len(sizes))
        finished.append(writer)

    async with open_sqlite(tmp_path / "a.db") as backend, trio.open_nursery() as nursery:
        nursery.start_soon(write, backend, 0)
        await commit_gate.reached()
        for writer in range(1, 12):
            nursery.start_soon(write, backend, writer)
        commit_gate.open()
    assert batches_at_first == [1], "the first leader went on leading"
    assert sorted(finished) == list(range(12))
    assert max(sizes) <= 4


async def test_a_refused_write_fails_alone_in_its_batch(tmp_path: Path, commit_gate: Gate) -> None:
    """Of the writers that share a transaction each has its own outcome, also one whose name can't be stored."""
    outcomes: dict[str, object] = {}

    async def write(name: str, expected: str) -> None:
        try:
            outcomes[name] = (await put(backend, thing(name), expected)).revision
        except Exception as error:  # noqa: BLE001  # whichever it was is compared below
            outcomes[name] = type(error)

    async with open_sqlite(tmp_path / "a.db") as backend:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, "first", "")
            await commit_gate.reached()
            for name, expected in (("a", ""), ("bad", "7"), ("bro\udc80ken", ""), ("b", "")):
                nursery.start_soon(write, name, expected)
            await trio.testing.wait_all_tasks_blocked()
            commit_gate.open()
        assert {outcomes["a"], outcomes["b"]} == {2, 3}
        assert outcomes["bad"] is VersionConflict
        assert outcomes["bro\udc80ken"] is PayloadError
        assert await names(backend) == ["a", "b", "first"]


async def test_a_cancellation_waits_for_the_outcome_of_a_commit(tmp_path: Path, commit_gate: Gate) -> None:
    """Cancelled in flight, leading or waiting, a commit returns its position; the next checkpoint is cancelled."""
    returned: dict[str, Position] = {}
    cancelled: list[str] = []

    async def write(name: str, scope: trio.CancelScope) -> None:
        with scope:
            returned[name] = await put(backend, thing(name))
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                cancelled.append(name)
                raise

    scopes = [trio.CancelScope() for _ in range(3)]
    async with open_sqlite(tmp_path / "a.db") as backend:
        async with trio.open_nursery() as nursery:
            for scope, name in zip(scopes, "abc", strict=True):
                nursery.start_soon(write, name, scope)
                await trio.testing.wait_all_tasks_blocked()
            await commit_gate.reached()
            for scope in scopes:
                scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert returned == {}, "a commit returned before its outcome was known"
            commit_gate.open()
        assert sorted(returned) == sorted(cancelled) == ["a", "b", "c"]
        assert await names(backend) == ["a", "b", "c"]


def test_an_interrupted_writer_leaves_the_others_their_turn(tmp_path: Path, commit_gate: Gate) -> None:
    """KeyboardInterrupt respects no shield: who is interrupted while waiting is forgotten, and the others go on."""
    stored: list[list[str]] = []

    @trio.lowlevel.enable_ki_protection
    async def interrupt() -> None:
        with trio.CancelScope(shield=True):
            await commit_gate.reached()
            await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGINT)
            await trio.testing.wait_all_tasks_blocked()
            commit_gate.open()

    async def main() -> None:
        async with open_sqlite(tmp_path / "a.db") as backend:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(put, backend, thing("first"))
                    nursery.start_soon(interrupt)
                    await trio.testing.wait_all_tasks_blocked()
                    nursery.start_soon(_shielded_put, backend, "second")
                    # The main task is where trio delivers an interrupt; it waits ahead of the second writer.
                    await put(backend, thing("main"))
            finally:
                with trio.CancelScope(shield=True):
                    stored.append(await names(backend))

    with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True, allow_unwrapped=True):
        trio.run(main)
    assert stored == [["first", "second"]]


def test_an_interrupted_leader_tells_its_batch_that_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before its transaction began, a leader leaves nobody believing in it, and the store goes on."""
    refused: list[str] = []
    stored: list[list[str]] = []

    async def gather_and_be_interrupted(_: object) -> None:
        monkeypatch.undo()
        for _turn in range(10):
            await trio.lowlevel.cancel_shielded_checkpoint()
        signal.raise_signal(signal.SIGINT)

    async def write(backend: Backend) -> None:
        with trio.CancelScope(shield=True), pytest.raises(StoreUnusable, match="Nothing was written") as caught:
            await put(backend, thing("second"))
        refused.append(str(caught.value))

    async def main() -> None:
        async with open_sqlite(tmp_path / "a.db") as backend:
            monkeypatch.setattr(_sqlite_writer.GroupWriter, "_gather", gather_and_be_interrupted)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(write, backend)
                    await put(backend, thing("first"))
            finally:
                await _shielded_put(backend, "third")
                with trio.CancelScope(shield=True):
                    stored.append(await names(backend))

    with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True, allow_unwrapped=True):
        trio.run(main)
    assert len(refused) == 1
    assert stored == [["third"]]


async def _shielded_put(backend: Backend, name: str) -> None:
    with trio.CancelScope(shield=True):
        await put(backend, thing(name))


# --- When the disk fails -------------------------------------------------------


async def test_without_room_nothing_is_written_and_all_are_told(tmp_path: Path) -> None:
    """A full disk fails the batch whole, each writer is told so, and with room again the store goes on."""
    refusals: list[str] = []

    async def write(name: str) -> None:
        with pytest.raises(StoreUnusable, match=r"full\. Nothing was written") as caught:
            await put(backend, thing(name, "x" * 100_000))
        refusals.append(str(caught.value))

    async with open_sqlite(tmp_path / "a.db") as backend:
        here = await put(backend, thing("before"))
        assert backend._opened is not None
        writer = backend._opened.file.writer
        (pages,) = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {pages + 3}")
        async with trio.open_nursery() as nursery:
            for index in range(5):
                nursery.start_soon(write, f"n{index}")
        assert len(refusals) == 5
        assert backend.position == here
        assert await names(backend) == ["before"]
        writer.execute("PRAGMA max_page_count = 1000000")
        assert (await put(backend, thing("after", "x" * 100_000))).revision == here.revision + 1


async def test_a_failure_while_a_commit_is_made_durable_is_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit_gate: Gate
) -> None:
    """Writers get OutcomeUnknown, a refused one of the batch its refusal; from then on the store refuses everything."""
    path = tmp_path / "a.db"
    outcomes: list[type[BaseException]] = []

    async def write(backend: Backend, expected: str) -> None:
        try:
            await put(backend, thing(f"n{expected}"), expected)
        except (OutcomeUnknown, VersionConflict) as error:
            outcomes.append(type(error))

    async with open_sqlite(path) as backend:
        waiting = await reading(backend)
        await waiting.until_snapshot()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_expect_unusable, _until_failure(waiting))
            nursery.start_soon(put, backend, thing("in time"))
            await commit_gate.reached()
            monkeypatch.setattr(_sqlite_commit, "end_transaction", _failing(sqlite3.SQLITE_IOERR))
            nursery.start_soon(write, backend, "")
            nursery.start_soon(write, backend, "7")
            await trio.testing.wait_all_tasks_blocked()
            commit_gate.open()
        assert set(outcomes) == {OutcomeUnknown, VersionConflict}
        for attempt in (lambda: put(backend, thing("x")), lambda: names(backend), lambda: reading(backend)):
            await _expect_unusable(attempt)
    monkeypatch.undo()
    async with open_sqlite(path) as backend:
        assert await names(backend) == ["in time"]


def _until_failure(reader: Reader) -> Callable[[], object]:
    return lambda: reader.until(1_000_000)


def _failing(code: int) -> Callable[[sqlite3.Connection], None]:
    def end_transaction(_: sqlite3.Connection) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = code
        raise error

    return end_transaction


async def _expect_unusable(attempt: Callable[[], object]) -> None:
    with pytest.raises(StoreUnusable):
        await attempt()  # type: ignore[misc]  # each of them is async


async def test_an_error_of_lacking_room_at_the_commit_is_no_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLITE_FULL at COMMIT means that the mark of a commit was not written: nothing was, and the store goes on."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        with monkeypatch.context() as patch:
            patch.setattr(_sqlite_commit, "end_transaction", _failing(sqlite3.SQLITE_FULL))
            with pytest.raises(StoreUnusable, match="Nothing was written"):
                await put(backend, thing("a"))
        assert await names(backend) == []
        await put(backend, thing("a"))


async def test_a_file_that_is_taken_away_takes_no_more_writes(tmp_path: Path) -> None:
    """A write into a file that is no longer at its path would be acknowledged and lost: it is refused."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        await put(backend, thing("a"))
        path.rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreUnusable, match=r"was moved or removed while it was open\. Nothing was written"):
            await put(backend, thing("b"))
        with pytest.raises(StoreUnusable, match="moved or removed"):
            await backend.list(KIND, EVERYTHING)


async def test_a_file_that_somebody_else_writes_to_takes_no_more_writes(tmp_path: Path) -> None:
    """Another program that moves the head past the lock is noticed before a revision is given out twice."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        await put(backend, thing("a"))
        with _plain(path) as plain:
            plain.execute("UPDATE meta SET value = 7 WHERE key = 'head'")
        with pytest.raises(StoreUnusable, match="stands at revision 7, not at 1: another program has written to it"):
            await put(backend, thing("b"))


@contextmanager
def _plain(path: Path) -> Iterator[sqlite3.Connection]:
    """What another program would see and do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


# --- Watching, closing, arguments ----------------------------------------------


async def test_a_snapshot_that_is_read_slowly_keeps_its_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a snapshot is being read, what follows it is kept, however much that is."""
    gate, read_many = Gate(), _sqlite_reader.read_many

    def slow(*arguments: object, **named: object) -> object:
        result = read_many(*arguments, **named)  # type: ignore[arg-type]  # passed through
        gate.pass_through()
        return result

    async with open_sqlite(tmp_path / "a.db", max_changes=4) as backend:
        first = await put(backend, thing("first"))
        monkeypatch.setattr(_sqlite, "read_many", slow)
        watches = []

        async def watch() -> None:
            watches.append(await reading(backend))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await gate.reached()
            facts = [((await put(backend, thing(f"n{index}"))).revision, f"n{index}", False) for index in range(20)]
            gate.open()
        (reader,) = watches
        await reader.until(facts[-1][0])
        assert reader.snapshot_at == first
        assert told(reader.changes) == facts


async def test_a_snapshot_may_stand_at_a_commit_that_is_not_yet_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a snapshot has read from the file is not said again once published; its position can be resumed after."""
    gate, run_batch = Gate(), _sqlite_commit.run_batch

    def slow(*arguments: object) -> int:
        head = run_batch(*arguments)  # type: ignore[arg-type]  # passed through
        gate.pass_through()
        return head

    async with open_sqlite(tmp_path / "a.db") as backend:
        monkeypatch.setattr(_sqlite_writer, "run_batch", slow)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put, backend, thing("a"))
            await gate.reached()
            reader = await reading(backend)
            at = await reader.until_snapshot()
            assert (at.revision, len(reader.held)) == (1, 1)
            resumed = await reading(backend, after=at)
            assert backend.position == at, "the store stands below what it has shown"
            gate.open()
        last = await put(backend, thing("b"))
        for each in (reader, resumed):
            await each.until(last.revision)
            assert told(each.changes) == [(2, "b", False)]


async def test_closing_lets_commits_end_and_tells_those_who_wait(tmp_path: Path, commit_gate: Gate) -> None:
    """A commit under way is acknowledged, a waiting watch gets StoreUnusable, and so does who comes later."""
    acknowledged: list[Position] = []

    async def write() -> None:
        acknowledged.append(await put(backend, thing("a")))

    backend = SqliteBackend(tmp_path / "a.db")
    async with trio.open_nursery() as nursery:
        async with backend:
            watch = await backend.watch(KIND, EVERYTHING)
            assert isinstance(await watch.next(), EndOfSnapshot)
            nursery.start_soon(_expect_unusable, watch.next)
            nursery.start_soon(write)
            await commit_gate.reached()
            nursery.start_soon(_open_when_blocked, commit_gate)
        assert len(acknowledged) == 1 or await _soon(lambda: len(acknowledged) == 1)
    for attempt in (lambda: put(backend, thing("b")), lambda: names(backend), lambda: reading(backend)):
        with pytest.raises(StoreUnusable, match="is closed"):
            await attempt()
    async with backend:
        assert await names(backend) == ["a"]


async def _open_when_blocked(gate: Gate) -> None:
    await trio.testing.wait_all_tasks_blocked()
    gate.open()


async def _soon(condition: Callable[[], bool]) -> bool:
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    return condition()


async def test_a_number_that_the_file_cannot_hold_is_refused_alone(tmp_path: Path) -> None:
    """The wire's numbers have 64 bits, SQLite's have a sign too: InvalidArgument, and nothing is written."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        raised = await backend.raise_fence("c", "m", 2**63 - 1, 0)
        for attempt in (
            lambda: backend.raise_fence("c", "m", 2**63, 0),
            lambda: backend.raise_fence("c", "m", 0, 0),
            lambda: backend.record_settled(raised.fence, 2**63),
        ):
            with pytest.raises(InvalidArgument, match="the highest that is stored"):
                await attempt()
        assert backend.position == raised.position


async def test_a_store_is_opened_by_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``memory:`` and ``sqlite:PATH``, relative or absolute; another url is refused with what is known."""
    monkeypatch.chdir(tmp_path)
    async with open_store("memory:") as backend:
        assert isinstance(backend, MemoryBackend)
    async with open_store("sqlite:relative.db") as backend:
        await put(backend, thing("a"))
    async with open_store(f"sqlite:{tmp_path}/relative.db") as backend:
        assert await names(backend) == ["a"]
    for url in ("", "memory", "memory:x", "sqlite:", "sqlite", "staff.db", "etcd:x", "postgres://x"):
        with pytest.raises(InvalidArgument, match='known are "memory:" and "sqlite:PATH"'):
            open_store(url)


async def test_a_large_store_is_read_while_it_is_written_to(tmp_path: Path) -> None:
    """More reads at once than there are connections wait for one another and all see one whole commit each."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        version = str((await backend.commit([putting(thing(f"n{i}", uid=f"n{i}")) for i in range(50)])).revision)

        async def read() -> None:
            for _ in range(5):
                found, at = await backend.list(KIND, EVERYTHING)
                assert {each.version for each in found} == {str(at.revision)}

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(read)
            for _ in range(10):
                changes = [putting(thing(f"n{i}", uid=f"n{i}"), version) for i in range(50)]
                version = str((await backend.commit(changes)).revision)


async def test_the_file_holds_what_the_backend_says(tmp_path: Path) -> None:
    """The file names itself in its header, and each opening in a row of its own."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        await put(backend, resource := thing("a", "text"))
        found, _ = await backend.list(KIND, EVERYTHING)
        assert held(found) == {("default", "default", "a"): (uid_of(resource), "1")}
        first = backend.position.incarnation
    async with open_sqlite(path) as backend:
        second = backend.position.incarnation
    header = path.read_bytes()[:100]
    assert (header[68:72], header[60:64]) == (b"HdWy", b"\0\0\0\1")
    with _plain(path) as plain:
        rows = plain.execute("SELECT incarnation, first_revision, last_revision FROM incarnations").fetchall()
        (mode,) = plain.execute("PRAGMA journal_mode").fetchone()
    assert sorted(rows, key=lambda row: row[1]) == [(first, 1, 1), (second, 2, None)]
    assert mode == "wal"
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db.lock"]

"""Helpers for the tests of the SQLite store: a gate in a worker thread, faults, and a plain connection to the file.

Only this module knows the private modules into which the faults are put.
"""

import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from headway.errors import StoreUnusable
from headway.resource import Key, Kind, Position
from headway.storage import SqliteBackend, Within, _kept, open_sqlite
from headway.storage.sqlite import (
    _backend,
    _backup,
    _connect,
    _file,
    _history,
    _inspect,
    _reader,
    _recent,
    _schema,
    _snapshots,
    _writer,
)
from headway.testing.conformance import put, remove, thing

FORMAT = _schema.FORMAT
READERS = _reader.CONNECTIONS
CONNECTING = {"inspect": _inspect, "file": _file, "reader": _reader}
"""The modules that open connections to the file of a store."""

Connect = Callable[..., sqlite3.Connection]


class Gate:
    """A function in a worker thread that blocks until it is released, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self._entered = threading.Semaphore(0)
        self._open = threading.Event()

    def pass_through(self) -> None:
        self.calls += 1
        self._entered.release()
        assert self._open.wait(20), "the gate was not opened in time"

    async def reached(self) -> None:
        assert await trio.to_thread.run_sync(lambda: self._entered.acquire(timeout=20)), (
            "no thread reached the gate in time"
        )

    def open(self) -> None:
        self._open.set()


def set_limit(patch: pytest.MonkeyPatch, name: str, value: float) -> None:
    """Set a limit of the store, like TRIM_STEP."""
    modules = [
        each for each in (_connect, _file, _history, _kept, _reader, _recent, _snapshots, _writer) if name in vars(each)
    ]
    assert modules, name
    for each in modules:
        patch.setattr(each, name, value)


def replace_commit(patch: pytest.MonkeyPatch, instead: Callable[[sqlite3.Connection], None]) -> None:
    """Call a function in place of every COMMIT of the store's writer."""
    patch.setattr(_writer, "end_transaction", instead)


def fail_commits(patch: pytest.MonkeyPatch, code: int) -> None:
    """Fail every COMMIT with a code of SQLite."""

    def failing(_: sqlite3.Connection) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = code
        raise error

    replace_commit(patch, failing)


def hold_commits(patch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Hold every transaction of the store's writer just before its COMMIT."""
    commit = _writer.end_transaction

    def held(connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            gate.pass_through()
        commit(connection)

    replace_commit(patch, held)


def hold_published(patch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Hold every batch of writes after its transaction, before it is published."""
    run_batch = _writer.run_batch

    def held(*arguments: object) -> int:
        head = run_batch(*arguments)  # type: ignore[arg-type]  # passed through
        gate.pass_through()
        return head

    patch.setattr(_writer, "run_batch", held)


def count_batches(patch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of requests in each later batch of writes, and return the list."""
    sizes: list[int] = []
    run_batch = _writer.run_batch

    def counted(file: object, rules: object, requests: Sequence[object], *rest: object) -> int:
        sizes.append(len(requests))
        return run_batch(file, rules, requests, *rest)  # type: ignore[arg-type]  # passed through

    patch.setattr(_writer, "run_batch", counted)
    return sizes


def replace_gathering(patch: pytest.MonkeyPatch, instead: Callable[[object], Awaitable[None]]) -> None:
    """Call a function in place of the wait of a leader for other writers."""
    patch.setattr(_writer.GroupWriter, "_gather", instead)


def hold_lists(patch: pytest.MonkeyPatch, gate: Gate, *, after: bool = False) -> None:
    """Hold every list, also of what an owner owns, before it reads the file, or after."""
    for module, name in ((_backend, "read_many"), (_snapshots, "read_owned_page")):
        read: Callable[..., object] = vars(_reader)[name]

        def held(*arguments: object, read: Callable[..., object] = read, **named: object) -> object:
            if not after:
                gate.pass_through()
            found = read(*arguments, **named)
            if after:
                gate.pass_through()
            return found

        patch.setattr(module, name, held)


def around_reads(patch: pytest.MonkeyPatch, around: Callable[[int, Callable[[], None]], None]) -> None:
    """Call ``around`` with the number of reads in each transaction of single reads, and with what performs them."""
    read_all = _reader._read_all

    def wrapped(readers: object, batch: Sequence[object], connection: object) -> None:
        around(len(batch), lambda: read_all(readers, batch, connection))  # type: ignore[arg-type]  # passed through

    patch.setattr(_reader, "_read_all", wrapped)


def replace_connect(patch: pytest.MonkeyPatch, module: str, wrap: Callable[[Connect], Connect]) -> None:
    """Replace the function that opens connections in a module of `CONNECTING`."""
    patch.setattr(CONNECTING[module], "connect", wrap(_connect.connect))


def fail_upgrade(patch: pytest.MonkeyPatch) -> None:
    """Fail each opening at its last statement, after the upgrade of the file."""
    patch.setattr(_schema, "BEGIN_SESSION", "SELECT 1 FROM no_such_table WHERE ? = ? AND ?")


def after_content_check(patch: pytest.MonkeyPatch, act: Callable[[str], object]) -> None:
    """Call ``act`` with the path after each check of a file's content at its opening."""

    def check_and_act(path: str) -> None:
        _inspect.check_content(path)
        act(path)

    patch.setattr(_file, "check_content", check_and_act)


def wrap_copied(patch: pytest.MonkeyPatch, wrap: Callable[[sqlite3.Connection], sqlite3.Connection]) -> None:
    """Replace the connection to the file that a backup or a restoration copies."""
    patch.setattr(_backup, "open_to_read", lambda path: wrap(_inspect.open_to_read(path)))


def count_pages(patch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of rows of each page of a snapshot that is read later, and return the list."""
    sizes: list[int] = []
    read_page = _reader.read_page

    def counted(*arguments: object) -> object:
        page, end = read_page(*arguments)  # type: ignore[arg-type]  # passed through
        sizes.append(len(page))
        return page, end

    patch.setattr(_snapshots, "read_page", counted)
    return sizes


def fail_statement(patch: pytest.MonkeyPatch, name: str) -> None:
    """Fail a statement of the store's schema in SQLite."""
    patch.setattr(_schema, name, "SELECT no_such_column ")


def replaced_rows(backend: SqliteBackend) -> list[str]:
    """Return the names of the rows that are kept for open snapshots, in order of their replacement."""
    kept = backend._use().file.replaced._batches.values()
    rows = sorted((row.revision, row.key[2]) for batches in kept for batch in batches for row in batch.rows)
    return [name for _, name in rows]


def plans_of(backend: SqliteBackend, kind: Kind, within: Within, after: Key | None) -> list[str]:
    """Return the steps in which SQLite reads the rows of a range behind a key."""
    connection = backend._use().file.writer
    steps: list[str] = []
    for where, values in _reader._queries(connection, kind, within, after):
        steps += [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {_schema.ROWS}{where}", values)]
    return steps


@contextmanager
def opened_plainly(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file as another program would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


async def expect_unusable(attempt: Callable[[], object]) -> None:
    with pytest.raises(StoreUnusable):
        await attempt()  # type: ignore[misc]  # each of them is async


async def filled(path: Path) -> Position:
    """Make a store of n0 to n8, with n9 created and removed again, and return its position."""
    async with open_sqlite(path) as backend:
        for index in range(10):
            at = await put(backend, resource := thing(f"n{index}", "x" * 500))
        return await remove(backend, resource, str(at.revision))

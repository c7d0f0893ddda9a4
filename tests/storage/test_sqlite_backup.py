"""Backups of the store in an SQLite file."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from headway.errors import FailedPrecondition, InvalidArgument, StoreUnusable
from headway.storage import Progress, SqliteBackend, backup_store, check_store, open_sqlite, restore_store
from headway.testing.conformance import EVERYTHING, KIND, put, putting, thing
from tests.storage.sqlite_kit import filled, opened_plainly, wrap_copied

BACKED_UP = """
import sys, trio
from headway.storage import backup_store
print(trio.run(backup_store, sys.argv[1], sys.argv[2]).revision)
"""


@pytest.mark.wide
async def test_backup_during_writes_is_consistent(tmp_path: Path) -> None:
    """The process that has the store open makes it. It has everything acknowledged before it began, at one revision."""
    backups: list[int] = []

    async def write(writer: int) -> None:
        version = ""
        for index in range(1_000_000):
            # Both belong to one commit, so no backup may have only one of them.
            pair = [thing(f"{side}{writer}", str(index), uid=f"{side}{writer}") for side in "ab"]
            at = await backend.commit([putting(each, version) for each in pair])
            version = str(at.revision)
            if len(backups) == 3:
                return

    async with open_sqlite(tmp_path / "a.db") as backend, trio.open_nursery() as nursery:
        for writer in range(4):
            nursery.start_soon(write, writer)
        for index in range(3):
            before = backend.position.revision
            while backend.position.revision < before + 20:
                await trio.lowlevel.checkpoint()
            before = backend.position.revision
            made = await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / f"{index}.backup")
            assert before <= made.revision <= backend.position.revision
            backups.append(made.revision)
    assert backups == sorted(backups)
    assert backups[-1] > backups[0]
    for index in range(3):
        assert await check_store(f"sqlite:{tmp_path}/{index}.backup") == []
        await restore_store(tmp_path / f"{index}.backup", f"sqlite:{tmp_path}/{index}.db")
        async with open_sqlite(tmp_path / f"{index}.db") as restored:
            found, _ = await restored.list(KIND, EVERYTHING)
            versions = {each.id.name: each.version for each in found if each.id is not None}
            assert all(versions[f"a{name[1:]}"] == version for name, version in versions.items())
            assert max(int(version) for version in versions.values()) == backups[index]


async def test_another_process_can_back_up_an_open_store(tmp_path: Path) -> None:
    """The server's lock keeps out other servers, but not backups. The server is undisturbed."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        at = await put(backend, thing("a"))
        command = [sys.executable, "-W", "error", "-c", BACKED_UP, f"sqlite:{tmp_path}/a.db", str(tmp_path / "b")]
        done = await trio.run_process(command, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
        assert done.stdout.decode() == f"{at.revision}\n"
        await put(backend, thing("b"))
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db.lock", "b"]


async def test_backup_of_a_closed_store_leaves_no_files_beside_it(tmp_path: Path) -> None:
    """The store's file does not change either."""
    at = await filled(tmp_path / "a.db")
    before = (tmp_path / "a.db").read_bytes()
    made = await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b")
    assert (made.store_id, made.revision, made.size) == (at.store_id, at.revision, (tmp_path / "b").stat().st_size)
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db.lock", "b"]
    assert (tmp_path / "a.db").read_bytes() == before


async def test_backup_reports_the_bytes_that_it_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy grows to its size, and then it is checked. SQLite keeps the first two megabytes in memory."""
    monkeypatch.setattr("headway.storage.sqlite._backup._INSTRUCTIONS", 100)
    async with SqliteBackend(tmp_path / "a.db") as store:
        for number in range(60):
            large = thing(f"n{number}")
            large.metadata["text"] = "x" * 100_000
            await put(store, large)
    reported: list[Progress] = []
    made = await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b", progress=reported.append)

    *copying, checking = reported
    assert checking == Progress("checking the backup", 0, None, "bytes")
    assert {(each.step, each.unit) for each in copying} == {("copying", "bytes")}
    amounts = [each.done for each in copying]
    assert amounts == sorted(amounts)
    assert amounts[0] == 0
    assert len(set(amounts)) > 2
    assert copying[-1].done == copying[-1].total
    # The mark of a backup is written afterwards.
    assert abs(made.size - amounts[-1]) <= 8192


async def test_backup_cannot_be_opened_as_a_store(tmp_path: Path) -> None:
    """A backup copied over the store is refused and stays unchanged. The error has the command that restores it."""
    await filled(tmp_path / "a.db")
    await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b")
    shutil.copy(tmp_path / "b", tmp_path / "a.db")
    with pytest.raises(
        StoreUnusable, match=r"a\.db is a backup: .*`headway restore .*a\.db sqlite:PATH` turns it into a store"
    ):
        async with open_sqlite(tmp_path / "a.db"):
            pass
    assert (tmp_path / "a.db").read_bytes() == (tmp_path / "b").read_bytes()


async def test_existing_file_is_replaced_only_on_request(tmp_path: Path) -> None:
    """Only a complete backup replaces it."""
    await filled(tmp_path / "a.db")
    (tmp_path / "b").write_text("yesterday's")
    with pytest.raises(FailedPrecondition, match=r"already exists; give another path, or replace it"):
        await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "yesterday's"
    await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b", replace=True)
    good = (tmp_path / "b").read_bytes()
    with opened_plainly(tmp_path / "a.db") as plain:
        plain.execute("UPDATE resources SET body = x'00' WHERE name = 'n3'")
    with pytest.raises(StoreUnusable, match=r"is damaged, and was not copied: .*n3.*headway store check"):
        await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b", replace=True)
    assert (tmp_path / "b").read_bytes() == good
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db.lock", "b"]


async def test_invalid_backup_source_or_target_is_named(tmp_path: Path) -> None:
    """The url is not a file's, the store is missing or not a store, the target is the store or has no directory."""
    await filled(tmp_path / "a.db")
    await filled(tmp_path / "other.db")
    (tmp_path / "text").write_text("Dear diary, " * 100)
    for url, file, kind, message in (
        ("memory:", "b", InvalidArgument, r"'memory:' is not a store in a file; write \"sqlite:PATH\""),
        (f"sqlite:{tmp_path}/none.db", "b", StoreUnusable, "none.db: store not found"),
        (f"sqlite:{tmp_path}/text", "b", StoreUnusable, "text is not a Headway store"),
        (f"sqlite:{tmp_path}/a.db", "a.db", InvalidArgument, "is the store itself"),
        (f"sqlite:{tmp_path}/a.db", "other.db", InvalidArgument, r"is a store, as .*other\.db\.lock shows"),
        (f"sqlite:{tmp_path}/a.db", "none/b", StoreUnusable, "directory .*none not found; create it first"),
        (f"sqlite:{tmp_path}/a.db", "", StoreUnusable, "is a directory"),
    ):
        with pytest.raises(kind, match=message):
            await backup_store(url, tmp_path / file, replace=True)
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db.lock", "other.db", "other.db.lock", "text"]


async def test_canceled_backup_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite is interrupted, however long it would take."""
    await filled(tmp_path / "a.db")
    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def endless(connection: sqlite3.Connection) -> sqlite3.Connection:
        # This stands for a VACUUM INTO that never ends.
        connection.create_function("note_begun", 0, lambda: token.run_sync_soon(begun.set))
        return _Endless(connection)

    wrap_copied(monkeypatch, endless)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(backup_store, f"sqlite:{tmp_path}/a.db", tmp_path / "b")
            await begun.wait()
            nursery.cancel_scope.cancel()
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db.lock"]


class _Endless(sqlite3.Connection):
    def __init__(self, inner: sqlite3.Connection) -> None:
        super().__init__(":memory:", check_same_thread=False)
        self._inner = inner

    def execute(self, *_: object) -> sqlite3.Cursor:  # runs an endless query, whatever the statement is
        return self._inner.execute(
            "WITH RECURSIVE n(x) AS (SELECT note_begun() UNION ALL SELECT x FROM n) SELECT count(*) FROM n"
        )

    def interrupt(self) -> None:
        self._inner.interrupt()

    def close(self) -> None:
        self._inner.close()
        super().close()


async def test_backup_of_a_damaged_store_says_so_and_names_the_check(tmp_path: Path) -> None:
    """SQLite calls some damage a full disk or a failed write: that of a length is a row that does not fit anywhere."""
    store, backup = tmp_path / "a.db", tmp_path / "a.backup"
    async with open_sqlite(store) as backend:
        for index in range(20):
            await put(backend, thing(f"n{index}", "x" * 1000))
    whole, said = store.read_bytes(), list[str]()
    # The number of cells of each leaf of an index, and the format in the header.
    leaves = [page for page in range(4096, len(whole), 4096) if whole[page] == 10]
    for at in (*(page + 4 for page in leaves), 60):
        damaged = bytearray(whole)
        damaged[at] ^= 0x80
        store.write_bytes(damaged)
        try:
            await backup_store(f"sqlite:{store}", backup, replace=True)
        except StoreUnusable as error:
            said.append(str(error))
    assert len(said) >= 3
    for each in said:
        assert "damaged" in each
        assert "`headway store check` finds" in each
        assert "could not be" not in each
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db.lock"]

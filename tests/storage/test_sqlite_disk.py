"""The store in an SQLite file on a real disk that is full, read-only, locked by others or damaged."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio

import headway
from headway.errors import HistoryCompacted, StoreUnusable, WriteRejected
from headway.resource import Key
from headway.storage import Backend, Within, backup_store, check_store, open_sqlite
from headway.testing.conformance import EVERYTHING, KIND, Reader, name_of, names, put, reading, summary, thing
from tests.helpers.resources import Account
from tests.storage.sqlite_kit import filled, opened_plainly, set_limit

LIMITED = """
import resource, sys, trio
from headway.errors import WriteRejected
from headway.storage import check_store, open_sqlite
from headway.storage._open import find_problem
from headway.testing.conformance import names, put, thing

async def main():
    async with open_sqlite(sys.argv[1]) as backend:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        written = 0
        try:
            while written < 100:
                await put(backend, thing(f"n{written}", "x" * 5000))
                written += 1
        except WriteRejected as error:
            print(error)
        print(await find_problem(backend))
        assert len(await names(backend)) == written == backend.position.revision
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert await find_problem(backend) is None
        at = await put(backend, thing("again", "x" * 5000))
        assert at.revision == written + 1
    async with open_sqlite(sys.argv[1]) as backend:
        assert len(await names(backend)) == written + 1
    assert await check_store(f"sqlite:{sys.argv[1]}") == []
    print(written)

trio.run(main)
"""


def _key(name: str) -> Key:
    return ("default", "default", name)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 2 MB, and return a directory on it; skip where mounting is not permitted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this process may mount nothing")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


# --- Full ----------------------------------------------------------------------


async def _fill(backend: Backend) -> tuple[int, WriteRejected]:
    for index in range(10_000):
        try:
            await put(backend, thing(f"f{index}", "x" * 5000))
        except WriteRejected as error:
            return index, error
    raise AssertionError("the disk did not become full")


async def test_full_disk_rejects_writes_until_there_is_space(small_disk: Path) -> None:
    """A commit without space is rejected. Watches and reads continue, and later writes succeed without intervention."""
    path = small_disk / "a.db"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    async with open_sqlite(path) as backend:
        reader = await reading(backend)
        written, error = await _fill(backend)
        assert "free some space on its disk" in str(error)
        assert str(error).endswith("Nothing was written")
        here = backend.position
        assert here.revision == written
        await reader.until(written)
        for _ in range(3):
            with pytest.raises(WriteRejected):
                await put(backend, thing("more", "x" * 50_000))
        with pytest.raises(WriteRejected):
            await backend.raise_fence("c", "m" * 50_000, 0, 0)
        found, _ = await backend.read(KIND, _key("f0"))
        assert found is not None
        ballast.unlink()
        here = backend.position
        at = await put(backend, thing("more", "x" * 50_000))
        assert at.revision == here.revision + 1, "a rejected write has used up a revision"
        await reader.until(at.revision)
        assert [fact[1] for fact in summary(reader.changes) if fact[1] == "more"] == ["more"]
    assert await check_store(f"sqlite:{path}") == []


async def test_store_on_a_full_disk_is_refused_until_there_is_space(small_disk: Path) -> None:
    """The name of the lock's holder is written first, and opening the store does not fail because of that."""
    path = small_disk / "a.db"
    at = await filled(path)
    # A new lock file needs room; the former one has it.
    (small_disk / "a.db.lock").unlink()
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(bytes(3_000_000))
    with pytest.raises(StoreUnusable, match=r"a\.db cannot be opened for writing: .*free some space"):
        await _opened(path)
    ballast.unlink()
    async with open_sqlite(path) as backend:
        assert backend.position.revision == at.revision


async def test_backup_beside_which_nothing_can_be_created_is_refused(tmp_path: Path) -> None:
    """It is built in a file beside its path, whose removal may fail as well."""
    await filled(tmp_path / "a.db")
    (tmp_path / "b.unfinished").mkdir()
    with pytest.raises(StoreUnusable, match=r"b could not be created: .*b\.unfinished"):
        await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b")
    assert not (tmp_path / "b").exists()


async def test_backup_without_space_leaves_nothing(small_disk: Path, tmp_path: Path) -> None:
    """An earlier backup at the same path stays."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, thing("small"))
        await backup_store(f"sqlite:{tmp_path}/a.db", small_disk / "b")
        before = (small_disk / "b").read_bytes()
        await put(backend, thing("large", "x" * 3_000_000))
        with pytest.raises(StoreUnusable, match="free some space on its disk"):
            await backup_store(f"sqlite:{tmp_path}/a.db", small_disk / "b", replace=True)
        assert os.listdir(small_disk) == ["b"]
        assert (small_disk / "b").read_bytes() == before
        await put(backend, thing("more"))


async def test_client_gets_a_rejection_for_a_write_without_space(small_disk: Path) -> None:
    """In the process and over the network it is the same error, though a lost reply would be an unknown outcome."""
    app = headway.App("staff")
    account = app.type("staff", "v1", "Account", Account)
    async with (
        headway.open_engine(
            f"sqlite:{small_disk}/a.db", app, network=headway.Network(["127.0.0.1:0"], insecure=True)
        ) as engine,
        headway.connect(engine.addresses[0], app) as remote,
    ):
        await engine.client.write(account.new("ada", Account(login="ada")))
        for client in (engine.client, remote):
            with pytest.raises(WriteRejected, match="free some space on its disk"):
                await client.write(account.new("large", Account(login="x" * 3_000_000)))
            assert (await client.read(account, "ada")).data.login == "ada"
        await remote.write(account.new("grace", Account(login="grace")))


async def test_file_size_limit_acts_like_a_full_disk(tmp_path: Path) -> None:
    """A limit on file sizes, like a quota, is another error of the system. The commit is rejected in the same way."""
    done = await trio.run_process(
        [sys.executable, "-W", "error", "-c", LIMITED, str(tmp_path / "a.db")],
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
    said, problem, written = done.stdout.decode().splitlines()[-3:]
    assert "its disk refused the write: a quota, a limit on the size of files, or the disk itself" in said, said
    assert said.endswith("Nothing was written")
    assert "StoreProblem.AWAY" in problem
    assert "this process may write files of at most 200000: raise its limit on the size of files" in problem
    assert 0 < int(written) < 100


# --- Read-only, or locked ------------------------------------------------------


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """Return a directory of another user, and become that user during the test where that is permitted."""
    folder = Path(tempfile.mkdtemp(prefix="headway-disk-"))
    changed = os.geteuid() == 0
    if changed:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if changed:
            os.seteuid(0)
        os.chmod(folder, 0o700)
        shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="rights are POSIX's")
async def test_store_without_write_permission_is_refused_unchanged(as_nobody: Path) -> None:
    """The file cannot be read or written, or its directory cannot be written: the error names which."""
    path = as_nobody / "a.db"
    await filled(path)
    before = path.read_bytes()
    path.chmod(0)
    with pytest.raises(
        StoreUnusable, match=r"a\.db cannot be read \(Permission denied\); give this process permission"
    ):
        await _opened(path)
    path.chmod(0o400)
    with pytest.raises(StoreUnusable, match=r"cannot be opened for writing: .*this process may not write to it"):
        await _opened(path)
    assert path.read_bytes() == before
    assert sorted(os.listdir(as_nobody)) == ["a.db", "a.db.lock"]
    path.chmod(0o600)
    os.chmod(as_nobody, 0o500)
    with pytest.raises(StoreUnusable, match=r"(cannot be opened for writing|could not be created)"):
        await _opened(path)
    with pytest.raises(StoreUnusable, match=r"b\.db\.lock, the store's lock, cannot be opened \(Permission denied"):
        await _opened(as_nobody / "b.db")
    # The file can still be checked.
    assert await check_store(f"sqlite:{path}") == []
    assert path.read_bytes() == before


async def _opened(path: Path) -> None:
    async with open_sqlite(path):
        pass


async def test_write_to_a_locked_store_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been written. Reads continue during the wait, and later writes succeed."""
    set_limit(monkeypatch, "BUSY_TIMEOUT", 0.05)
    path = tmp_path / "a.db"
    await filled(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnusable, match=r"cannot be opened for writing: .*another program has locked it"):
            await _opened(path)
        other.execute("ROLLBACK")
        async with open_sqlite(path) as backend:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(WriteRejected, match=r"another program has locked it; end that.*Nothing was written"):
                await put(backend, thing("a"))
            assert len(await names(backend)) == 9
            other.execute("ROLLBACK")
            await put(backend, thing("a"))


# --- Damaged -------------------------------------------------------------------


async def test_damaged_page_affects_only_its_own_rows(tmp_path: Path) -> None:
    """Reads of those rows name the damage and the remedy. Rows on other pages can be read and written as before."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        for index in range(60):
            await put(backend, thing(f"n{index:02}", f"{index:02}" * 300))
    content = path.read_bytes()
    # A leaf page of the table. The history also has the body of this resource.
    pages = {content.index(b"32" * 300) // 4096, content.rindex(b"32" * 300) // 4096}
    with opened_plainly(path) as plain:
        roots = {row[0] - 1 for row in plain.execute("SELECT rootpage FROM sqlite_master")}
    assert not pages & roots
    async with open_sqlite(path) as backend:
        with open(path, "r+b") as file:  # noqa: ASYNC230  # like another program
            for page in pages:
                file.seek(4096 * page)
                file.write(b"\xaa" * 4096)
        with pytest.raises(StoreUnusable, match=r"malformed \(`headway store check` finds the damage, and `h"):
            await backend.read(KIND, _key("n32"))
        found, _ = await backend.read(KIND, _key("n59"))
        assert name_of(found or thing("")) == "n59"
        at = await put(backend, thing("new"))
        reader = await reading(backend, after=at)
        await put(backend, thing("newer"))
        await reader.until(at.revision + 1)
    with pytest.raises(StoreUnusable, match="is damaged"):
        await _opened(path)


async def test_damaged_row_is_named_and_other_rows_can_be_read(tmp_path: Path) -> None:
    """SQLite does not detect one wrong bit of one body. A read of the row fails at once and names it."""
    path = tmp_path / "a.db"
    await filled(path)
    with opened_plainly(path) as plain:
        (body,) = plain.execute("SELECT body FROM resources WHERE name = 'n3'").fetchone()
        at = body.index(b"x" * 100) + 50
        plain.execute("UPDATE resources SET body = ? WHERE name = 'n3'", (body[:at] + b"y" + body[at + 1 :],))
    async with open_sqlite(path) as backend:
        named = (
            r"the resource stored at revision 4 is damaged \(Thing 'n3', as far as it can be read\).*headway restore"
        )
        with pytest.raises(StoreUnusable, match=named):
            await backend.read(KIND, _key("n3"))
        with pytest.raises(StoreUnusable, match=named):
            await backend.list(KIND, EVERYTHING)
        async with trio.open_nursery() as nursery:
            for index in (0, 1, 2, 4, 5):
                nursery.start_soon(_read_whole, backend, f"n{index}")
        # An operator who knows the content can write the resource again.
        (resource, _) = await backend.read(KIND, _key("n4"))
        assert resource is not None
        with opened_plainly(path) as plain:
            (uid,) = plain.execute("SELECT uid FROM resources WHERE name = 'n3'").fetchone()
        await put(backend, thing("n3", "mended", uid=uid), "4")
        assert len(await names(backend)) == 9


async def _read_whole(backend: Backend, name: str) -> None:
    found, _ = await backend.read(KIND, _key(name))
    assert found is not None
    assert name_of(found) == name


_MAY_BE_NULL = "UPDATE sqlite_master SET sql = replace(sql, 'body BLOB NOT NULL', 'body BLOB') WHERE name = 'history'"


@pytest.mark.parametrize("body", ["CAST(body || 'x' AS BLOB)", "NULL"])
async def test_damaged_history_is_dropped_and_the_rest_is_kept(tmp_path: Path, body: str) -> None:
    """A watch that would need it takes a new snapshot; a later one resumes; no watch gets a wrong change."""
    path = tmp_path / "a.db"
    await filled(path)
    async with open_sqlite(path) as backend:
        old = backend.position._replace(revision=3)
        new = old._replace(revision=6)
    with opened_plainly(path) as plain:
        plain.execute("PRAGMA writable_schema = ON")
        plain.execute(_MAY_BE_NULL)
    with opened_plainly(path) as plain:
        assert plain.execute(f"UPDATE history SET body = {body} WHERE revision = 5").rowcount == 1
    async with open_sqlite(path) as backend:
        with pytest.raises(HistoryCompacted):
            await backend.watch(KIND, EVERYTHING, old)
        reader = await reading(backend, after=new)
        await reader.until(11)
        assert [fact[0] for fact in summary(reader.changes)] == list(range(7, 12 + 1))[: len(reader.changes)]
        assert len(await names(backend)) == 9


async def test_watch_by_metadata_does_not_resume_before_a_damaged_former_state(tmp_path: Path) -> None:
    """It would not learn that the resource has left its part. All other watches resume there."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        for number, tier in enumerate(("gold", "free", "plain")):
            changed = thing("a", uid="u")
            changed.metadata = {"tier": tier}
            at = await put(backend, changed, str(number or ""))
        places = [at._replace(revision=revision) for revision in (1, 2)]
    with opened_plainly(path) as plain:
        assert plain.execute("UPDATE formers SET body = x'00' WHERE revision = 2").rowcount == 1
    gold, free = (Within(metadata=(("tier", tier),)) for tier in ("gold", "free"))
    async with open_sqlite(path) as backend:
        with pytest.raises(HistoryCompacted, match="the states before changes are kept after 2"):
            await backend.watch(KIND, gold, places[0])
        (await backend.watch(KIND, EVERYTHING, places[0])).close()
        reader = Reader(await backend.watch(KIND, free, places[1]))
        await reader.until(3)
        assert [(each.revision, each.deleted) for each in reader.changes] == [(3, True)]

"""Watches of a store in an SQLite file read from it the changes that are no longer in memory, and lose none of them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import HistoryCompacted, StoreUnusable
from headway.protobuf import encode
from headway.resource import Change, Kind, Position, Within, pb
from headway.storage import Backend, MemoryBackend, Operation, SqliteBackend, open_sqlite
from headway.storage._kept import Bounds, KeptCommits
from headway.storage._log import FIXED_SIZE
from headway.storage.sqlite import _backend, _history
from headway.storage.sqlite._rows import resource_from
from headway.testing.conformance import EVERYTHING, KIND, Reader, put, putting, reading, removing, thing
from tests.storage.sqlite_kit import opened_plainly, set_limit

OTHER: Kind = ("conformance", "Other")
PARTS = (
    EVERYTHING,
    Within(name_prefix="a"),
    Within(metadata=(("tier", "gold"),)),
    Within(namespace="n1", metadata=(("tier", "free"),)),
)
Delivered = list[tuple[int, bytes, bool, bool]]


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let memory have only the newest commit, and pages three changes."""
    set_limit(monkeypatch, "IN_MEMORY", 1)
    set_limit(monkeypatch, "PAGE_CHANGES", 3)


def delivered(changes: Sequence[Change]) -> Delivered:
    return [(each.revision, encode(each.resource), each.deleted, each.more) for each in changes]


async def changes_after(backend: Backend, kind: Kind, within: Within, after: Position) -> Delivered:
    reader = await reading(backend, within, kind=kind, after=after)
    await reader.until(backend.position.revision)
    return delivered(reader.changes)


class Twins:
    """A store in a file and one in memory that get the same commits. The one in memory has all of its history."""

    def __init__(self, file: Backend, memory: Backend, seed: int) -> None:
        self.file = file
        self.memory = memory
        self._random = random.Random(seed)
        self._stored: dict[tuple[Kind, str], pb.Resource] = {}

    async def commit(self, count: int) -> None:
        """Make commits of one to four changes of two kinds; some delete, or change metadata or the type's version."""
        for _ in range(count):
            names = self._random.sample([(kind, name) for kind in (KIND, OTHER) for name in ("a", "b", "c")], k=4)
            names = names[: self._random.randint(1, 4)]
            made: list[list[Operation]] = [[], []]
            for kind, name in names:
                old = self._stored.pop((kind, name), None)
                if old is not None and self._random.random() < 0.3:
                    for each in made:
                        each.append(removing(old, old.version))
                    continue
                new = thing(
                    name,
                    self._random.choice("xyz"),
                    uid=name if old is None else old.id.uid,  # type: ignore[union-attr]  # it has one
                    namespace="n1",
                    kind=kind,
                    version=self._random.choice(["v1", "v1", "v2"]),
                )
                new.metadata = {"tier": self._random.choice(["gold", "free"])}
                for each in made:
                    each.append(putting(copied(new), "" if old is None else old.version))
                self._stored[kind, name] = new
            revision = str((await self.file.commit(made[0])).revision)
            assert str((await self.memory.commit(made[1])).revision) == revision
            for place in names:
                if place in self._stored:
                    self._stored[place].version = revision

    async def compare(self, watched: Sequence[int]) -> None:
        """Check that watches which resume at these revisions get the same changes from both stores."""
        for kind in (KIND, OTHER):
            for within in PARTS:
                for revision in watched:
                    wanted = await changes_after(
                        self.memory, kind, within, self.memory.position._replace(revision=revision)
                    )
                    here = self.file.position._replace(revision=revision)
                    assert await changes_after(self.file, kind, within, here) == wanted


def copied(resource: pb.Resource) -> pb.Resource:
    return pb.Resource.parse(encode(resource))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("little_memory")
async def test_resumed_watches_get_every_change_of_the_file(seed: int, tmp_path: Path) -> None:
    """They do before and after the store is opened again, from every revision and for every part of a kind."""
    async with MemoryBackend() as memory:
        async with open_sqlite(tmp_path / "a.db") as file:
            await Twins(file, memory, seed).commit(30)
            await Twins(file, memory, seed).compare(range(0, 30, 4))
        async with open_sqlite(tmp_path / "a.db") as file:
            head = file.position.revision
            assert head == memory.position.revision
            await Twins(file, memory, seed).compare(range(head + 1))


@pytest.mark.usefixtures("little_memory")
async def test_open_watches_that_lag_get_every_change(tmp_path: Path) -> None:
    """They are no slower to report a later change than before, and `poll` never waits for the file."""
    async with MemoryBackend() as memory, open_sqlite(tmp_path / "a.db") as file:
        twins = Twins(file, memory, 7)
        readers = [(await reading(file, within), await reading(memory, within)) for within in PARTS]
        for _ in range(3):
            await twins.commit(20)
            for reader, model in readers:
                assert reader.watch.poll() is None  # type: ignore[attr-defined]  # a `SkipsUnrelated`
                for each in (reader, model):
                    await each.until(file.position.revision)
                assert delivered(reader.changes) == delivered(model.changes)


@pytest.mark.usefixtures("little_memory")
async def test_canceled_read_of_the_file_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the cancellation comes before the thread of the read or during it."""
    reads, chance = 0, random.Random(1)
    scope, token = trio.CancelScope(), trio.lowlevel.current_trio_token()
    read_page = _history.read_page

    def canceled(*args: Any, **named: Any) -> Any:
        nonlocal reads
        reads += 1
        page = read_page(*args, **named)
        trio.from_thread.run_sync(scope.cancel, trio_token=token)
        return page

    monkeypatch.setattr(_backend, "read_page", canceled)
    async with MemoryBackend() as memory, open_sqlite(tmp_path / "a.db") as file:
        await Twins(file, memory, 3).commit(20)
        reader = await reading(file, after=file.position._replace(revision=0))
        while reader.frontier is None or reader.frontier < file.position.revision:
            with trio.CancelScope() as scope:
                if chance.random() < 0.3:
                    scope.cancel()
                await reader.next()
        model = await reading(memory, after=memory.position._replace(revision=0))
        await model.until(memory.position.revision)
        assert delivered(reader.changes) == delivered(model.changes)
        assert reads > 4


async def test_memory_has_only_the_newest_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening decodes no others. Watches resume from all of them."""
    set_limit(monkeypatch, "IN_MEMORY", 20 * FIXED_SIZE)
    decoded: list[int] = []

    def counted(version: int, *row: Any) -> Any:
        decoded.append(version)
        return resource_from(version, *row)

    monkeypatch.setattr(_history, "resource_from", counted)

    def kept(backend: SqliteBackend) -> int:
        assert backend._opened is not None
        return backend._opened.log._count

    async with open_sqlite(tmp_path / "a.db") as backend:
        for number in range(200):
            at = await put(backend, thing(f"n{number}", "x" * 100))
        assert 10 <= kept(backend) < 20
    assert not decoded
    async with open_sqlite(tmp_path / "a.db") as backend:
        assert 10 <= kept(backend) <= len(decoded) < 20
        assert len(await changes_after(backend, KIND, EVERYTHING, at._replace(revision=0))) == 200


@pytest.mark.usefixtures("little_memory")
async def test_history_beyond_the_bounds_is_compacted_for_lagging_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the file still has it, so that a bound means the same for all."""
    set_limit(monkeypatch, "TRIM_STEP", 1000)
    async with open_sqlite(tmp_path / "a.db", max_changes=10) as backend:
        at = await put(backend, thing("first"))
        reader = await reading(backend, after=at)
        for number in range(10):
            at = await put(backend, thing(f"n{number}"))
        await reader.until(2)
        lagging = await reading(backend, after=at._replace(revision=3))
        await put(backend, thing("last"))
        await put(backend, thing("more"))
        await put(backend, thing("and more"))
        with pytest.raises(HistoryCompacted, match=r"too far behind: changes are kept after 4"):
            await lagging.until(14)


@pytest.mark.usefixtures("little_memory")
async def test_history_that_is_trimmed_before_a_read_is_compacted(tmp_path: Path) -> None:
    """The thread of a read may begin after the writer's."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        for number in range(10):
            at = await put(backend, thing(f"n{number}"))
        reader = await reading(backend, after=at._replace(revision=3))
        assert backend._opened is not None
        writer = backend._opened.file.writer
        writer.execute("DELETE FROM history WHERE revision <= 4")
        writer.execute("UPDATE meta SET value = 4 WHERE key = 'history_floor'")
        with pytest.raises(HistoryCompacted, match="too far behind: changes are kept after 4"):
            await reader.until(10)


@pytest.mark.usefixtures("little_memory")
async def test_damaged_history_in_the_file_stops_only_watches_that_need_it(tmp_path: Path) -> None:
    """They raise HistoryCompacted, and so begin anew. No watch misses a change."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        for number in range(10):
            at = await put(backend, thing(f"n{number}"))
            await put(backend, thing(f"n{number}", kind=OTHER))
    with opened_plainly(path) as plain:
        assert plain.execute("UPDATE history SET body = x'00' WHERE revision = 5").rowcount == 1
    async with open_sqlite(path) as backend:
        here = backend.position
        reader = await reading(backend, after=here._replace(revision=2))
        with pytest.raises(HistoryCompacted, match=r"of conformance\.Thing after revision 2 cannot be read"):
            await reader.until(20)
        assert len(await changes_after(backend, KIND, EVERYTHING, here._replace(revision=5))) == 7
        assert len(await changes_after(backend, OTHER, EVERYTHING, here._replace(revision=0))) == 10
    assert at.revision == 19


@pytest.mark.parametrize(
    ("code", "error"), [(sqlite3.SQLITE_CORRUPT, HistoryCompacted), (sqlite3.SQLITE_IOERR, StoreUnusable)]
)
@pytest.mark.usefixtures("little_memory")
async def test_damaged_page_of_the_history_is_no_reason_to_try_again(
    code: int, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that resumed there once more would never get any further."""

    def fails(*_: object) -> None:
        raised = sqlite3.DatabaseError("database disk image is malformed")
        raised.sqlite_errorcode = code
        raise raised

    async with open_sqlite(tmp_path / "a.db") as backend:
        for number in range(3):
            at = await put(backend, thing(f"n{number}"))
        monkeypatch.setattr(_history, "resource_from", fails)
        reader = Reader(await backend.watch(KIND, EVERYTHING, at._replace(revision=0)))
        with pytest.raises(error):
            await reader.until(3)


COMMITS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(0, 9)), max_size=40)


@given(
    commits=COMMITS,
    bounds=st.builds(Bounds, st.integers(1, 12), st.sampled_from([3.0, 1e9]), st.sampled_from([1, 20, 10**9])),
    compact_after=st.sampled_from([0, 2, 1024]),
)
def test_kept_commits_are_those_within_the_bounds(
    commits: list[tuple[int, int, int]], bounds: Bounds, compact_after: int
) -> None:
    """The oldest go first, and the newest is always kept."""
    with pytest.MonkeyPatch.context() as patch:
        set_limit(patch, "COMPACT_AFTER", compact_after)
        kept, model = KeptCommits(2, bounds), list[tuple[int, int, int, int]]()
        floor, dropped, now = 2, 0, 0
        for revision, (count, passed, size) in enumerate(commits, 3):
            now += passed
            kept.append(revision, count, now, size)
            kept.trim(now)
            model.append((revision, count, now, size))
            while len(model) > 1 and (
                sum(each[1] for each in model) > bounds.max_changes
                or sum(each[3] for each in model) > bounds.max_bytes
                or model[0][2] + bounds.max_age < now
            ):
                floor, dropped = model[0][0], dropped + model[0][3]
                del model[0]
            assert (kept.floor, kept.dropped_bytes) == (floor, dropped)
            newest = kept.floor_of_newest(2 * FIXED_SIZE)
            in_memory = [each for each in model if each[0] > newest]
            assert in_memory
            assert len(in_memory) == 1 or sum(each[1] * FIXED_SIZE + each[3] for each in in_memory) <= 2 * FIXED_SIZE
        if model:
            kept.compact(model[len(model) // 2][0])
            assert kept.floor == model[len(model) // 2][0]

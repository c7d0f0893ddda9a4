"""A store in an SQLite file is killed at random moments while many writers use it through the service.

The next life has everything that the previous one acknowledged. An operation in flight is stored completely or not at
all. Revisions, terms, fences and checkpoints never go back. `make crash` runs a thousand lives. The seed is printed:
HEADWAY_CRASH_SEED=... repeats the choice of moments, but not the timing of the machine.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from headway.errors import HistoryCompacted
from headway.resource import Position
from headway.storage import Backend, StoreMismatch, check_store, open_sqlite
from headway.testing.conformance import EVERYTHING, name_of, reading, summary, text_of
from tests.storage import crash_child
from tests.storage.crash_child import KEYS, MAX_CHANGES, NOTE, PAIR, WRITERS, step
from tests.storage.sqlite_kit import opened_plainly

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="lives are forks")

ROOT = Path(__file__).parents[2]
AT_MOST = 200
"""The highest number of acknowledgements in one life: many transactions with all writers."""

Ack = list[str]


class ForkServer:
    """The process whose forks are the lives."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._rest = b""

    async def life(self, number: int, rng: random.Random) -> list[Ack]:
        """Begin a life, end it at a random moment, and return its acknowledgements."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(f"{number}\n".encode())
        said, pid = await self._line()
        assert said == "life"
        # Some lives are killed while they open the file, or before that; most are killed while all writers write.
        lines = rng.choice((0, rng.randrange(AT_MOST), rng.randrange(AT_MOST)))
        acks: list[Ack] = []
        with trio.move_on_after(rng.uniform(0, 0.1) if lines == 0 else 30):
            while len(acks) < max(lines, 1):
                line = await self._line()
                assert line != ["ended"], "a life ended before it was killed"
                acks.append(line)
        os.kill(int(pid), signal.SIGKILL)
        while (line := await self._line()) != ["ended"]:
            acks.append(line)
        return acks

    async def _line(self) -> Ack:
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            received = await self._process.stdout.receive_some()
            assert received, "the parent process has ended"
            self._rest += received
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode().split()


@asynccontextmanager
async def fork_server(path: Path) -> AsyncIterator[ForkServer]:
    """Run the parent process within the block."""
    command = [sys.executable, "-m", "tests.storage.crash_child", str(path)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'engine'}"}

    async def run(*, task_status: trio.TaskStatus[trio.Process]) -> None:
        await trio.run_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
            task_status=task_status,
        )

    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        yield ForkServer(process)
        assert process.stdin is not None
        await process.stdin.aclose()


class Known:
    """The required content of the store, by all acknowledgements so far."""

    def __init__(self) -> None:
        # The stored (text, version) by name. Names without a resource are absent.
        self.notes: dict[str, tuple[str, int]] = {}
        self.pair = ""
        self.fence = (0, 0)
        self.term = 0
        self.checkpoint = 0
        self.position: Position | None = None
        self.first: Position | None = None
        self.acknowledged = 0

    @property
    def head(self) -> int:
        return 0 if self.position is None else self.position.revision

    async def check(self, backend: Backend, path: Path, life: int, acks: list[Ack]) -> None:
        """Compare the store, reopened after a life, with the acknowledgements of that life."""
        here = backend.position
        revisions = [int(ack[-1]) for ack in acks if ack[0] in ("wrote", "pair", "term", "fence")]
        assert len(revisions) == len(set(revisions)), "a revision was given out twice"
        assert all(self.head < revision <= here.revision for revision in revisions), (
            "a revision was given out again, or is lost"
        )
        self._check_incarnation(path, here, acks)
        facts = await self._check_notes(backend, life, acks)
        await self._check_pair(backend, life, acks)
        self._check_fences(path, acks)
        await self._check_history(backend, facts)
        self.acknowledged += len(acks)
        self.position = here
        self.first = self.first or here

    def _check_incarnation(self, path: Path, here: Position, acks: list[Ack]) -> None:
        if not acks:
            return
        said, store_id, incarnation, revision = acks[0]
        assert said == "open"
        assert self.position is None or store_id == self.position.store_id
        assert int(revision) == self.head, "the life opened the store at another revision than the last one"
        with opened_plainly(path) as plain:
            rows = plain.execute("SELECT * FROM incarnations WHERE incarnation = ?", (incarnation,)).fetchall()
        assert [row[1:3] for row in rows] == [(self.head + 1, here.revision)], "the life's incarnation isn't recorded"

    async def _check_notes(self, backend: Backend, life: int, acks: list[Ack]) -> list[tuple[int, str]]:
        facts: list[tuple[int, str]] = []
        done = dict.fromkeys(range(WRITERS), -1)
        for said, *words in acks:
            if said not in ("wrote", "deleted", "skipped"):
                continue
            writer, index, version = map(int, words)
            assert index == done[writer] + 1
            done[writer] = index
            name, text = step(life, writer, index)
            if text is None:
                self.notes.pop(name, None)
            else:
                self.notes[name] = (text, version)
                facts.append((version, name))
        found, _ = await backend.list(NOTE.kind, EVERYTHING)
        there = {name_of(each): (crash_child.text_of(each), int(each.version)) for each in found}
        for writer, index in done.items():
            under_way, text = step(life, writer, index + 1)
            for name in (f"n{writer}-{key}" for key in range(KEYS)):
                stored, known = there.get(name), self.notes.get(name)
                landed = name == under_way and (stored is None if text is None else stored and stored[0] == text)
                assert stored == known or landed, f"{name} is stored as {stored}, but was acknowledged as {known}"
        self.notes = there
        return facts

    async def _check_pair(self, backend: Backend, life: int, acks: list[Ack]) -> None:
        last = max((int(ack[1]) for ack in acks if ack[0] == "pair"), default=-1)
        acknowledged = self.pair if last < 0 else f"{life}.{last}"
        found, _ = await backend.list(PAIR, EVERYTHING)
        texts, versions = {text_of(each) for each in found}, {each.version for each in found}
        assert len(found) in (0, 2), "only a part of a commit is stored"
        assert len(texts) <= 1, "only a part of a commit is stored"
        assert len(versions) <= 1, "only a part of a commit is stored"
        self.pair = texts.pop() if texts else ""
        assert self.pair in (acknowledged, f"{life}.{last + 1}"), "an acknowledged commit is lost"

    def _check_fences(self, path: Path, acks: list[Ack]) -> None:
        for said, *words in acks:
            if said == "term":
                assert int(words[0]) > self.term, "a term was given out twice"
                self.term = int(words[0])
                self.fence = max(self.fence, (self.term, 0))
            elif said == "fence":
                self.fence = max(self.fence, (int(words[0]), int(words[1])))
            elif said == "checkpoint":
                self.checkpoint = max(self.checkpoint, int(words[0]))
        with opened_plainly(path) as plain:
            rows = plain.execute("SELECT term, number, settled FROM fences WHERE controller = 'keeper'").fetchall()
        if rows:
            ((term, number, checkpoint),) = rows
            assert (term, number) >= self.fence, "a fence was lowered"
            assert checkpoint >= self.checkpoint, "a checkpoint was lowered"
            self.fence, self.checkpoint, self.term = (term, number), checkpoint, max(self.term, term - 1)
        else:
            assert self.fence == (0, 0)

    async def _check_history(self, backend: Backend, facts: list[tuple[int, str]]) -> None:
        if self.position is None:
            return
        reader = await reading(backend, kind=NOTE.kind, after=self.position)
        await reader.until(backend.position.revision)
        changes = summary(reader.changes)
        assert set(facts) <= {(revision, name) for revision, name, deleted in changes if not deleted}
        last = {name: None if deleted else revision for revision, name, deleted in changes}
        for name, revision in last.items():
            assert (self.notes[name][1] if name in self.notes else None) == revision, (
                "the history ends in another state than the store"
            )


@pytest.mark.parametrize(
    "lives",
    [pytest.param(10, marks=pytest.mark.wide), pytest.param(1000, marks=[pytest.mark.deep, pytest.mark.timeout(2400)])],
)
async def test_acknowledged_writes_survive_kill_9_at_random_moments(tmp_path: Path, lives: int) -> None:
    """Each life on the one file is checked as the module describes, and the file must be intact."""
    path = tmp_path / "a.db"
    seed = int(os.environ.get("HEADWAY_CRASH_SEED") or random.SystemRandom().randrange(2**32))
    rng = random.Random(seed)
    print(f"HEADWAY_CRASH_SEED={seed}")
    known = Known()
    async with fork_server(path) as forks:
        for life in range(lives):
            acks = await forks.life(life, rng)
            if life % 4 == 0 and path.exists():
                # This checks the file as the crash left it. In other lives the store itself opens it first.
                assert await check_store(f"sqlite:{path}") == []
            async with open_sqlite(path, max_changes=MAX_CHANGES) as backend:
                await known.check(backend, path, life, acks)
            if life % 4 == 1:
                assert await check_store(f"sqlite:{path}") == []
    print(f"{known.acknowledged} acknowledgements in {lives} lives, up to revision {known.head}")
    assert known.acknowledged > 10 * lives
    await _check_the_oldest_position(path, known)


async def _check_the_oldest_position(path: Path, known: Known) -> None:
    """Check that a watch resumes at the oldest position, or fails because its history is compacted.

    It never receives a part of the changes.
    """
    assert known.first is not None
    with opened_plainly(path) as plain:
        (floor,) = plain.execute("SELECT value FROM meta WHERE key = 'history_floor'").fetchone()
        (kept,) = plain.execute("SELECT count(*) FROM history").fetchone()
    assert kept <= MAX_CHANGES + 5 * 1000, "the history exceeds its bound"
    async with open_sqlite(path, max_changes=MAX_CHANGES) as backend:
        if floor > known.first.revision:
            # The file keeps only the last of these openings.
            with pytest.raises((HistoryCompacted, StoreMismatch)):
                await backend.watch(NOTE.kind, EVERYTHING, known.first)
        elif kept < MAX_CHANGES:
            reader = await reading(backend, kind=NOTE.kind, after=known.first)
            await reader.until(known.head)

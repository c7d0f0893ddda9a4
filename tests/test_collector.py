"""The garbage collector is off until an engine's first pass is over. Then it skips the primed objects."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.events import ignore
from headway.pauses import pause_controller, resume_controller
from headway.storage import MemoryBackend
from tests.helpers.declared import Note

pytestmark = pytest.mark.usefixtures("nothing_frozen")

COUNT = 20


class Pass:
    """An app whose user code records whether collection is on."""

    def __init__(self) -> None:
        self.app = headway.App("collected")
        self.note = self.app.type("tests", "v1", "Collected", Note)
        self.indexed: list[bool] = []
        self.reconciled: list[bool] = []
        self.begun = trio.Event()
        self.go_on = trio.Event()
        self.go_on.set()

        def text(note: headway.Resource[Note]) -> str:
            self.indexed.append(gc.isenabled())
            return note.data.text

        @self.app.controller(manages=self.note, indexes=[headway.indexes.by(self.note, "text", text)])
        async def notes(rt: headway.Runtime, request: headway.Request) -> None:
            rt.cache.get(self.note, request.id)
            self.reconciled.append(gc.isenabled())
            self.begun.set()
            await self.go_on.wait()

    @asynccontextmanager
    async def filled(self) -> AsyncIterator[MemoryBackend]:
        async with MemoryBackend() as store:
            async with headway.open_engine(store, self.app, report=ignore) as engine:
                for number in range(COUNT):
                    await engine.client.write(self.note.new(f"n{number}", Note(text="x")))
                await engine.wait_idle()
            for states in (self.indexed, self.reconciled):
                assert set(states) == {True}, "collection must stay on without the option"
                states.clear()
            yield store


def is_examined(wanted: object) -> bool:
    """Return True if a full collection would examine the object."""
    return any(each is wanted for each in gc.get_objects())


def is_frozen() -> bool:
    """Return True if the program has frozen its objects. Python 3.12 counts hundreds that it froze itself."""
    return not is_examined(sys.modules)


@pytest.fixture(autouse=True)
def _restored_collector() -> Iterator[None]:
    """Restore the collector after each test, because a failed test must not affect the next."""
    assert gc.isenabled()
    assert not is_frozen()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


async def later(clock: MockClock, seconds: float) -> None:
    """Wait in virtual time."""
    await trio.sleep_until(clock.current_time() + seconds)


async def test_collection_is_off_during_the_first_pass_and_primed_objects_are_frozen(
    autojump_clock: MockClock,
) -> None:
    it = Pass()
    async with it.filled() as store:
        stored, _ = await store.read(it.note.kind, ("default", "default", "n0"))
        it.go_on = trio.Event()
        async with headway.open_engine(store, it.app, report=ignore, gc_freeze=True) as engine:
            await it.begun.wait()
            await later(autojump_clock, 1)
            assert is_frozen(), "primed objects must be frozen before the pass is over"
            assert not is_examined(stored)
            assert not gc.isenabled()
            it.go_on.set()
            await engine.wait_idle()
            await later(autojump_clock, 2)
            assert gc.isenabled()
            assert it.indexed == [False] * COUNT
            assert it.reconciled == [False] * COUNT
            await engine.client.write(it.note.new("later", Note(text="y")))
            await engine.wait_idle()
            assert it.reconciled[COUNT:] == [True]
            assert not is_examined(stored)
        assert not is_frozen()
        assert is_examined(stored)


@pytest.mark.parametrize("cut_short", [False, True])
async def test_collection_is_off_until_the_last_engine_of_the_process_is_done(
    cut_short: bool, autojump_clock: MockClock
) -> None:
    """Collection is on again when the last engine is idle, or has ended."""
    first, second = Pass(), Pass()
    async with first.filled() as store, second.filled() as other:
        second.go_on = trio.Event()
        async with headway.open_engine(store, first.app, report=ignore, gc_freeze=True) as engine:
            async with headway.open_engine(other, second.app, report=ignore, gc_freeze=True):
                await engine.wait_idle()
                await later(autojump_clock, 1)
                assert not gc.isenabled()
                if not cut_short:
                    second.go_on.set()
                    await later(autojump_clock, 2)
                    assert gc.isenabled()
            assert gc.isenabled()
            assert is_frozen(), "the first one still has what it has primed"
        assert not is_frozen()


async def test_collector_settings_of_the_program_are_restored(autojump_clock: MockClock) -> None:
    it = Pass()
    async with it.filled() as store:
        gc.disable()
        gc.freeze()
        async with headway.open_engine(store, it.app, report=ignore, gc_freeze=True) as engine:
            await engine.wait_idle()
            await later(autojump_clock, 1)
            assert not gc.isenabled()
        assert not gc.isenabled()
        assert is_frozen()


async def test_paused_controller_does_not_keep_an_engine_from_running(autojump_clock: MockClock) -> None:
    """It is paused until an operator resumes it through this engine, so the engine must open and go on."""
    it = Pass()
    async with it.filled() as store:
        async with headway.open_engine(store, headway.App("operators"), report=ignore) as engine:
            await pause_controller(engine.client, "collected/notes", "an audit")
        async with headway.open_engine(store, it.app, report=ignore, gc_freeze=True) as engine:
            await later(autojump_clock, 60)
            assert it.reconciled == []
            assert gc.isenabled()
            assert is_frozen()
            await resume_controller(engine.client, "collected/notes")
            await engine.wait_idle()
            assert it.reconciled == [True] * COUNT


async def test_workers_pause_collection_as_engines_do(autojump_clock: MockClock) -> None:
    it = Pass()
    types = headway.App("types")
    types.type("tests", "v1", "Collected", Note)
    async with it.filled() as store, headway.open_engine(store, types, report=ignore) as server:
        channel = server.client._channel
        async with headway.open_workers(channel, it.app, report=ignore, gc_freeze=True) as workers:
            await workers.wait_idle()
            await later(autojump_clock, 2)
            assert gc.isenabled()
            assert it.reconciled == [False] * COUNT
            assert is_frozen()
    assert not is_frozen()

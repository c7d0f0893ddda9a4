"""Full garbage collections wait for the end of an engine's first pass. Then they are rare, and skip the primed objects.

Small engines leave collection as it is, so these tests lower the thresholds from which an engine is a large one.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.engine._collector import RARELY
from headway.events import ignore
from headway.pauses import pause_controller, resume_controller
from headway.storage import MemoryBackend
from tests.helpers.declared import Note

pytestmark = pytest.mark.usefixtures("nothing_frozen")

COUNT = 20
USUAL = (20, 2, 3)
"""The thresholds of the program. With them, a full collection is due after a few hundred new objects."""
LOADED = 2000
"""The objects that each reconcile leaves: more than enough for a full collection."""


class Pass:
    """An app whose user code records the full collections before it."""

    def __init__(self) -> None:
        self.app = headway.App("collected")
        self.note = self.app.type("tests", "v1", "Collected", Note)
        self.reconciled = 0
        self.left: list[object] = []
        self.begun = trio.Event()
        self.go_on = trio.Event()
        self.go_on.set()
        index = headway.indexes.by(self.note, "text", lambda note: note.data.text)

        @self.app.controller(manages=self.note, indexes=[index])
        async def notes(rt: headway.Runtime, request: headway.Request) -> None:
            rt.cache.get(self.note, request.id)
            self.left += [[] for _ in range(LOADED)]
            self.reconciled += 1
            self.begun.set()
            await self.go_on.wait()

    @asynccontextmanager
    async def filled(self) -> AsyncIterator[MemoryBackend]:
        async with MemoryBackend() as store:
            async with headway.open_engine(store, self.app, report=ignore, gc_freeze=False) as engine:
                for number in range(COUNT):
                    await engine.client.write(self.note.new(f"n{number}", Note(text="x")))
                await engine.wait_idle()
            self.reconciled = 0
            yield store


class Collections:
    """The generations of all collections that are made within the block."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            self.made.append(info["generation"])

    def __enter__(self) -> Collections:
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)


def is_examined(wanted: object) -> bool:
    """Return True if a full collection would examine the object."""
    return any(each is wanted for each in gc.get_objects())


def is_frozen() -> bool:
    """Return True if the program has frozen its objects. Python 3.12 counts hundreds that it froze itself."""
    return not is_examined(sys.modules)


def loading() -> bool:
    """Return True if there are no full collections."""
    return gc.get_threshold()[2] > 1_000_000


@pytest.fixture(autouse=True)
def _restored_collector() -> Iterator[None]:
    """Lower the thresholds, and restore the collector after each test: a failed test must not affect the next."""
    assert gc.isenabled()
    assert not is_frozen()
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.enable()
        gc.unfreeze()


async def later(clock: MockClock, seconds: float) -> None:
    """Wait in virtual time."""
    await trio.sleep_until(clock.current_time() + seconds)


async def test_first_pass_has_no_full_collection_and_primed_objects_are_frozen(autojump_clock: MockClock) -> None:
    it = Pass()
    async with it.filled() as store:
        stored, _ = await store.read(it.note.kind, ("default", "default", "n0"))
        it.go_on = trio.Event()
        with Collections() as collections:
            async with headway.open_engine(store, it.app, report=ignore) as engine:
                await it.begun.wait()
                await later(autojump_clock, 1)
                assert not is_examined(stored), "primed objects must be frozen before the pass is over"
                assert loading()
                assert set(collections.made) == {0, 1}, "young objects are collected, and old ones are not"
                it.go_on.set()
                await engine.wait_idle()
                await later(autojump_clock, 2)
                assert it.reconciled == COUNT
                assert collections.made.count(2) == 1, "garbage must not be frozen"
                assert not is_examined(it.left[0])
                assert gc.get_threshold() == (*USUAL[:2], RARELY)
                await engine.client.write(it.note.new("later", Note(text="y")))
                await engine.wait_idle()
                assert it.reconciled == COUNT + 1
                assert is_examined(it.left[-1])
        assert not is_frozen()
        assert is_examined(stored)
        assert gc.get_threshold() == USUAL


async def test_engine_with_few_objects_freezes_nothing(autojump_clock: MockClock) -> None:
    """A search for garbage, and the exclusion of objects of the program, have no use there."""
    it = Pass()
    async with it.filled() as store:
        gc.set_threshold(20_000, 10, 10)
        gc.collect()
        with Collections() as collections:
            async with headway.open_engine(store, it.app, report=ignore) as engine:
                await engine.wait_idle()
                await later(autojump_clock, 2)
                assert not is_frozen()
                assert gc.get_threshold()[2] == RARELY
        assert 2 not in collections.made


async def test_collection_stays_as_it_is_without_the_option(autojump_clock: MockClock) -> None:
    it = Pass()
    async with it.filled() as store, headway.open_engine(store, it.app, report=ignore, gc_freeze=False) as engine:
        await it.begun.wait()
        assert gc.get_threshold() == USUAL
        await engine.wait_idle()
        await later(autojump_clock, 2)
        assert gc.get_threshold() == USUAL
        assert not is_frozen()


@pytest.mark.parametrize("cut_short", [False, True])
async def test_full_collections_wait_for_the_last_engine_of_the_process(
    cut_short: bool, autojump_clock: MockClock
) -> None:
    """They go on when the last engine is idle, or has ended. The garbage of an engine that ended is not frozen."""
    first, second = Pass(), Pass()
    async with first.filled() as store, second.filled() as other:
        second.go_on = trio.Event()
        async with headway.open_engine(store, first.app, report=ignore) as engine:
            async with headway.open_engine(other, second.app, report=ignore):
                await engine.wait_idle()
                await later(autojump_clock, 1)
                assert loading()
                if not cut_short:
                    second.go_on.set()
                    await later(autojump_clock, 2)
                    assert not loading()
                assert is_frozen()
            assert not is_frozen()
            assert gc.get_threshold() == (*USUAL[:2], RARELY)
        assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("how", ["disabled", "frozen"])
async def test_collector_that_the_program_manages_itself_is_left_to_it(how: str, autojump_clock: MockClock) -> None:
    """Objects that the program has frozen could not be told from ours at the end, so none are added to them."""
    it = Pass()
    async with it.filled() as store:
        if how == "disabled":
            gc.disable()
        else:
            gc.freeze()
        mine: list[object] = []
        with Collections() as collections:
            async with headway.open_engine(store, it.app, report=ignore) as engine:
                await engine.wait_idle()
                await later(autojump_clock, 1)
                assert gc.isenabled() is (how == "frozen")
                assert is_examined(mine)
        assert how == "frozen" or not collections.made
        assert gc.isenabled() is (how == "frozen")
        assert is_frozen() is (how == "frozen")
        assert gc.get_threshold() == USUAL


async def test_frozen_program_is_looked_at_once(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look traverses all objects, and each controller would have one when it starts."""
    it = Pass()
    looks = 0

    def look(of: Callable[[], list[Any]] = gc.get_objects) -> list[Any]:
        nonlocal looks
        looks += 1
        return of()

    async with it.filled() as store:
        gc.freeze()
        monkeypatch.setattr(gc, "get_objects", look)
        for _ in range(2):
            async with headway.open_engine(store, it.app, report=ignore) as engine:
                await engine.wait_idle()
                await later(autojump_clock, 1)
    assert looks <= 1


async def test_thresholds_that_the_program_sets_meanwhile_remain(autojump_clock: MockClock) -> None:
    it = Pass()
    async with it.filled() as store:
        async with headway.open_engine(store, it.app, report=ignore) as engine:
            gc.set_threshold(1000, 20, 30)
            await engine.wait_idle()
            await later(autojump_clock, 1)
            assert gc.get_threshold() == (1000, 20, 30)
        assert gc.get_threshold() == (1000, 20, 30)


async def test_full_collections_that_are_rarer_already_remain_so(autojump_clock: MockClock) -> None:
    it = Pass()
    async with it.filled() as store:
        gc.set_threshold(20, 2, 10 * RARELY)
        async with headway.open_engine(store, it.app, report=ignore) as engine:
            await engine.wait_idle()
            await later(autojump_clock, 1)
            assert gc.get_threshold() == (20, 2, 10 * RARELY)


async def test_paused_controller_does_not_keep_an_engine_from_running(autojump_clock: MockClock) -> None:
    """It is paused until an operator resumes it through this engine, so the engine must open and go on."""
    it = Pass()
    async with it.filled() as store:
        async with headway.open_engine(store, headway.App("operators"), report=ignore) as engine:
            await pause_controller(engine.client, "collected/notes", "an audit")
        async with headway.open_engine(store, it.app, report=ignore) as engine:
            await later(autojump_clock, 60)
            assert it.reconciled == 0
            assert not loading()
            assert is_frozen()
            await resume_controller(engine.client, "collected/notes")
            await engine.wait_idle()
            assert it.reconciled == COUNT


async def test_workers_have_no_full_collections_in_their_first_pass(autojump_clock: MockClock) -> None:
    it = Pass()
    types = headway.App("types")
    types.type("tests", "v1", "Collected", Note)
    async with it.filled() as store, headway.open_engine(store, types, report=ignore, gc_freeze=False) as server:
        channel = server.client._channel
        it.go_on = trio.Event()
        async with headway.open_workers(channel, it.app, report=ignore) as workers:
            await it.begun.wait()
            assert loading()
            it.go_on.set()
            await workers.wait_idle()
            await later(autojump_clock, 2)
            assert not loading()
            assert it.reconciled == COUNT
            assert is_frozen()
    assert not is_frozen()

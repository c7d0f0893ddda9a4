"""One store in memory in several runs of Trio: one after the other, but not two at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

import headway
from headway.errors import WrongTrioRun
from headway.events import ignore
from headway.storage import MemoryBackend
from tests.helpers.resources import Team

APP = headway.App("staff")
TEAM = APP.type("staff", "v1", "Team", Team)


async def in_thread(main: Callable[[], Awaitable[None]]) -> None:
    # Abandoned if it hangs.
    with trio.fail_after(5):
        await trio.to_thread.run_sync(trio.run, main, abandon_on_cancel=True)


async def written(store: MemoryBackend, name: str) -> list[str]:
    """Write a resource, and return the names of all."""
    async with headway.open_engine(store, APP, report=ignore) as engine:
        await engine.client.apply(TEAM.new(name))
        await engine.wait_idle()
        return [each.name for each in await engine.client.list(TEAM)]


async def test_store_in_memory_that_is_open_in_another_run_is_refused() -> None:
    store = MemoryBackend()

    async def other() -> None:
        with pytest.raises(WrongTrioRun, match=r"this MemoryBackend is open in another trio\.run.*from_thread\.run\("):
            await written(store, "other")

    async with headway.open_engine(store, APP, report=ignore) as engine:
        async with store:
            await in_thread(other)
        # It was open twice.
        await in_thread(other)
        await engine.client.apply(TEAM.new("own"))
        await engine.wait_idle()
        assert [each.name for each in await engine.client.list(TEAM)] == ["own"]


async def test_store_in_memory_is_free_for_another_run_once_it_is_closed() -> None:
    """This holds although the run that had it open goes on."""
    store = MemoryBackend()
    assert await written(store, "own") == ["own"]

    async def other() -> None:
        assert await written(store, "other") == ["other", "own"]

    await in_thread(other)
    assert await written(store, "third") == ["other", "own", "third"]


@pytest.mark.parametrize("end", ["error", "cancellation"])
async def test_store_in_memory_is_free_after_a_run_that_ended_early(end: str) -> None:
    store = MemoryBackend()

    async def failing() -> None:
        with trio.CancelScope() as scope:
            async with headway.open_engine(store, APP, report=ignore) as engine:
                await engine.client.apply(TEAM.new("first"))
                if end == "error":
                    raise ValueError("it ended")
                scope.cancel()
                await trio.sleep_forever()

    if end == "error":
        with pytest.raises(ValueError, match="it ended"):
            await in_thread(failing)
    else:
        await in_thread(failing)
    assert await written(store, "second") == ["first", "second"]


async def test_store_in_memory_is_free_after_a_run_that_never_closed_it() -> None:
    """A run of Trio that crashes runs no more code of its tasks."""
    store = MemoryBackend()

    async def crashed() -> None:
        await store.__aenter__()

    await in_thread(crashed)
    assert await written(store, "second") == ["second"]
    await store.__aexit__()

    async def other() -> None:
        with pytest.raises(WrongTrioRun):
            await written(store, "third")

    async def closes_late() -> None:
        await store.__aexit__()

    async with store:
        await in_thread(closes_late)
        await in_thread(other)

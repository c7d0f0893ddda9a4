"""The controllers of peerings cost nothing before there is a peering, and begin with the first one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway import events
from headway.errors import StoreUnusable
from headway.peering import (
    PEERING,
    STATUS_KEY,
    Peering,
    PeeringState,
    Role,
    ensure_partition,
    establish,
    exchange,
    generate_token,
)
from headway.peering import _lifecycle as lifecycle
from headway.storage import MemoryBackend
from tests.helpers.peers import TEAM, Team, app, open_peers, reached
from tests.peering.test_copying import copy_that, peered, size
from tests.test_shared_store import SharedMemory

NAMES = {"headway/peerings", "headway/peer-streams"}


async def test_engine_without_a_peering_runs_no_controller_for_it() -> None:
    async with headway.open_engine("memory:", app, report=events.ignore) as engine:
        await engine.wait_idle()
        assert NAMES.isdisjoint(engine.controllers)
        assert NAMES.isdisjoint(each.name for each in engine.status())


async def test_wait_idle_includes_the_work_on_the_first_peering() -> None:
    async with headway.open_engine("memory:", app, report=events.ignore) as engine:
        await engine.client.create(PEERING.new("west", Peering(role=Role.ACCEPTS)))
        await engine.wait_idle()
        assert set(engine.controllers) >= NAMES
        assert STATUS_KEY in (await engine.client.read(PEERING, "west")).status


async def test_controllers_begin_with_a_peering_that_is_stored_already() -> None:
    store = MemoryBackend()
    async with headway.open_engine(store, app, report=events.ignore) as engine:
        await engine.client.create(PEERING.new("west", Peering(role=Role.ACCEPTS)))
    async with headway.open_engine(store, app, report=events.ignore) as engine:
        await headway.until(engine.client, PEERING, "west", lambda found: found is not None)
        await engine.wait_idle()
        assert set(engine.controllers) >= NAMES


async def test_controllers_begin_with_a_peering_that_another_engine_has_written() -> None:
    """Nobody calls this engine meanwhile. The other one ends, and this one does the work."""
    async with (
        SharedMemory() as store,
        headway.open_engine(nullcontext(store), app, process="a", report=events.ignore) as engine,
    ):
        async with headway.open_engine(nullcontext(store), app, process="b", report=events.ignore) as other:
            await other.client.create(PEERING.new("west", Peering(role=Role.ACCEPTS)))
        await headway.until(
            engine.client, PEERING, "west", lambda found: found is not None and STATUS_KEY in found.status
        )
        assert set(engine.controllers) >= NAMES


async def test_dialer_whose_partition_comes_late_copies_soon_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two controllers prepare a peering. The one that dials may be first, and must not wait for a minute then."""
    real: Callable[..., Awaitable[None]] = ensure_partition
    was_early: list[str] = []

    async def late(backend: Any, client: headway.Client, peering: Any) -> None:
        if peering.data.role is Role.DIALS and not was_early:
            await headway.until(
                client,
                PEERING,
                peering.name,
                lambda east: east is not None and "does not exist yet" in str(east.status),
            )
            was_early.append(peering.name)
        await real(backend, client, peering)

    monkeypatch.setattr(lifecycle, "ensure_partition", late)
    with trio.fail_after(30):
        async with peered(tmp_path) as (accepts, dials, _):
            await accepts.client.write(TEAM.new("ada", Team(size=1)))
            await copy_that(dials, "east", "ada", size(1))
    assert was_early == ["east"]


async def test_conflict_after_an_exchange_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the peering would never know the other store."""
    real: Callable[..., Awaitable[Any]] = exchange
    exchanges = 0
    with trio.fail_after(30):
        async with open_peers(tmp_path) as (accepts, dials, address):

            async def raced(peering: Any, *about: Any) -> Any:
                nonlocal exchanges
                exchanges += 1
                reply = await real(peering, *about)
                if exchanges == 1:
                    now = await dials.client.read(PEERING, "east")
                    now.metadata["note"] = "changed meanwhile"
                    await dials.client.write(now)
                return reply

            monkeypatch.setattr(lifecycle, "exchange", raced)
            token = await generate_token(accepts.client, "west", [TEAM], addresses=[address], plain_text=True)
            await establish(dials.client, "east", token, plain_text=True)
            await reached(dials, "east", PeeringState.ACTIVE)
            assert (await dials.client.read(PEERING, "east")).data.peer_store_id
    assert exchanges >= 2


class Unreadable(MemoryBackend):
    """A store in which new reads of a whole type can be made to fail."""

    failing = False

    async def watch(self, *about: Any, **named: Any) -> Any:
        if self.failing:
            raise StoreUnusable("the store cannot be read")
        return await super().watch(*about, **named)


async def test_wait_idle_does_not_fail_while_the_store_cannot_be_read() -> None:
    store = Unreadable()
    async with headway.open_engine(store, app, report=events.ignore) as engine:
        await engine.wait_idle()
        store.failing = True
        with pytest.raises(headway.errors.HeadwayError):
            await engine.client.list(PEERING)
        await engine.wait_idle()

"""A dialing peering that is deleted while the link is down: the other side learns of it when the link is back."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import headway
from headway import Engine, events
from headway.errors import Conflict
from headway.peering import (
    NOTIFIED,
    PEERING,
    STREAM_KEY,
    Peering,
    PeeringState,
    SecretStore,
    condition_of,
    establish,
    generate_token,
    state_of,
)
from headway.resource import PARTITION, Condition, Resource
from headway.storage import MemoryBackend
from tests.helpers.peers import TEAM, Team, app, open_accepting, reached
from tests.peering.test_copying import copy_that, size


@asynccontextmanager
async def opened(store: MemoryBackend, path: Path, found: list[object] | None = None) -> AsyncIterator[Engine]:
    """Open the engine that accepts, on a store that outlives it."""
    listen = [f"unix:{path}/accepts"]
    report = events.ignore if found is None else found.append
    async with headway.open_engine(store, app, network=headway.Network(listen, insecure=True), report=report) as engine:
        yield engine


async def peer(accepts: Engine, dials: Engine) -> None:
    """Connect both, and wait until a team of each is copied."""
    token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
    await establish(dials.client, "east", token, [TEAM], plain_text=True)
    await accepts.client.write(TEAM.new("ada", Team(size=1)))
    await dials.client.write(TEAM.new("ben", Team(size=2)))
    await copy_that(dials, "east", "ada", size(1))
    await copy_that(accepts, "west", "ben", size(2))


def not_notified(peering: Resource[Peering] | None) -> Condition | None:
    """Return the condition of a peering that waits until the other side is notified."""
    return None if peering is None else condition_of(peering, STREAM_KEY, NOTIFIED)


async def waiting(dials: Engine) -> Resource[Peering]:
    """Wait until the deleted peering has lost its copies, and waits for the other side."""
    await headway.until_gone(dials.client, PARTITION, "peer-east")
    found = await headway.until(
        dials.client,
        PEERING,
        "east",
        lambda east: "no server can be reached" in getattr(not_notified(east), "message", "") or east is None,
    )
    assert found is not None
    assert state_of(found) is PeeringState.DELETING
    assert await dials.client.list(TEAM, partition="peer-east") == []
    return found


async def test_accepting_side_that_returns_learns_of_the_deletion(tmp_path: Path) -> None:
    """The dialing engine is restarted before that."""
    store = MemoryBackend()
    with trio.fail_after(60):
        async with MemoryBackend() as mine:
            async with headway.open_engine(mine, app, report=events.ignore) as dials:
                async with opened(store, tmp_path) as accepts:
                    await peer(accepts, dials)
                await dials.client.delete(PEERING.id("east"))
                condition = not_notified(await waiting(dials))
                assert condition is not None
                assert "`headway peer delete east --force` removes the peering" in condition.message
            async with headway.open_engine(mine, app, report=events.ignore) as dials:
                uid = (await waiting(dials)).id.uid
                async with opened(store, tmp_path) as accepts:
                    await reached(accepts, "west", PeeringState.TERMINATED)
                    await copy_that(accepts, "west", "ben", lambda copy: copy is None)
                    await headway.until_gone(dials.client, PEERING, "east")
                assert await SecretStore(mine).read(uid) is None


async def test_deletion_is_confirmed_only_once_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An accepting side that ends before it has stored the deletion is notified again."""
    real = headway.Client.write_status
    failures = 0

    async def failing(client: headway.Client, resource: Resource[Peering], key: str, given: list[Condition]) -> object:
        nonlocal failures
        if failures < 2 and any(each.type == "Terminated" for each in given):
            failures += 1
            raise Conflict("for a test")
        return await real(client, resource, key, given)

    store = MemoryBackend()
    with trio.fail_after(60):
        async with headway.open_engine("memory:", app, report=events.ignore) as dials:
            async with opened(store, tmp_path) as accepts:
                await peer(accepts, dials)
                with monkeypatch.context() as patch:
                    patch.setattr(headway.Client, "write_status", failing)
                    await dials.client.delete(PEERING.id("east"))
                    await headway.until_gone(dials.client, PEERING, "east")
            assert failures == 2
            async with opened(store, tmp_path) as accepts:
                assert state_of(await accepts.client.read(PEERING, "west")) is PeeringState.TERMINATED


async def test_deletion_ends_when_its_finalizer_is_removed(tmp_path: Path) -> None:
    """This is what `headway peer delete --force` does."""
    with trio.fail_after(60):
        async with headway.open_engine("memory:", app, report=events.ignore) as dials:
            async with open_accepting(tmp_path) as accepts:
                await peer(accepts, dials)
            await dials.client.delete(PEERING.id("east"))
            await waiting(dials)
            while (left := await dials.client.get(PEERING, "east")) is not None:
                left.finalizers -= {STREAM_KEY}
                with contextlib.suppress(Conflict):
                    await dials.client.write(left)
                    break
            await headway.until_gone(dials.client, PEERING, "east")
            await dials.wait_idle()
            assert await dials.client.list(PEERING) == []


async def test_deletion_gives_up_after_a_bound_and_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []
    with trio.fail_after(60):
        async with headway.open_engine("memory:", app, report=found.append) as dials:
            async with open_accepting(tmp_path) as accepts:
                await peer(accepts, dials)
            await dials.client.delete(PEERING.id("east"))
            await waiting(dials)
            monkeypatch.setattr("headway.peering.links._controller.TERMINATED_FOR", datetime.timedelta(0))
            await headway.until_gone(dials.client, PEERING, "east")
    (event,) = (each for each in found if isinstance(each, events.PeerNotNotified))
    assert (event.peering, "no server can be reached" in event.why) == ("east", True)


async def test_deletion_ends_if_the_other_store_no_longer_knows_the_peering(tmp_path: Path) -> None:
    """Another engine on an empty store has the address now."""
    found: list[object] = []
    with trio.fail_after(60):
        async with headway.open_engine("memory:", app, report=found.append) as dials:
            async with open_accepting(tmp_path) as accepts:
                await peer(accepts, dials)
            async with open_accepting(tmp_path):
                await dials.client.delete(PEERING.id("east"))
                await headway.until_gone(dials.client, PEERING, "east")
    (event,) = (each for each in found if isinstance(each, events.PeerNotNotified))
    assert event.why.startswith("the peering's secret is not valid here")


async def test_peering_that_was_never_exchanged_is_deleted_at_once(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with headway.open_engine("memory:", app, report=events.ignore) as dials:
            data = Peering(role=2, addresses=[f"unix:{tmp_path}/nobody"], plain_text=True)  # type: ignore[arg-type]
            await dials.client.create(PEERING.new("east", data))
            await reached(dials, "east", PeeringState.FAILING)
            await dials.client.delete(PEERING.id("east"))
            await headway.until_gone(dials.client, PEERING, "east")

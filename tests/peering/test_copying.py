"""Two engines that peer: what one exports appears in the other, follows its changes, and goes with the original."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

import headway
from headway import Engine, events
from headway.errors import Conflict
from headway.peering import PEERING, STREAM_KEY, Peering, PeeringState, establish, export, generate_token
from headway.resource import PARTITION, ConditionState, Resource
from tests.helpers.peers import ROOM, TEAM, Peers, Room, Team, app, open_accepting, open_peers, reached

DEADLINE = 60.0


@asynccontextmanager
async def peered(path: Path, **options: Any) -> AsyncIterator[Peers]:
    """Open two engines that peer: both export teams and rooms of the partition default."""
    with trio.fail_after(DEADLINE):
        async with open_peers(path, **options) as peers:
            exports = [export(TEAM, partition="default"), export(ROOM, partition="default")]
            token = await generate_token(
                peers.accepts.client, "west", exports=exports, addresses=[peers.address], plain_text=True
            )
            await establish(peers.dials.client, "east", token, exports=exports, plain_text=True)
            yield peers


async def copy_that(
    engine: headway.Engine, peering: str, name: str, holds: Callable[[Resource[Any] | None], bool], type: Any = TEAM
) -> Resource[Any] | None:
    """Wait until a copy is as it should be, and return it."""
    return await headway.until(engine.client, type, type.id(name, partition=f"peer-{peering}"), holds)


def size(wanted: int) -> Callable[[Resource[Any] | None], bool]:
    """Return a check of a copy's size."""
    return lambda copy: copy is not None and copy.data.size == wanted


async def test_changes_of_both_sides_are_copied_to_the_other(tmp_path: Path) -> None:
    async with peered(tmp_path) as (accepts, dials, _):
        await accepts.client.write(TEAM.new("ada", Team(size=1)))
        await dials.client.write(TEAM.new("ben", Team(size=2)))
        await dials.client.write(ROOM.new("hall", Room(size=3)))
        ada = await copy_that(dials, "east", "ada", size(1))
        await copy_that(accepts, "west", "ben", size(2))
        await copy_that(accepts, "west", "hall", size(3), ROOM)
        original = await accepts.client.read(TEAM, "ada")
        assert ada is not None
        assert ada.metadata == {
            "originUid": original.uid,
            "originVersion": original.version,
            "originPartition": "default",
        }
        assert (ada.generation, ada.owner, ada.uid != original.uid) == (original.generation, None, True)
        original.data = Team(size=5)
        await accepts.client.write(original)
        again = await copy_that(dials, "east", "ada", size(5))
        assert again is not None
        assert again.uid == ada.uid
        await accepts.client.delete(TEAM.id("ada"))
        await copy_that(dials, "east", "ada", lambda copy: copy is None)
        assert await accepts.client.get(TEAM, TEAM.id("ada", partition="peer-west")) is None


def holds(type: str, reason: str = "") -> Callable[[Resource[Peering] | None], bool]:
    """Return a check that a condition of the stream is true, or has a reason."""

    def check(peering: Resource[Peering] | None) -> bool:
        status = None if peering is None else peering.status.get(STREAM_KEY)
        found = [] if status is None else [each for each in status.conditions if each.type == type]
        return any(each.reason == reason or (not reason and each.state is ConditionState.TRUE) for each in found)

    return check


async def peering_when(engine: Engine, name: str, check: Callable[[Resource[Peering] | None], bool]) -> None:
    """Wait until a Peering is as it should be."""
    await headway.until(engine.client, PEERING, name, check)


async def test_conditions_show_the_stream_and_the_copies(tmp_path: Path) -> None:
    async with peered(tmp_path) as (accepts, dials, _):
        for engine, name in ((accepts, "west"), (dials, "east")):
            await reached(engine, name, PeeringState.ACTIVE)
            for condition in ("Connected", "Copied", "Received", "Exported"):
                await peering_when(engine, name, holds(condition))


async def test_r4_deleting_one_side_terminates_the_other_and_removes_all_copies(tmp_path: Path) -> None:
    async with peered(tmp_path) as (accepts, dials, _):
        await accepts.client.write(TEAM.new("ada", Team(size=1)))
        await dials.client.write(TEAM.new("ben", Team(size=2)))
        await copy_that(dials, "east", "ada", size(1))
        await copy_that(accepts, "west", "ben", size(2))
        await accepts.client.delete(PEERING.id("west"))
        await reached(dials, "east", PeeringState.TERMINATED)
        await copy_that(dials, "east", "ada", lambda copy: copy is None)
        await headway.until(accepts.client, PEERING, "west", lambda found: found is None)
        assert await accepts.client.get(PARTITION, "peer-west") is None
        assert [each.id.partition for each in await accepts.client.list(TEAM)] == ["default"]
        await dials.client.delete(PEERING.id("east"))
        await headway.until(dials.client, PARTITION, "peer-east", lambda found: found is None)


async def test_r4_deleting_the_dialing_side_terminates_the_other(tmp_path: Path) -> None:
    async with peered(tmp_path) as (accepts, dials, _):
        await reached(dials, "east", PeeringState.ACTIVE)
        await dials.client.delete(PEERING.id("east"))
        await reached(accepts, "west", PeeringState.TERMINATED)


async def test_r10_dialing_side_stores_the_changed_addresses_of_the_other(tmp_path: Path) -> None:
    """It connects to them from then on."""
    async with peered(tmp_path) as (accepts, dials, address):
        wanted = [f"unix:{tmp_path}/another", address]
        changed = False
        while not changed:
            accepting = await accepts.client.read(PEERING, "west")
            accepting.data.addresses = wanted
            # The engine writes the status of the peering at the same time.
            with contextlib.suppress(Conflict):
                await accepts.client.write(accepting)
                changed = True
        await peering_when(dials, "east", lambda found: found is not None and found.data.addresses == wanted)


async def test_dialer_that_was_away_learns_of_the_deletion(tmp_path: Path) -> None:
    """The accepting side remembers the secret of a deleted peering."""
    store = f"sqlite:{tmp_path}/dials.db"
    with trio.fail_after(DEADLINE):
        async with open_accepting(tmp_path) as accepts:
            async with headway.open_engine(store, app, report=events.ignore) as dials:
                exports = [export(TEAM, partition="default")]
                token = await generate_token(accepts.client, "west", exports=exports, plain_text=True)
                await establish(dials.client, "east", token, plain_text=True)
                await accepts.client.write(TEAM.new("ada", Team(size=1)))
                await copy_that(dials, "east", "ada", size(1))
            await accepts.client.delete(PEERING.id("west"))
            await headway.until(accepts.client, PEERING, "west", lambda found: found is None)
            async with headway.open_engine(store, app, report=events.ignore) as dials:
                await reached(dials, "east", PeeringState.TERMINATED)
                await copy_that(dials, "east", "ada", lambda copy: copy is None)


async def test_copies_stay_while_the_link_is_down_and_follow_afterwards(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/accepts.db"
    with trio.fail_after(DEADLINE):
        async with headway.open_engine("memory:", app, report=events.ignore) as dials:
            listen = [f"unix:{tmp_path}/a"]
            async with headway.open_engine(
                store, app, network=headway.Network(listen, insecure=True), report=events.ignore
            ) as accepts:
                exports = [export(TEAM, partition="default")]
                token = await generate_token(accepts.client, "west", exports=exports, plain_text=True)
                await establish(dials.client, "east", token, plain_text=True)
                await accepts.client.write(TEAM.new("ada", Team(size=1)))
                await copy_that(dials, "east", "ada", size(1))
            await reached(dials, "east", PeeringState.FAILING)
            assert await dials.client.get(TEAM, TEAM.id("ada", partition="peer-east")) is not None
            async with headway.open_engine(
                store, app, network=headway.Network(listen, insecure=True), report=events.ignore
            ) as accepts:
                await accepts.client.write(TEAM.new("ada", Team(size=2)))
                await copy_that(dials, "east", "ada", size(2))


async def test_imported_resources_are_not_exported_again(tmp_path: Path) -> None:
    """Both sides export every partition."""
    with trio.fail_after(DEADLINE):
        async with open_peers(tmp_path) as (accepts, dials, _):
            token = await generate_token(accepts.client, "west", exports=[TEAM], plain_text=True)
            await establish(dials.client, "east", token, exports=[TEAM], plain_text=True)
            await accepts.client.write(TEAM.new("ada", Team(size=1)))
            await dials.client.write(TEAM.new("ben", Team(size=1)))
            await copy_that(dials, "east", "ada", size(1))
            await copy_that(accepts, "west", "ben", size(1))
            await accepts.client.write(TEAM.new("last", Team(size=1)))
            await copy_that(dials, "east", "last", size(1))
            found = sorted((each.id.partition, each.name) for each in await accepts.client.list(TEAM))
            assert found == [("default", "ada"), ("default", "last"), ("peer-west", "ben")]

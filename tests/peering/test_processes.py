"""Two real processes with a store each: kill -9, a link that is cut or slow, and a store that is put back.

They converge: each side has a copy of every original of the other, and no other copies. Nothing is written back.
"""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest
import trio

from headway.errors import HeadwayError
from headway.resource import NAMESPACE
from tests.helpers.peer_processes import PATIENCE, Side, World, open_world
from tests.helpers.peers import TEAM, Team

ROUNDS = int(os.environ.get("HEADWAY_FAULT_ROUNDS", "25"))
SEED = int(os.environ.get("HEADWAY_FAULT_SEED", "1"))


async def put(side: Side, name: str, size: int, namespace: str = "default") -> None:
    await side.client.apply(TEAM.new(name, Team(size=size), namespace=namespace))


@pytest.mark.wide
async def test_stores_converge_after_a_kill_of_each_side_and_a_cut(tmp_path: Path) -> None:
    """The same names on both sides are different originals. What changed while the link was down is copied later."""
    async with open_world(tmp_path) as world:
        west, east = world.west, world.east
        await west.client.apply(NAMESPACE.new("a"))
        await put(west, "both", 1)
        await put(west, "lab", 2, "a")
        await put(east, "both", 3)
        await put(east, "gone", 4)
        await world.converge()

        world.link.cut()
        await west.restart()
        await put(west, "new", 5)
        await west.client.delete(TEAM.id("lab", namespace="a"))
        world.link.mend()
        await east.kill()
        await put(west, "both", 6)
        await east.start()
        await east.client.delete(TEAM.id("gone"))
        await put(east, "both", 7)
        await world.converge()
        assert await east.content("peer-west") == {("default", "both"): 6, ("default", "new"): 5}
        assert await west.content("peer-east") == {("default", "both"): 7}


@pytest.mark.wide
async def test_exchange_goes_on_after_a_kill_of_either_side_at_any_part_of_its_answer(tmp_path: Path) -> None:
    """The token is not needed again: the dialing side has stored it, and repeats the exchange."""
    async with open_world(tmp_path, established=False) as world, trio.open_nursery() as nursery:
        await put(world.west, "ada", 1)
        await put(world.east, "ben", 2)
        held = world.link.hold(0)
        nursery.start_soon(_establish, world)
        for room in range(1, 5):
            with trio.fail_after(PATIENCE):
                await held.wait()
            victim = world.west if room % 2 else world.east
            await victim.kill()
            held = world.link.hold(room)
            await victim.start()
        await world.converge()
        nursery.cancel_scope.cancel()


async def _establish(world: World) -> None:
    """Let the sides peer. The call may fail with the side that is killed."""
    with contextlib.suppress(HeadwayError):
        await world.establish()


@pytest.mark.deep
@pytest.mark.timeout(900)
async def test_stores_converge_after_random_faults(tmp_path: Path) -> None:
    """Both sides are written to all the time. At the end of each round they have converged.

    A store that is put back is as it was at the end of an earlier round.
    """
    chance = random.Random(SEED)
    async with open_world(tmp_path) as world:
        for side in (world.west, world.east):
            await side.client.apply(NAMESPACE.new("a"))
        backups: dict[str, Path] = {}
        for number in range(ROUNDS):
            over = trio.Event()
            async with trio.open_nursery() as nursery:
                for side in (world.west, world.east):
                    nursery.start_soon(_write, side, random.Random(f"{SEED} {number} {side.name}"), over)
                for _ in range(chance.randint(1, 3)):
                    await _fault(world, chance, backups)
                over.set()
            await world.converge()
            if chance.random() < 0.5:
                side = chance.choice([world.west, world.east])
                backups[side.name] = await side.backup()


@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("which", ["west", "east"])
async def test_stores_converge_after_one_is_put_back(tmp_path: Path, which: str) -> None:
    """The other side loses the copies of what the backup does not have, and gets back what it still has."""
    async with open_world(tmp_path) as world:
        restored, other = (world.west, world.east) if which == "west" else (world.east, world.west)
        copies = f"peer-{restored.name}"
        await put(restored, "kept", 1)
        await put(restored, "deleted", 2)
        await put(other, "theirs", 3)
        await world.converge()
        backup = await restored.backup()

        await put(restored, "kept", 4)
        await put(restored, "lost", 5)
        await restored.client.delete(TEAM.id("deleted"))
        await put(other, "later", 6)
        await world.converge()
        assert await other.content(copies) == {("default", "kept"): 4, ("default", "lost"): 5}

        await restored.put_back(backup)
        await world.converge()
        assert await other.content(copies) == {("default", "kept"): 1, ("default", "deleted"): 2}
        assert await other.content() == {("default", "theirs"): 3, ("default", "later"): 6}


async def _write(side: Side, chance: random.Random, over: trio.Event) -> None:
    """Create, update and delete teams, until the event is set. The process may be killed at any moment.

    A call that has begun ends before this returns. The server may store a canceled write at any time afterwards, so
    the content of its store would not be final.
    """
    while not over.is_set():
        name, namespace = f"t{chance.randrange(12)}", chance.choice(["default", "a"])
        try:
            if chance.random() < 0.3:
                await side.client.delete(TEAM.id(name, namespace=namespace))
            else:
                await put(side, name, chance.randrange(1000), namespace)
        except HeadwayError:
            await trio.lowlevel.checkpoint()


async def _fault(world: World, chance: random.Random, backups: dict[str, Path]) -> None:
    """Do one thing that peers must survive, at a random moment."""
    await trio.sleep(chance.random())
    match chance.choice(["west", "east", "both", "cut", "slow", *(["put back"] if backups else [])]):
        case "put back":
            name = chance.choice(sorted(backups))
            await (world.west if name == "west" else world.east).put_back(backups[name])
        case "both":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(world.west.restart)
                nursery.start_soon(world.east.restart)
        case "cut":
            world.link.cut()
            await trio.sleep(chance.random())
            world.link.mend()
        case "slow":
            world.link.delay = chance.random() / 10
        case name:
            await (world.west if name == "west" else world.east).restart()

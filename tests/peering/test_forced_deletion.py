"""A peering whose finalizers a caller has removed: its stream ends, and nothing of it stays."""

from __future__ import annotations

import contextlib
from pathlib import Path

import trio

import headway
from headway import Engine, events
from headway.errors import Conflict, InvalidArgument, NotFound
from headway.peering import PEERING, STATE_KIND, PeeringState, SecretStore, establish, generate_token
from headway.resource import PARTITION, pb
from headway.storage import MemoryBackend, Within
from tests.helpers.peers import TEAM, Team, app, open_accepting, reached
from tests.peering.link_kit import eventually


async def force(engine: Engine, name: str) -> None:
    """Delete a peering, and remove its finalizers before its controllers do."""
    await engine.client.delete(PEERING.id(name))
    peering = await engine.client.get(PEERING, name)
    while peering is not None:
        peering.finalizers = frozenset()
        with contextlib.suppress(Conflict, NotFound, InvalidArgument):
            await engine.client.write(peering)
            return
        peering = await engine.client.get(PEERING, name)
    raise AssertionError("the controllers were faster")


async def test_peering_that_was_deleted_by_force_leaves_nothing(tmp_path: Path) -> None:
    memory = MemoryBackend()
    async with open_accepting(tmp_path) as accepts, headway.open_engine(memory, app, report=events.ignore) as dials:
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        dialing = await establish(dials.client, "east", token, [TEAM], plain_text=True)
        await accepts.client.write(TEAM.new("core", Team(size=1)))
        await headway.until(dials.client, TEAM, TEAM.id("core", partition="peer-east"), lambda found: found is not None)
        await force(dials, "east")
        await headway.until_gone(dials.client, PARTITION, "peer-east")
        assert await dials.client.list(TEAM, partition="peer-east") == []

        async def left() -> list[object]:
            return [await SecretStore(memory).read(dialing.id.uid), (await memory.list(STATE_KIND, Within()))[0]]

        with trio.fail_after(60):
            await eventually(left, [None, []])
        await reached(accepts, "west", PeeringState.TERMINATED)


async def earlier(memory: MemoryBackend, uid: str) -> None:
    """Store the secrets of a peering that is gone, and whose partition is gone."""
    peering = PEERING.view(pb.Resource(id=PEERING.id("east", uid=uid).message()))
    await SecretStore(memory).put_dialing(peering, "the secret of a token")


async def test_secrets_are_found_without_the_partition_of_their_peering(tmp_path: Path) -> None:
    """The partition of a peering that is deleted by force can be gone before the peering is.

    The secrets of an earlier peering of the name are removed when a new one is made, and when the last one is gone.
    """
    memory = MemoryBackend()
    await earlier(memory, "01M8D32G4W71WP16J90ZW0Y18P")
    async with open_accepting(tmp_path) as accepts, headway.open_engine(memory, app, report=events.ignore) as dials:
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        dialing = await establish(dials.client, "east", token, [TEAM], plain_text=True)
        secrets = SecretStore(memory)
        with trio.fail_after(30):
            await eventually(lambda: secrets.uids_of("east"), [dialing.id.uid])
        await earlier(memory, "01M8D32G7TNYAEH6WN8C36K4DA")
        await force(dials, "east")
        with trio.fail_after(30):
            await eventually(lambda: secrets.uids_of("east"), [])

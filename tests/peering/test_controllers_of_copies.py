"""A program on both sides whose controller writes to the copies: each write is refused by name, and copying goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

import headway
from headway import events
from headway.errors import FailedPrecondition
from headway.peering import PeeringState, establish, generate_token, peering_of
from headway.resource import Condition, ConditionState, Resource
from tests.helpers.peers import TEAM, Team, reached
from tests.peering.test_copying import copy_that, size


def program(refused: dict[str, set[str]]) -> headway.App:
    """Return a program that doubles the size of every team, and marks it in its status, also of copies."""
    app = headway.App("doubling")
    own = app.type("staff", "v1", "Team", Team)

    @app.controller(manages=own, backoff=headway.Backoff(0.01, 0.1))
    async def doubling(rt: headway.Runtime, request: headway.Request) -> None:
        team = rt.cache.get(own, request.id)
        if team is None or (team.metadata.get("doubled") == "yes" and not peering_of(team.id.partition)):
            return
        team.data.size *= 2
        team.metadata["doubled"] = "yes"
        await attempted(team, "write", lambda: rt.client.write(team))
        await attempted(team, "status", lambda: rt.client.write_status(team, "doubling", [READY]))
        await attempted(team, "delete", lambda: rt.client.delete(team) if peering_of(team.id.partition) else none())

    async def attempted(team: Resource[Any], what: str, write: Callable[[], Any]) -> None:
        try:
            await write()
        except FailedPrecondition as error:
            refused.setdefault(str(error).partition(":")[0], set()).add(f"{what} {team.name}")

    async def none() -> None:
        pass

    return app


READY = Condition(type="Ready", state=ConditionState.TRUE)
RESERVED = "partition {0!r} is reserved for the copies of peering {1!r}, which alone writes there"


def each(*names: str) -> set[str]:
    """Return all attempts to change these teams."""
    return {f"{what} {name}" for what in ("write", "status", "delete") for name in names}


async def test_writes_of_controllers_to_copies_are_refused_and_copying_goes_on(tmp_path: Path) -> None:
    west: dict[str, set[str]] = {}
    east: dict[str, set[str]] = {}
    listen = [f"unix:{tmp_path}/west"]
    with trio.fail_after(60):
        async with (
            headway.open_engine(
                "memory:", program(west), network=headway.Network(listen, insecure=True), report=events.ignore
            ) as accepts,
            headway.open_engine("memory:", program(east), report=events.ignore) as dials,
        ):
            token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
            await establish(dials.client, "east", token, [TEAM], plain_text=True)
            await accepts.client.write(TEAM.new("ada", Team(size=1)))
            await dials.client.write(TEAM.new("ben", Team(size=10)))
            for _ in range(3):
                # The controller of the original's side changes it, and the other one cannot change the copy.
                await copy_that(dials, "east", "ada", size(2))
                await copy_that(accepts, "west", "ben", size(20))
                for engine, name, start in ((accepts, "ada", 1), (dials, "ben", 10)):
                    team = await engine.client.read(TEAM, name)
                    team.data.size, team.metadata = start, {}
                    await engine.client.write(team)
            await dials.client.write(TEAM.new("last", Team(size=5)))
            copy = await copy_that(accepts, "west", "last", size(10))
            assert copy is not None
            await dials.wait_idle()
            await accepts.wait_idle()
            await reached(accepts, "west", PeeringState.ACTIVE)
            await reached(dials, "east", PeeringState.ACTIVE)
    assert east == {RESERVED.format("peer-east", "east"): each("ada")}
    assert west == {RESERVED.format("peer-west", "west"): each("ben", "last")}

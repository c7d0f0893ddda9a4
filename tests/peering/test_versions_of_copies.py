"""Two sides that peer and know other versions of a type: copies stay readable while each side is upgraded in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

import headway
from headway import Engine, events, field
from headway.peering import PEERING, PeeringState, establish, export, generate_token
from headway.resource import ResourceType
from headway.storage import MemoryBackend
from tests.helpers.peers import reached
from tests.peering.test_copying import peering_when


@headway.message
class Roster:
    names: list[str] = field(1)


@headway.message
class Member:
    name: str = field(1)


@headway.message
class Crew:
    members: list[Member] = field(1)


def up(old: Roster) -> Crew:
    return Crew(members=[Member(name=name) for name in old.names])


def down(new: Crew) -> Roster:
    return Roster(names=[member.name for member in new.members])


V1: ResourceType[Roster]
earlier = headway.App("earlier")
V1 = earlier.type("staff", "v1", "Team", Roster)
both = headway.App("both")
both_v1, V2 = both.type("staff", "v1", "Team", Roster), both.type("staff", "v2", "Team", Crew)
both.converter(both_v1, V2, up=up, down=down)
apart = headway.App("apart")
apart_v1, apart_v2 = apart.type("staff", "v1", "Team", Roster), apart.type("staff", "v2", "Team", Crew)
"""Two versions without a converter: a write as one of them replaces a resource that is stored as the other."""


class Sides:
    """Both stores, which outlive the programs on them."""

    def __init__(self, path: Path) -> None:
        self.west, self.east = MemoryBackend(), MemoryBackend()
        self._listen = [f"unix:{path}/west"]

    def open_west(self, app: headway.App) -> Any:
        """Open the accepting side with a program."""
        return headway.open_engine(
            self.west, app, network=headway.Network(self._listen, insecure=True), report=events.ignore
        )

    def open_east(self, app: headway.App) -> Any:
        """Open the dialing side with a program."""
        return headway.open_engine(self.east, app, report=events.ignore)


async def seen(engine: Engine, type: ResourceType[Any], wanted: dict[str, list[str]]) -> None:
    """Wait until the copies are these, as a version of the type."""
    async with engine.client.subscribe([headway.Subject(type, partition="peer-west")]) as batches:
        found: dict[str, list[str]] = {}
        async for batch in batches:
            for event in batch.events:
                assert isinstance(event, headway.client.Upserted)
                data = event.resource.data
                found[event.resource.name] = list(data.names) if isinstance(data, Roster) else list(down(data).names)
            if found == wanted:
                return
    raise AssertionError


async def test_copies_stay_readable_while_one_side_after_the_other_is_upgraded(tmp_path: Path) -> None:
    sides = Sides(tmp_path)
    with trio.fail_after(60):
        async with sides.open_west(earlier) as west, sides.open_east(earlier) as east:
            token = await generate_token(west.client, "east", [export(V1)], plain_text=True)
            await establish(east.client, "west", token, plain_text=True)
            await west.client.write(V1.new("old", Roster(names=["ada"])))
            await west.client.write(V1.new("both", Roster(names=["ada"])))
            await seen(east, V1, {"old": ["ada"], "both": ["ada"]})
        # The exporting side is upgraded, and stores its next write as the other version.
        async with sides.open_west(both) as west, sides.open_east(earlier) as east:
            await west.client.apply(V2.new("both", Crew(members=[Member(name="ben")])))
            await west.client.write(V2.new("new", Crew(members=[Member(name="cyd")])))
            await seen(east, V1, {"old": ["ada"], "both": ["ben"], "new": ["cyd"]})
        # So is the importing side. It reads the copies of either version as both.
        async with sides.open_west(both) as west, sides.open_east(both) as east:
            await seen(east, V2, {"old": ["ada"], "both": ["ben"], "new": ["cyd"]})
            peering = await west.client.read(PEERING, "east")
            peering.data.exports = [export(V2)]
            await west.client.write(peering)
            await west.client.apply(V2.new("new", Crew(members=[Member(name="dan")])))
            for type in (both_v1, V2):
                await seen(east, type, {"old": ["ada"], "both": ["ben"], "new": ["dan"]})
            await reached(east, "west", PeeringState.ACTIVE)


async def test_newer_version_than_the_importing_side_knows_is_refused_and_its_copies_stay(tmp_path: Path) -> None:
    sides = Sides(tmp_path)
    with trio.fail_after(60):
        async with sides.open_west(both) as west, sides.open_east(earlier) as east:
            token = await generate_token(west.client, "east", [export(both_v1)], plain_text=True)
            await establish(east.client, "west", token, plain_text=True)
            await west.client.write(V2.new("old", Crew(members=[Member(name="ada")])))
            await seen(east, V1, {"old": ["ada"]})
            peering = await west.client.read(PEERING, "east")
            peering.data.exports = [export(V2)]
            await west.client.write(peering)
            await peering_when(
                east,
                "west",
                lambda found: "staff.v2.Team in */*: no program here declares" in str(found and found.status),
            )
            await seen(east, V1, {"old": ["ada"]})


async def test_copy_follows_its_original_to_an_earlier_version_and_back(tmp_path: Path) -> None:
    """Without a converter, the original is deleted as one version and stored as the other, in one commit."""
    sides = Sides(tmp_path)
    with trio.fail_after(60):
        async with sides.open_west(apart) as west, sides.open_east(apart) as east:
            exports = [export(apart_v1), export(apart_v2)]
            token = await generate_token(west.client, "east", exports, plain_text=True)
            await establish(east.client, "west", token, plain_text=True)

            async def copied(type: ResourceType[Any]) -> str:
                """Write the original as a version, wait for its copy, and return the copy's uid."""
                data = Roster(names=["ada"]) if type is apart_v1 else Crew(members=[Member(name="ada")])
                original = await west.client.write(type.new("core", data))
                copy = await headway.until(
                    east.client,
                    type,
                    type.id("core", partition="peer-west"),
                    lambda found: found is not None and found.metadata["originVersion"] == original.version,
                )
                assert copy is not None
                assert copy.data == data
                return copy.uid

            assert len({await copied(type) for type in (apart_v2, apart_v1, apart_v2)}) == 1


async def test_copy_stays_when_its_original_moves_to_a_version_that_the_importing_side_does_not_know(
    tmp_path: Path,
) -> None:
    sides = Sides(tmp_path)
    with trio.fail_after(60):
        async with sides.open_west(apart) as west, sides.open_east(earlier) as east:
            token = await generate_token(west.client, "east", [export(apart_v1), export(apart_v2)], plain_text=True)
            await establish(east.client, "west", token, plain_text=True)
            await west.client.write(apart_v1.new("moves", Roster(names=["ada"])))
            await seen(east, V1, {"moves": ["ada"]})
            await west.client.write(apart_v2.new("moves", Crew(members=[Member(name="ben")])))
            await west.client.write(apart_v1.new("next", Roster(names=["cyd"])))
            await seen(east, V1, {"moves": ["ada"], "next": ["cyd"]})

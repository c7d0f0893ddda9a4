"""Resources of the receiving side that a copy owns: they are deleted after the copy, as with any other owner."""

from __future__ import annotations

from pathlib import Path

import headway
from headway.peering import establish, generate_token
from headway.peering.stream import COMMIT, commits
from headway.storage import MOST_OPERATIONS, Remove
from tests.helpers.peers import TEAM, Team, open_peers


async def test_what_a_copy_owns_is_deleted_after_it(tmp_path: Path) -> None:
    async with open_peers(tmp_path) as (accepts, dials, _):
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        await establish(dials.client, "east", token, plain_text=True)
        for name in ("core", "free"):
            await accepts.client.write(TEAM.new(name, Team(size=1)))
        id = TEAM.id("core", partition="peer-east")
        copy = await headway.until(dials.client, TEAM, id, lambda found: found is not None)
        assert copy is not None
        await dials.client.create(TEAM.new("mine", Team(size=2), owner=copy))
        await headway.until(dials.client, TEAM, TEAM.id("free", partition="peer-east"), lambda found: found is not None)
        for name in ("core", "free"):
            await accepts.client.delete(TEAM.id(name))
            await headway.until_gone(dials.client, TEAM, TEAM.id(name, partition="peer-east"))
        await headway.until_gone(dials.client, TEAM, "mine")


def test_commit_of_removals_has_room_for_what_each_needs() -> None:
    removals = [Remove(TEAM.kind, ("p", "n", str(each)), "u", "1") for each in range(100)]
    found = commits([*removals])
    assert [each for part in found for each in part] == removals
    assert max(len(part) for part in found) == COMMIT // 2
    assert COMMIT + 2 == MOST_OPERATIONS

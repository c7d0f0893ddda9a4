"""Copies count in the quotas of their partition, and a stream whose copies have no room ends."""

from __future__ import annotations

from trio.testing import MockClock

from headway.peering import copies_partition
from headway.quotas import QUOTA, Quota, rule_of
from tests.peering.link_kit import eventually, open_pair


async def test_stream_without_room_for_its_copies_ends_and_says_why(autojump_clock: MockClock) -> None:
    """The next stream, once there is room, brings what is missing."""
    async with open_pair() as pair:
        await pair.a.write("ada", "1")
        pair.connect()
        await pair.wait(pair.b, {"ada": ["1"]})
        rule_of(pair.b.host.backend)
        client = pair.b.host.client
        await client.write(QUOTA.new("copies", Quota(partition=copies_partition("east"), max_resources=1)))
        await pair.a.write("ben", "2")

        async def has_ended() -> bool:
            return bool(pair.b.ends)

        await eventually(has_ended, True)
        said = f"{pair.b.ends[0].reason}: {pair.b.ends[0]}"
        assert said.startswith("StoreFailed: quota 'copies' is exceeded: partition peer-east may have 1 resources")
        await client.delete(QUOTA.id("copies"))
        pair.connect()
        await pair.wait(pair.b, {"ada": ["1"], "ben": ["2"]})

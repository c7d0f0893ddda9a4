"""Streams that must not begin, that must end, and that must be dialed again."""

from __future__ import annotations

import contextlib

import pytest
import trio
from trio.testing import MockClock

from headway._gen.headway.peering import v1 as wire
from headway.errors import Unavailable
from headway.peering import PeerLimits, Role
from headway.peering._hub import DELETED, NOT_LEADING, SILENT, PeerStreams, StreamEnded
from headway.peering.links import Dialer, Link, open_importer
from tests.helpers.resources import TEAM
from tests.peering.link_kit import Message, Side, open_side, raw_peer


async def begun(side: Side) -> StreamEnded:
    """Begin a stream of a silent peer, and return why it has ended."""

    async def send(_: Message) -> None:
        raise AssertionError("nothing may be sent")

    async def silent() -> Message | None:
        await trio.sleep_forever()
        return None

    importer = await open_importer(side.host, side.entry.peering, PeerLimits())
    link = Link(side.host, side.entry, importer, send, silent, limits=PeerLimits(), dialing=False)
    with trio.fail_after(60):
        return await link.run()


async def test_stream_of_a_peering_that_was_deleted_does_not_begin() -> None:
    """Loading the copies takes time. A deletion in between finds no stream to end."""
    async with open_side("west", Role.ACCEPTS, TEAM) as side:
        side.entry.close(StreamEnded(DELETED, "the peering was deleted"))
        assert (await begun(side)).reason == DELETED
        assert not side.entry.connected


async def test_stream_does_not_begin_in_a_process_that_has_resigned() -> None:
    async with open_side("west", Role.ACCEPTS, TEAM) as side:
        streams = PeerStreams()
        streams.lead()
        streams.entries["uid"] = side.entry
        streams.resign()
        assert (await begun(side)).reason == NOT_LEADING


async def test_peer_that_takes_nothing_ends_the_stream(autojump_clock: MockClock) -> None:
    """Its heartbeats arrive, but a message that waits for it cannot be sent."""
    async with open_side("west", Role.ACCEPTS, TEAM) as side, raw_peer(side) as peer:
        with trio.move_on_after(600), contextlib.suppress(trio.BrokenResourceError):
            while True:
                await peer.send(Message(heartbeat=wire.Heartbeat()))
                await trio.sleep(15)
        assert [each.reason for each in side.ends] == [SILENT]
        assert "has taken nothing for 120 s" in str(side.ends[0])


async def test_dialer_survives_a_store_that_cannot_be_read(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would end the streams of all peerings."""
    async with open_side("east", Role.DIALS, TEAM) as side, trio.open_nursery() as nursery:
        reads = 0

        async def read(_: str) -> None:
            nonlocal reads
            reads += 1
            if reads < 3:
                raise Unavailable("the store cannot be reached")

        monkeypatch.setattr(side.host.secrets, "read", read)
        nursery.start_soon(Dialer(side.host, side.entry, PeerLimits()).run)
        await trio.sleep(30)
        assert reads > 3
        nursery.cancel_scope.cancel()

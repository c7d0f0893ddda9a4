"""A server that never answers a run's calls: each call times out, is reported and is repeated."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from headway import events
from headway.errors import Unavailable
from headway.resource import Bookmark, Position
from headway.run import deletions_since
from headway.testing import Fault
from tests.helpers.resources import TEAM
from tests.helpers.rig import Rig
from tests.helpers.scripted_channel import ScriptedChannel, pause


async def test_unanswered_first_raise_ends_the_run_and_the_next_one_starts(autojump_clock: MockClock) -> None:
    """The run ends after ten seconds with an error that says so. The next raise has a higher number."""
    rig = Rig(autojump_clock)
    rig.channel.raises(Fault.SILENT, Fault.SILENT)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        ended = rig.witness.events_of(events.RunEnded)
        assert [str(each.error) for each in ended] == ["Raise was not answered within 10 s"] * 2
        assert rig.names == ["a"]


async def test_unanswered_resolution_of_a_write_is_repeated(autojump_clock: MockClock) -> None:
    """The next raise has a higher number, and the delay is reported. The keys wait only until one raise is answered."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.wait_idle()
        rig.channel.writes(Fault.LOST)
        rig.channel.raises(Fault.SILENT, Fault.FAILED)
        began = trio.current_time()
        await rig.write_pool("a")
        await rig.write_member("m", "a")
        await rig.wait_idle()
        assert 10 < trio.current_time() - began < 15
        delayed = rig.witness.events_of(events.CallDelayed)
        assert [(each.call, type(each.error)) for each in delayed] == [("Raise", Unavailable)] * 2
        assert len(rig.witness.events_of(events.WriteResolved)) == 1


async def test_unanswered_record_of_a_checkpoint_is_repeated(autojump_clock: MockClock) -> None:
    """Only the next run needs the checkpoint, so the run continues and reports the delay."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        rig.channel.records(Fault.SILENT)
        await rig.write_pool("b")
        await trio.sleep(40)
        (delayed,) = rig.witness.events_of(events.CallDelayed)
        assert (delayed.call, str(delayed.error)) == ("RecordSettled", "RecordSettled was not answered within 10 s")
        assert rig.witness.events_of(events.RunEnded) == []


@pytest.mark.parametrize("bookmarks", [0, 1])
async def test_silent_stream_of_history_fails(autojump_clock: MockClock, bookmarks: int) -> None:
    """The read fails with Unavailable after half a minute of silence, at any point of the stream."""
    since = Position("store", "incarnation", 5)
    first = Bookmark(since, resumed=True)
    channel = ScriptedChannel([[*[first] * bookmarks, pause(1e9)]])
    began = autojump_clock.current_time()
    with pytest.raises(Unavailable, match="sent nothing of its history for 30 s"):
        await deletions_since(channel, TEAM, since, 9, lambda _: None, "pools")
    assert autojump_clock.current_time() - began == pytest.approx(30)

"""A server that takes a run's calls and never answers: each ends in its time, is seen, and is made again."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from headway import events
from headway.errors import Unavailable
from headway.resource import Bookmark, Position
from headway.run._priming import deletions_since
from headway.testing import Fault
from tests.helpers.resources import TEAM
from tests.helpers.rig import Rig
from tests.helpers.scripted_channel import Pause, ScriptedChannel


async def test_a_run_whose_first_raise_is_not_answered_ends_and_starts_again(autojump_clock: MockClock) -> None:
    """After ten seconds, with an error that says so; the next one raises above what may have been raised."""
    rig = Rig(autojump_clock)
    rig.channel.raises(Fault.SILENT, Fault.SILENT)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        ended = rig.witness.heard(events.RunEnded)
        assert [str(each.error) for each in ended] == ["Raise was not answered within 10 s"] * 2
        assert rig.names == ["a"]


async def test_a_settling_that_is_not_answered_is_tried_again(autojump_clock: MockClock) -> None:
    """With a higher number, and an operator sees it; the keys wait for no longer than that takes."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.settle()
        rig.channel.writes(Fault.LOST)
        rig.channel.raises(Fault.SILENT, Fault.FAILED)
        began = trio.current_time()
        await rig.write_pool("a")
        await rig.write_member("m", "a")
        await rig.settle()
        assert 10 < trio.current_time() - began < 15
        delayed = rig.witness.heard(events.CallDelayed)
        assert [(each.call, type(each.error)) for each in delayed] == [("Raise", Unavailable)] * 2
        assert len(rig.witness.heard(events.WriteResolved)) == 1


async def test_a_note_of_what_is_settled_that_is_not_answered_is_made_again(autojump_clock: MockClock) -> None:
    """Nothing depends on it but what the next run reads; so the run goes on, and it is seen."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        rig.channel.records(Fault.SILENT)
        await rig.write_pool("b")
        await trio.sleep(40)
        (delayed,) = rig.witness.heard(events.CallDelayed)
        assert (delayed.call, str(delayed.error)) == ("RecordSettled", "RecordSettled was not answered within 10 s")
        assert rig.witness.heard(events.RunEnded) == []


@pytest.mark.parametrize("told", [0, 1])
async def test_a_history_that_is_not_told_ends(autojump_clock: MockClock, told: int) -> None:
    """Nothing for half a minute, at its beginning or in its midst, is Unavailable: the next run asks again."""
    since = Position("store", "incarnation", 5)
    first = Bookmark(since, resumed=True)
    channel = ScriptedChannel([[*[first] * told, Pause(1e9)]])
    began = autojump_clock.current_time()
    with pytest.raises(Unavailable, match="sent nothing of its history for 30 s"):
        await deletions_since(channel, TEAM, since, 9, lambda _: None, "pools")
    assert autojump_clock.current_time() - began == pytest.approx(30)

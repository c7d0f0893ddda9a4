"""Priming waits for progress, not for a fixed time, and its status shows what it waits for."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import testing
from headway.errors import PrimingStalled
from headway.events import RunEnded, ignore
from headway.informers import Informers
from headway.run import wait_primed
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls
from tests.helpers.declared import NOTE, PLANET, a_note, registry
from tests.helpers.rig import Rig


async def test_type_without_any_data_ends_the_run_with_its_name(autojump_clock: MockClock) -> None:
    """The next run waits for the type as well, and continues when data arrives."""
    rig = Rig(autojump_clock)
    rig.channel.stall(rig.pools.summary)
    async with rig.open():
        await trio.sleep(59)
        assert rig.witness.events_of(RunEnded) == []
        await trio.sleep(2)
        [ended] = rig.witness.events_of(RunEnded)
        assert isinstance(ended.error, PrimingStalled)
        assert str(ended.error).startswith("priming test.v1.Summary stalled: nothing was received for 60.0 s")
        [status] = [each for each in rig.engine.status() if each.name == "test/pools"]
        assert "priming test.v1.Summary stalled" in status.error
        rig.channel.release(rig.pools.summary)
        await rig.write_pool("a")
        await rig.wait_idle()


async def test_stall_limit_is_configurable(autojump_clock: MockClock) -> None:
    """The limit is an argument of `open_engine`."""
    rig = Rig(autojump_clock)
    rig.channel.stall(rig.pools.summary)
    async with testing.open_engine(
        rig.store,
        rig.pools.app,
        report=rig.witness.report,
        wrap_channel=rig.channel.over,
        timing=headway.Timing(stall_limit=5),
    ):
        await trio.sleep(6)
        assert [type(each.error) for each in rig.witness.events_of(RunEnded)] == [PrimingStalled]


async def test_status_shows_the_types_that_priming_waits_for(autojump_clock: MockClock) -> None:
    """The status has how much of each type has arrived."""
    rig = Rig(autojump_clock)
    rig.channel.stall(rig.pools.summary)
    async with rig.open():
        await trio.sleep(7)
        [status] = [each for each in rig.engine.status() if each.name == "test/pools"]
        assert (status.phase, status.term, status.queue) == ("priming", 1, None)
        assert status.seconds == pytest.approx(7, abs=0.1)
        waits = f"waiting for test.v1.Summary (0 resources, revision 0 of {status.starting_revision})"
        assert status.problem == f"has been priming for 7 s, {waits}"
        rig.channel.release(rig.pools.summary)
        await rig.wait_idle()
        [status] = [each for each in rig.engine.status() if each.name == "test/pools"]
        assert (status.phase, status.problem) == ("running", "")
        assert {str(each.type): each.primed for each in status.types} == {
            "test.v1.Pool": True,
            "test.v1.Member": True,
            "test.v1.Summary": True,
        }


async def test_commits_of_others_are_progress_too(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A store that catches up slowly wakes nobody for them, but its stream tells how far it has come."""
    calls = Calls(MemoryBackend(), registry())
    informer = Informers(calls.channel, nursery, ignore).informer_for(NOTE)
    await informer.wait_complete(0)
    nursery.start_soon(wait_primed, informer, 2, 5.0)
    for _ in range(2):
        await trio.sleep(4)
        await calls.write(a_note(type=PLANET))
    with pytest.raises(PrimingStalled, match="its revision is 2 of 3"):
        await wait_primed(informer, 3, 5.0)
    nursery.cancel_scope.cancel()

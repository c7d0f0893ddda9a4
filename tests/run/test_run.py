"""A single run: its priming, the streams that it shares with other runs, and its functions that fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.testing import Fault
from tests.helpers.pools import Pool, SourceFailed
from tests.helpers.rig import Rig
from tests.helpers.truth import RecordingBackend


async def test_each_type_is_primed_by_a_task_of_its_own(autojump_clock: MockClock) -> None:
    """Two watched types and a managed one make three tasks. All of them reach the starting revision."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.wait_idle()
        primed = rig.witness.events_of(events.Primed)
        (started,) = rig.witness.events_of(events.RunStarted)

        assert {event.type for event in rig.witness.events_of(events.Priming)} == {
            type.name for type in rig.pools.types
        }
        assert [event.type for event in primed].count(rig.pools.pool.name) == 1
        assert len(primed) == 3
        assert all(event.revision >= started.starting_revision for event in primed)


async def test_process_opens_one_stream_per_type_and_shares_it(autojump_clock: MockClock) -> None:
    """A second controller, and a second run, join the open stream, so each type has one snapshot."""
    rig = Rig(autojump_clock)

    @rig.pools.app.controller(
        manages=rig.pools.member, watches=[headway.watch(rig.pools.pool, headway.mappers.same_name())]
    )
    async def second(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""

    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        await rig.restart()
        await rig.wait_idle()

        assert len(rig.witness.events_of(events.RunStarted)) == 3
        assert len(rig.witness.events_of(events.StreamOpened)) == 3
        # A stream that resumes only reads history, for deletions.
        snapshots = [kind for kind, resumed in rig.channel.opened if not resumed]
        assert sorted(snapshots) == sorted(type.kind for type in rig.pools.types)


async def test_change_between_priming_and_the_start_is_not_missed(autojump_clock: MockClock) -> None:
    """A pool that is written while another type is still being primed is reconciled."""
    rig = Rig(autojump_clock)
    rig.channel.stall(rig.pools.summary)
    async with rig.open():
        await trio.sleep(1)
        await rig.write_pool("a")
        await rig.write_member("m", "gone")
        await rig.engine.client.delete(rig.pools.member.id("m"))
        await trio.sleep(1)
        rig.channel.release(rig.pools.summary)
        await rig.wait_idle()
        assert set(rig.names) == {"a", "gone"}


async def test_broken_stream_resumes_without_ending_the_run(autojump_clock: MockClock) -> None:
    """The stream resumes after the frontier."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        rig.channel.drop(rig.pools.member)
        await rig.write_member("m", "a")
        await rig.wait_idle()

        opened = rig.witness.events_of(events.StreamOpened)[3:]
        assert [(event.type, event.resume_after is not None) for event in opened] == [(rig.pools.member.name, True)]
        assert not rig.witness.events_of(events.RunEnded)
        assert await rig.summaries() == {"a": ["m"]}


async def test_failing_initialiser_fails_the_run(autojump_clock: MockClock) -> None:
    """No key is reconciled until the initialiser has succeeded. wait_idle waits through its failures."""
    rig = Rig(autojump_clock)
    tries: list[float] = []

    async def initialiser(_: headway.Runtime) -> None:
        tries.append(trio.current_time())
        await trio.sleep(1)
        if len(tries) < 3:
            raise SourceFailed

    seen: list[int] = []

    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        seen.append(rt.term)

    rig.pools.replace(look, initialiser)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()

    assert (len(tries), seen) == (3, [5])
    assert [type(event.error) for event in rig.witness.events_of(events.RunEnded)] == [SourceFailed] * 2


async def test_source_that_raises_restarts_the_run_but_one_that_returns_does_not(autojump_clock: MockClock) -> None:
    """The error is in the report."""
    rig = Rig(autojump_clock)

    async def brief(_: headway.Runtime, enqueue: Callable[[headway.ResourceId], None]) -> None:
        enqueue(rig.pools.pool.id("from-source"))

    @rig.pools.app.controller(manages=rig.pools.pool, sources={"brief": brief})
    async def second(rt: headway.Runtime, request: headway.Request) -> None:
        seen.append((rt.term, str(request.reasons[0])))

    seen: list[tuple[int, str]] = []
    async with rig.open():
        await rig.wait_idle()
        await rig.restart()
        await rig.wait_idle()
        ended = [(event.controller, type(event.error)) for event in rig.witness.events_of(events.RunEnded)]

    assert ended == [("test/pools", SourceFailed)]
    assert seen == [(1, "source brief")]


@pytest.mark.parametrize("given", ["name", None, "other"])
async def test_source_may_only_enqueue_ids_of_the_managed_type(autojump_clock: MockClock, given: str | None) -> None:
    """Any other value raises in the source, and the error shows the right form."""
    rig = Rig(autojump_clock)
    refused: list[str] = []

    async def source(_: headway.Runtime, enqueue: Callable[[Any], None]) -> None:
        try:
            enqueue(rig.pools.member.id("m") if given == "other" else given)
        except headway.errors.CallerError as error:
            refused.append(str(error))

    @rig.pools.app.controller(manages=rig.pools.pool, sources={"odd": source})
    async def second(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""

    async with rig.open():
        await rig.wait_idle()

    assert "source odd enqueued" in refused[0]
    assert "return" not in refused[0]  # as a mapper does
    assert "TYPE.id(name)" in refused[0]


async def test_compacted_history_is_reported(autojump_clock: MockClock) -> None:
    """If the store no longer has the deletions since the last run, the run reports that and continues."""
    store = RecordingBackend(max_changes=3)
    first = Rig(autojump_clock, store=store)
    async with first.open():
        await first.write_pool("a")
        await first.wait_idle()
        await trio.sleep(6)
    second = Rig(autojump_clock, store=store)
    bare = headway.App("bare")
    for type in first.pools.types:
        bare.registry.register(type)
    async with headway.open_engine(store, bare) as engine:
        for number in range(10):
            await engine.client.apply(first.pools.pool.new("a", Pool(note=str(number))))
    async with second.open():
        await second.wait_idle()
        unknown = second.witness.events_of(events.DeletionsUnknown)

    assert {event.type for event in unknown} == {type.name for type in first.pools.types}
    assert second.names == ["a"]


async def test_wait_idle_ends_after_the_resolution_of_an_ignored_unknown_write(autojump_clock: MockClock) -> None:
    """A reconciler that ignores an unknown outcome leaves no key in the queue."""
    rig = Rig(autojump_clock)

    async def careless(rt: headway.Runtime, _: headway.Request) -> None:
        try:
            await rt.client.apply(rig.pools.summary.new("x"))
        except headway.errors.OutcomeUnknown:
            return

    rig.pools.replace(careless)
    rig.channel.writes(Fault.FAILED)
    rig.channel.raises(Fault.NONE, Fault.FAILED)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        assert len(rig.witness.events_of(events.WriteResolved)) == 1

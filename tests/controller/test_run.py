"""One run: its priming, what it shares with other runs, and how it bears failing functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.client import LeaseClient
from headway.testing import Fault
from tests.helpers.pools import Member, Pool, SourceFailed
from tests.helpers.rig import Rig
from tests.helpers.truth import RecordingBackend


async def test_each_of_the_types_is_primed_by_a_task_of_its_own(autojump_clock: MockClock) -> None:
    """With two watched types and a managed one there are three, and all are up to the starting revision."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.settle()
        primed = rig.witness.heard(events.Primed)
        (started,) = rig.witness.heard(events.RunStarted)

        assert {event.type for event in rig.witness.heard(events.Priming)} == {type.name for type in rig.pools.types}
        assert [event.type for event in primed].count(rig.pools.pool.name) == 1
        assert len(primed) == 3
        assert all(event.revision >= started.starting_revision for event in primed)


async def test_a_process_opens_one_stream_a_type_and_goes_on_from_it(autojump_clock: MockClock) -> None:
    """A second controller, and a second run, join the stream that is there: one snapshot a type, and no other."""
    rig = Rig(autojump_clock)

    @rig.pools.app.controller(manages=rig.pools.member, watches={rig.pools.pool: headway.map_same_name()})
    async def second(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""

    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        await rig.restart()
        await rig.settle()

        assert len(rig.witness.heard(events.RunStarted)) == 3
        assert len(rig.witness.heard(events.StreamOpened)) == 3
        # What resumes only reads the history, for deletions.
        snapshots = [kind for kind, resumed in rig.channel.opened if not resumed]
        assert sorted(snapshots) == sorted(type.kind for type in rig.pools.types)


async def test_what_comes_between_priming_and_the_begin_is_not_missed(autojump_clock: MockClock) -> None:
    """A pool that is written while another type is being primed is reconciled."""
    rig = Rig(autojump_clock)
    rig.channel.stall(rig.pools.summary)
    async with rig.open():
        await trio.sleep(1)
        await rig.write_pool("a")
        await rig.write_member("m", "gone")
        await rig.engine.client.delete(rig.pools.member.id("m"))
        await trio.sleep(1)
        rig.channel.release(rig.pools.summary)
        await rig.settle()
        assert set(rig.names) == {"a", "gone"}


async def test_a_stream_that_breaks_resumes_and_ends_no_run(autojump_clock: MockClock) -> None:
    """After a break the stream goes on from the frontier, and the run doesn't notice."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        rig.channel.drop(rig.pools.member)
        await rig.write_member("m", "a")
        await rig.settle()

        opened = rig.witness.heard(events.StreamOpened)[3:]
        assert [(event.type, event.resume_after is not None) for event in opened] == [(rig.pools.member.name, True)]
        assert not rig.witness.heard(events.RunEnded)
        assert await rig.summaries() == {"a": ["m"]}


async def test_an_initialiser_that_fails_fails_the_run(autojump_clock: MockClock) -> None:
    """Nothing is reconciled until a run's initialiser has succeeded; waiting for settling outlasts the failures."""
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
        await rig.settle()

    assert (len(tries), seen) == (3, [3])
    assert [type(event.error) for event in rig.witness.heard(events.RunEnded)] == [SourceFailed] * 2


async def test_a_source_that_raises_restarts_the_run_and_one_that_returns_does_not(autojump_clock: MockClock) -> None:
    """A source may end quietly; an error of it ends the run and is in the report."""
    rig = Rig(autojump_clock)

    async def brief(_: headway.Runtime, enqueue: Callable[[headway.ResourceId], None]) -> None:
        enqueue(rig.pools.pool.id("from-source"))

    @rig.pools.app.controller(manages=rig.pools.pool, sources={"brief": brief})
    async def second(rt: headway.Runtime, request: headway.Request) -> None:
        seen.append((rt.term, str(request.reasons[0])))

    seen: list[tuple[int, str]] = []
    async with rig.open():
        await rig.settle()
        await rig.restart()
        await rig.settle()
        ended = [(event.controller, type(event.error)) for event in rig.witness.heard(events.RunEnded)]

    assert ended == [("pools", SourceFailed)]
    assert seen == [(1, "source brief")]


@pytest.mark.parametrize("given", ["name", None, "other"])
async def test_a_source_may_enqueue_ids_of_the_managed_type_alone(autojump_clock: MockClock, given: str | None) -> None:
    """Anything else is refused in the source, with the right form."""
    rig = Rig(autojump_clock)
    refused: list[str] = []

    async def source(_: headway.Runtime, enqueue: Callable[[Any], None]) -> None:
        try:
            enqueue(rig.pools.member.id("m") if given == "other" else given)
        except headway.CallerError as error:
            refused.append(str(error))

    @rig.pools.app.controller(manages=rig.pools.pool, sources={"odd": source})
    async def second(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""

    async with rig.open():
        await rig.settle()

    assert "source odd enqueued" in refused[0]
    assert "TYPE.id(name)" in refused[0]


async def test_history_that_is_gone_is_reported(autojump_clock: MockClock) -> None:
    """Where the store no longer knows what was deleted while no run was there, the run says so and goes on."""
    store = RecordingBackend(max_changes=3)
    first = Rig(autojump_clock, store=store)
    async with first.open():
        await first.write_pool("a")
        await first.settle()
        await trio.sleep(6)
    second = Rig(autojump_clock, store=store)
    bare = headway.App("bare")
    for type in first.pools.types:
        bare.registry.register(type)
    async with headway.open_engine(store, bare) as engine:
        for number in range(10):
            await engine.client.apply(first.pools.pool.new("a", Pool(note=str(number))))
    async with second.open():
        await second.settle()
        unknown = second.witness.heard(events.DeletionsUnknown)

    assert {event.type for event in unknown} == {type.name for type in first.pools.types}
    assert second.names == ["a"]


async def test_a_run_that_was_superseded_ends_and_begins_anew(autojump_clock: MockClock) -> None:
    """When a write is refused because another run has begun, the run finds that out and doesn't go on failing."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        await LeaseClient(rig.channel).raise_fence("test/pools", "")
        await rig.write_member("m", "a")
        await rig.settle()
        (ended,) = rig.witness.heard(events.RunEnded)
        assert isinstance(ended.error, headway.Fenced)
        assert await rig.summaries() == {"a": ["m"]}


async def test_a_record_that_fails_ends_no_run(autojump_clock: MockClock) -> None:
    """Noting what is settled is for later runs: when it can't be noted, this one goes on."""
    rig = Rig(autojump_clock)
    rig.channel.records(*[Fault.FAILED] * 4)
    async with rig.open():
        await rig.write_pool("a")
        await trio.sleep(60)
        assert not rig.witness.heard(events.RunEnded)


async def test_settling_a_write_that_the_reconciler_shrugged_off_is_noticed(autojump_clock: MockClock) -> None:
    """A reconciler that goes on after an unknown outcome leaves nothing queued; the wait for settling still ends."""
    rig = Rig(autojump_clock)

    async def careless(rt: headway.Runtime, _: headway.Request) -> None:
        try:
            await rt.client.apply(rig.pools.summary.new("x"))
        except headway.OutcomeUnknown:
            return

    rig.pools.replace(careless)
    rig.channel.writes(Fault.FAILED)
    rig.channel.raises(Fault.NONE, Fault.FAILED)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        assert len(rig.witness.heard(events.WriteSettled)) == 1


# --- functions that fail ---


async def _failing(rig: Rig, reconcile: Any, seconds: float = 60.0) -> list[events.Reconciled]:
    rig.pools.replace(reconcile)
    async with rig.open():
        await rig.write_pool("bad")
        await rig.write_pool("good")
        await trio.sleep(seconds)
    return rig.witness.heard(events.Reconciled)


def _outcomes(reconciled: list[events.Reconciled], name: str) -> list[str]:
    return [event.outcome for event in reconciled if event.id.name == name]


async def test_a_reconciler_that_raises_backs_off_and_harms_no_other_key(autojump_clock: MockClock) -> None:
    """The key is tried again after longer and longer rests, with its error in the report; the other one is done."""
    rig = Rig(autojump_clock)

    async def reconcile(_: headway.Runtime, request: headway.Request) -> None:
        if request.id.name == "bad":
            raise LookupError(f"attempt {request.attempt}")

    reconciled = await _failing(rig, reconcile, 1.0)

    bad = [event for event in reconciled if event.id.name == "bad"]
    assert [event.retry_after for event in bad] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64]
    assert [str(event.error) for event in bad] == [f"attempt {attempt}" for attempt in range(1, 8)]
    assert _outcomes(reconciled, "good") == ["done"]


@pytest.mark.parametrize("result", [True, 5, "later", [headway.requeue_now()]])
async def test_a_reconciler_that_returns_nonsense_is_named(autojump_clock: MockClock, result: object) -> None:
    """What is no result counts as a failure that says what could have been returned."""
    rig = Rig(autojump_clock)

    async def reconcile(_: headway.Runtime, request: headway.Request) -> object:
        return result if request.id.name == "bad" else None

    reconciled = await _failing(rig, reconcile)

    first = next(event for event in reconciled if event.id.name == "bad")
    assert first.outcome == "failed"
    assert f"pools returned {result!r}" in str(first.error)
    assert _outcomes(reconciled, "good") == ["done"]


async def test_a_reconciler_that_never_returns_meets_its_deadline(autojump_clock: MockClock) -> None:
    """It is cancelled at the deadline, named as slow before that, and tried again; the other key is done."""
    rig = Rig(autojump_clock, deadline=70.0)

    async def reconcile(_: headway.Runtime, request: headway.Request) -> None:
        if request.id.name == "bad":
            await trio.sleep_forever()

    reconciled = await _failing(rig, reconcile, 75.0)

    (bad,) = [event for event in reconciled if event.id.name == "bad"]
    assert "longer than 70.0 s" in str(bad.error)
    assert [event.seconds for event in rig.witness.heard(events.ReconcileSlow)] == [30.0, 60.0]
    assert _outcomes(reconciled, "good") == ["done"]


async def test_a_permanent_failure_is_not_tried_again_until_something_changes(autojump_clock: MockClock) -> None:
    """PermanentFailure drops the key; a change brings it back."""
    rig = Rig(autojump_clock)

    async def reconcile(_: headway.Runtime, __: headway.Request) -> None:
        raise headway.PermanentFailure("never")

    rig.pools.replace(reconcile)
    async with rig.open():
        await rig.write_pool("a")
        await trio.sleep(100)
        await rig.write_pool("a", "changed")
        await trio.sleep(100)

    assert [event.outcome for event in rig.witness.heard(events.Reconciled)] == ["permanent", "permanent"]


Mapped = Callable[[Rig], object]


def _raises(_: Rig) -> object:
    raise LookupError("not now")


def _another_type(rig: Rig) -> object:
    return [rig.pools.member.id("m"), rig.pools.pool.id("good")]


@pytest.mark.parametrize(
    ("mapped", "says"),
    [
        (_raises, "not now"),
        (lambda _: None, "it returned None: return a list of ids"),
        (lambda _: "good", "it returned 'good': return a list of ids"),
        (lambda _: [3], "it gave 3, which is no id"),
        (_another_type, "it gave Member m, of type test.v1.Member: the controller manages test.v1.Pool"),
    ],
)
async def test_a_mapper_that_fails_is_named_and_harms_no_other_key(
    autojump_clock: MockClock, mapped: Mapped, says: str
) -> None:
    """A member that can't be mapped holds up no other; what it gave that was right is reconciled."""
    rig = Rig(autojump_clock)
    pools = rig.pools
    seen: list[str] = []

    def mapper(member: headway.Resource[Member], _: headway.CacheReader) -> Any:
        if member.name == "bad":
            return mapped(rig)
        return [pools.pool.id(member.data.pool)]

    pools.app.controllers.clear()

    @pools.app.controller(manages=pools.pool, watches={pools.member: mapper})
    async def look(_: headway.Runtime, request: headway.Request) -> None:
        seen.append(request.id.name)

    async with rig.open() as engine:
        await engine.client.apply(pools.member.new("bad", Member(pool="x")))
        await engine.client.apply(pools.member.new("fine", Member(pool="other")))
        await trio.sleep(10)

    failed = rig.witness.heard(events.MappingFailed)
    assert says in str(failed[0].error)
    assert "mapper" in failed[0].mapper
    assert failed[0].key[2] == "bad"
    assert seen == (["good", "other"] if mapped is _another_type else ["other"])


async def test_a_mapper_that_raises_is_tried_again_until_it_does_not(autojump_clock: MockClock) -> None:
    """The change is kept, with growing rests, and the controller isn't settled meanwhile."""
    rig = Rig(autojump_clock)
    tries: list[float] = []

    def looked(resource: headway.Resource[Any], _: headway.CacheReader) -> None:
        if resource.type is rig.pools.member:
            tries.append(trio.current_time())
            if len(tries) < 4:
                raise LookupError

    rig.pools.looked = looked
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        await rig.write_member("m", "a")
        await rig.settle()
        assert await rig.summaries() == {"a": ["m"]}

    rests = [round(later - earlier, 3) for earlier, later in itertools.pairwise(tries)]
    assert rests == [0.01, 0.02, 0.04]


async def test_an_index_function_that_raises_spoils_that_index_alone(autojump_clock: MockClock) -> None:
    """It is named; a read of that index says that it is incomplete, other reads go on, and it heals with the data."""
    rig = Rig(autojump_clock)
    pools = rig.pools
    reads: list[str] = []

    def by_pool(member: headway.Resource[Member]) -> str:
        if member.data.pool == "bad":
            raise LookupError(member.name)
        return member.data.pool

    def map_all(_: headway.Resource[Member], __: headway.CacheReader) -> Iterable[headway.ResourceId]:
        return [pools.pool.id("a")]

    pools.app.controllers.clear()

    @pools.app.controller(
        manages=pools.pool,
        watches={pools.member: map_all},
        indexes={pools.member: [headway.index("pool", by_pool), headway.index("name", lambda each: each.name)]},
    )
    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        try:
            rt.cache.index(pools.member, "pool", "a")
        except headway.IndexIncomplete as error:
            assert [each.name for each in rt.cache.index(pools.member, "name", "m")] == ["m"]
            reads.append(str(error))
        else:
            reads.append("whole")

    async with rig.open():
        await rig.write_member("m", "a")
        await rig.settle()
        await rig.write_member("m", "bad")
        await rig.settle()
        await rig.write_member("m", "a")
        await rig.settle()

    assert reads[0] == reads[-1] == "whole"
    assert "lacks 1 resources" in reads[1]
    (failed,) = rig.witness.heard(events.IndexFailed)
    assert (failed.index, failed.key[2]) == ("pool", "m")

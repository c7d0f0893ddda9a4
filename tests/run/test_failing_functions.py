"""Reconcilers, mappers and index functions that fail: each failure is reported, retried, and affects no other key."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.base import story
from headway.errors import Conflict
from tests.helpers.pools import Member
from tests.helpers.resources import Account, Team
from tests.helpers.rig import Rig


async def _failing(rig: Rig, reconcile: Any, seconds: float = 60.0) -> list[events.Reconciled]:
    rig.pools.replace(reconcile)
    async with rig.open():
        await rig.write_pool("bad")
        await rig.write_pool("good")
        await trio.sleep(seconds)
    return rig.witness.events_of(events.Reconciled)


def _outcomes(reconciled: list[events.Reconciled], name: str) -> list[str]:
    return [event.outcome for event in reconciled if event.id.name == name]


async def test_reconciler_that_raises_backs_off_without_affecting_other_keys(autojump_clock: MockClock) -> None:
    """The key is retried with growing delays, with its error in the report."""
    rig = Rig(autojump_clock)

    async def reconcile(_: headway.Runtime, request: headway.Request) -> None:
        if request.id.name == "bad":
            raise LookupError(f"attempt {request.attempt}")

    reconciled = await _failing(rig, reconcile, 1.0)

    bad = [event for event in reconciled if event.id.name == "bad"]
    assert [event.retry_after for event in bad] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64]
    assert [str(event.error) for event in bad] == [f"attempt {attempt}" for attempt in range(1, 8)]
    assert _outcomes(reconciled, "good") == ["done"]


@pytest.mark.parametrize("result", [True, 5, "later", [headway.requeue_now()], headway.PermanentFailure("x")])
async def test_invalid_result_of_a_reconciler_is_a_failure(autojump_clock: MockClock, result: object) -> None:
    """The error lists the valid results."""
    rig = Rig(autojump_clock)

    async def reconcile(_: headway.Runtime, request: headway.Request) -> object:
        return result if request.id.name == "bad" else None

    reconciled = await _failing(rig, reconcile)

    first = next(event for event in reconciled if event.id.name == "bad")
    assert first.outcome == "failed"
    assert f"pools returned {result!r}" in str(first.error)
    assert str(first.error).endswith(": raise it") is isinstance(result, Exception)
    assert _outcomes(reconciled, "good") == ["done"]


async def test_forgotten_await_is_reported(autojump_clock: MockClock) -> None:
    """The returned coroutine has done nothing, and Python's own warning would point at another line."""
    rig = Rig(autojump_clock)

    async def reconcile(rt: headway.Runtime, request: headway.Request) -> object:
        return rt.client.apply(rig.pools.pool.new("x")) if request.id.name == "bad" else None

    reconciled = await _failing(rig, reconcile)

    first = next(event for event in reconciled if event.id.name == "bad")
    assert "await it, as in `return await ...`" in str(first.error)


async def test_reconciler_that_never_returns_is_canceled_at_its_deadline(autojump_clock: MockClock) -> None:
    """The reconcile is reported as slow before the deadline, and retried after it. The other key is reconciled."""
    rig = Rig(autojump_clock, deadline=70.0)

    async def reconcile(_: headway.Runtime, request: headway.Request) -> None:
        if request.id.name == "bad":
            await trio.sleep_forever()

    reconciled = await _failing(rig, reconcile, 75.0)

    (bad,) = [event for event in reconciled if event.id.name == "bad"]
    assert "exceeded its deadline of 70.0 s" in str(bad.error)
    assert [event.seconds for event in rig.witness.events_of(events.ReconcileSlow)] == [30.0, 60.0]
    assert _outcomes(reconciled, "good") == ["done"]


async def test_permanent_failure_is_not_retried_until_a_change(autojump_clock: MockClock) -> None:
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

    assert [event.outcome for event in rig.witness.events_of(events.Reconciled)] == ["permanent", "permanent"]


async def test_c6_change_during_a_reconcile_that_fails_permanently_is_reconciled(autojump_clock: MockClock) -> None:
    """Dropping the key drops only what the reconcile has seen: the change came after that."""
    rig, seen = Rig(autojump_clock), list[str]()

    async def reconcile(rt: headway.Runtime, request: headway.Request) -> None:
        pool = rt.cache.get(rig.pools.pool, request.id)
        assert pool is not None
        seen.append(pool.data.note)
        await trio.sleep(3)
        raise headway.PermanentFailure("never")

    rig.pools.replace(reconcile)
    async with rig.open():
        await rig.write_pool("a", "first")
        await trio.sleep(1)
        await rig.write_pool("a", "second")
        await trio.sleep(100)

    assert seen == ["first", "second"]
    assert [event.outcome for event in rig.witness.events_of(events.Reconciled)] == ["permanent", "permanent"]


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
        (lambda _: [3], "it returned 3, which is not an id"),
        (_another_type, "it returned Member m, of type test.v1.Member: the controller manages test.v1.Pool"),
    ],
)
async def test_mapper_failure_is_reported_without_affecting_other_keys(
    autojump_clock: MockClock, mapped: Mapped, says: str
) -> None:
    """A member that can't be mapped delays no other member. The valid part of a result is reconciled."""
    rig = Rig(autojump_clock)
    pools = rig.pools
    seen: list[str] = []

    def mapper(member: headway.Resource[Member], _: headway.CacheReader) -> Any:
        if member.name == "bad":
            return mapped(rig)
        return [pools.pool.id(member.data.pool)]

    pools.app.controllers.clear()

    @pools.app.controller(manages=pools.pool, watches=[headway.watch(pools.member, mapper)])
    async def look(_: headway.Runtime, request: headway.Request) -> None:
        seen.append(request.id.name)

    async with rig.open() as engine:
        await engine.client.apply(pools.member.new("bad", Member(pool="x")))
        await engine.client.apply(pools.member.new("fine", Member(pool="other")))
        await trio.sleep(10)

    failed = rig.witness.events_of(events.MappingFailed)
    assert says in str(failed[0].error)
    assert "mapper" in failed[0].mapper
    assert failed[0].key[2] == "bad"
    # The change is kept and mapped again, whatever the failure was.
    assert sum(1 + event.suppressed for event in failed) == 11
    assert sorted(set(seen)) == (["good", "other"] if mapped is _another_type else ["other"])


async def test_mapper_that_raises_is_retried_until_it_succeeds(autojump_clock: MockClock) -> None:
    """The change is kept, with growing delays, and the controller isn't idle until the mapper succeeds."""
    rig = Rig(autojump_clock)
    tries: list[float] = []

    def looked(resource: headway.Resource[Any], _: headway.CacheReader) -> None:
        if resource.type is rig.pools.member:
            tries.append(trio.current_time())
            if len(tries) < 4:
                raise LookupError

    rig.pools.on_mapping = looked
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        await rig.write_member("m", "a")
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["m"]}

    rests = [round(later - earlier, 3) for earlier, later in itertools.pairwise(tries)]
    assert rests == [0.01, 0.02, 0.04]


async def test_index_function_that_raises_affects_that_index_only(autojump_clock: MockClock) -> None:
    """Reads of that index raise IndexIncomplete, while other reads work. A good state ends the failure."""
    rig = Rig(autojump_clock)
    pools = rig.pools
    reads: list[str] = []

    def by_pool(member: headway.Resource[Member]) -> str:
        if member.data.pool == "bad":
            raise LookupError(member.name)
        return member.data.pool

    def map_all(_: headway.Resource[Member], __: headway.CacheReader) -> Iterable[headway.ResourceId]:
        return [pools.pool.id("a")]

    pool_index = headway.indexes.by(pools.member, "pool", by_pool)
    name_index = headway.indexes.by(pools.member, "name", lambda each: each.name)
    pools.app.controllers.clear()

    @pools.app.controller(
        manages=pools.pool,
        watches=[headway.watch(pools.member, map_all)],
        indexes=[pool_index, name_index],
    )
    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        try:
            rt.cache.index(pool_index, "a")
        except headway.errors.IndexIncomplete as error:
            assert [each.name for each in rt.cache.index(name_index, "m")] == ["m"]
            reads.append(str(error))
        else:
            reads.append("whole")

    async with rig.open():
        await rig.write_member("m", "a")
        await rig.wait_idle()
        await rig.write_member("m", "bad")
        await rig.wait_idle()
        await rig.write_member("m", "a")
        await rig.wait_idle()

    assert reads[0] == reads[-1] == "whole"
    assert "lacks 1 resources" in reads[1]
    (failed,) = rig.witness.events_of(events.IndexFailed)
    assert (failed.index, failed.key[2]) == ("pool", "m")


async def test_failed_lambda_is_reported_with_its_place(autojump_clock: MockClock) -> None:
    """All lambdas have the same name, and a wrong result has no traceback."""
    app, heard = headway.App("staff"), list[object]()
    team = app.type("staff", "v1", "Team", Team)
    account = app.type("staff", "v1", "Account", Account)
    wrong: Any = lambda *_: 5  # noqa: E731  # the report names it

    @app.controller(manages=team, watches=[headway.watch(account, wrong)])
    async def teams(rt: headway.Runtime, request: headway.Request) -> None:
        """Do nothing."""

    async with headway.open_engine("memory:", app, report=heard.append) as engine:
        await engine.client.write(account.new("ada"))
        await trio.sleep(1)
    (failed, *_) = [each for each in heard if isinstance(each, events.MappingFailed)]
    line = wrong.__code__.co_firstlineno
    assert failed.mapper == f"{wrong.__qualname__} ({__file__}, line {line})"


async def test_c6_flood_at_a_failing_mapper_is_bounded_and_misses_no_key(autojump_clock: MockClock) -> None:
    """After 301 changes of one resource, only a few states are kept, and one report a second is made.

    All pools that the resource was ever in are reconciled in the end.
    """
    rig = Rig(autojump_clock)
    broken = True

    def looked(resource: headway.Resource[Any], _: headway.CacheReader) -> None:
        if broken and resource.type is rig.pools.member:
            raise LookupError(resource.version)

    rig.pools.on_mapping = looked
    async with rig.open() as engine:
        for name in ("a", "b", "c"):
            await rig.write_pool(name)
        await rig.wait_idle()
        before = len(rig.names)
        for number in range(400):
            await rig.write_member("m", "b" if number < 100 else "ca"[number % 2])
        # Wait until every type has reached the changes.
        await trio.sleep(1)
        assert engine.controllers["pools"].status().unmapped == 1
        failed = rig.witness.events_of(events.MappingFailed)
        assert len(failed) <= trio.current_time() + 1
        await trio.sleep(2)
        assert sum(1 + event.suppressed for event in rig.witness.events_of(events.MappingFailed)) >= 301
        broken = False
        await rig.wait_idle(2000)
        assert set(rig.names[before:]) == {"a", "b", "c"}
        assert await rig.summaries() == {"a": ["m"]}


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ([headway.PermanentFailure("a")], "permanent"),
        ([headway.PermanentFailure("a"), headway.PermanentFailure("b")], "permanent"),
        ([headway.PermanentFailure("a"), Conflict("b")], "failed"),
        ([Conflict("b"), headway.PermanentFailure("a")], "failed"),
        ([ExceptionGroup("inner", [headway.PermanentFailure("a")]), headway.PermanentFailure("b")], "permanent"),
        ([ExceptionGroup("inner", [headway.PermanentFailure("a"), ValueError("c")])], "failed"),
    ],
)
async def test_failures_of_several_tasks_are_permanent_only_if_each_of_them_is(
    errors: list[Exception], outcome: str, autojump_clock: MockClock
) -> None:
    """A retry may remove the other failures. Trio runs the tasks in a random order, which must not matter."""
    rig = Rig(autojump_clock)

    async def fail(error: Exception) -> None:
        raise error

    async def reconcile(_: headway.Runtime, request: headway.Request) -> headway.RequeueAfter | None:
        if request.id.name != "bad":
            return None
        async with trio.open_nursery() as nursery:
            for error in errors:
                nursery.start_soon(fail, error)
            nursery.start_soon(trio.sleep_forever)
            # The result of a reconcile whose tasks fail does not count.
            return headway.requeue_after(1.0)

    found = _outcomes(await _failing(rig, reconcile, 1.0), "bad")
    assert set(found) == {outcome}
    assert (len(found) == 1) is (outcome == "permanent")


async def _sleep() -> None:
    await asyncio.sleep(0.1)


async def _yield() -> None:
    await asyncio.sleep(0)


async def _queue() -> None:
    await asyncio.Queue[int]().get()


async def _loop() -> None:
    asyncio.get_running_loop()


@pytest.mark.parametrize("call", [_sleep, _yield, _queue, _loop])
async def test_asyncio_in_a_reconciler_fails_with_what_to_write_instead(call: Any, autojump_clock: MockClock) -> None:
    """Python's own text names no mend. The status of the key, the log and `why` have the same text."""
    rig = Rig(autojump_clock)

    async def reconcile(_: headway.Runtime, request: headway.Request) -> None:
        if request.id.name == "bad":
            await call()

    told = [story(event.error) for event in await _failing(rig, reconcile, 1.0) if event.error is not None]
    assert told
    for text in told:
        assert "That is asyncio, and Headway runs on Trio: use trio.sleep(), httpx instead of aiohttp" in text

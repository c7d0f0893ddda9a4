"""Traces within one process: the spans of a write, of the reconciles that it causes, and of their writes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import structlog.testing
import trio
from trio.testing import MockClock

import headway
from headway import events, field
from tests.tracing.spans import CHAIN, Spans, chain, check_times, unsampled
from tests.tracing.staff import Account, Staff, Team

READY = headway.Condition("Ready", headway.ConditionState.TRUE)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/staff.db"


async def test_one_trace_has_all_spans_from_a_write_to_the_writes_of_its_reconcile(store: str) -> None:
    """The account that the first reconcile writes leads to a second reconcile, in the same trace."""
    spans, staff = Spans(), Staff()
    async with headway.open_engine(store, staff.app, report=events.ignore, tracing=spans.provider) as engine:
        await engine.wait_idle()
        with spans.root() as root:
            await engine.client.write(staff.team.new("core", Team(size=1)))
        await engine.wait_idle()
    begun = root.get_span_context()
    first, second = spans.named("reconcile")
    assert chain(first, spans.all()) == CHAIN
    assert chain(second, spans.all()) == [*CHAIN, *CHAIN]
    assert {each.trace for each in spans.all()} == {begun.trace_id}
    assert spans.named("write")[0].parent == begun.span_id
    [account] = spans.named("write", type="staff.v1.Account")
    assert account.parent == first.id
    assert first.attributes == {
        "type": "staff.v1.Team",
        "partition": "default",
        "namespace": "default",
        "name": "core",
        "controller": "staff/teams",
        "attempt": 1,
        "outcome": "done",
    }
    assert not first.links
    check_times(spans.all())


async def test_many_writers_each_have_a_trace_of_their_own(store: str) -> None:
    """Commits that share a transaction keep their contexts apart."""
    spans, staff = Spans(), Staff()
    traces: dict[str, int] = {}
    async with headway.open_engine(store, staff.app, report=events.ignore, tracing=spans.provider) as engine:
        await engine.wait_idle()

        async def write(name: str) -> None:
            with spans.root() as root:
                traces[name] = root.get_span_context().trace_id
                await engine.client.write(staff.team.new(name, Team(size=1)))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(write, f"t{number}")
        await engine.wait_idle()
    assert {each.attributes["name"]: each.trace for each in spans.named("reconcile")} == traces
    assert {each.attributes["name"]: each.trace for each in spans.named("write")} == traces


async def test_coalesced_key_has_links_to_all_its_causes(autojump_clock: MockClock) -> None:
    """Three traced writes arrive while the key is in hand. The next reconcile is in the trace of the first of them."""
    spans, staff = Spans(), Staff()
    begun, go_on = trio.Event(), trio.Event()

    async def hold(_: headway.Runtime, __: object) -> None:
        begun.set()
        await go_on.wait()

    staff.before = hold
    traces: list[int] = []
    async with headway.open_engine("memory:", staff.app, report=events.ignore, tracing=spans.provider) as engine:
        team = await engine.client.write(staff.team.new("core", Team(size=1)))
        await begun.wait()
        for size in (2, 3, 4):
            with spans.root() as root:
                traces.append(root.get_span_context().trace_id)
                team.data.size = size
                team = await engine.client.write(team)
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()
        await engine.wait_idle()
    maps = spans.named("map", type="staff.v1.Team")
    assert [each.trace for each in maps] == traces
    coalesced = spans.named("reconcile")[0]
    assert coalesced.trace == traces[0]
    assert list(coalesced.links) == [(each.trace, each.id) for each in maps]
    assert chain(coalesced, spans.all()) == CHAIN


@pytest.mark.parametrize("name", ["reconcile", "map"])
async def test_span_shows_no_secret_of_an_error(name: str) -> None:
    """The error is redacted when it is reported as well, but only when it has left the span."""

    @headway.message
    class Key:
        token: str = field(1, secret=True)

    spans, app = Spans(), headway.App("staff")
    type = app.type("staff", "v1", "Key", Key)
    failing = {name}

    def fail_once(place: str, key: headway.Resource[Key]) -> None:
        if place in failing:
            failing.remove(place)
            raise KeyError([key.data.token])

    def map_key(key: headway.Resource[Key], _: headway.CacheReader) -> list[headway.ResourceId]:
        fail_once("map", key)
        return [key.id]

    watches, backoff = [headway.watch(type, map_key)], headway.Backoff(0.001, 0.001)

    @app.controller(manages=type, watches=watches, backoff=backoff)
    async def keys(rt: headway.Runtime, _: headway.Request[Key]) -> None:
        fail_once("reconcile", rt.cache.list(type)[0])

    async with headway.open_engine("memory:", app, report=events.ignore, tracing=spans.provider) as engine:
        await engine.wait_idle()
        with spans.root():
            await engine.client.write(type.new("core", Key(token="hunter-22")))
        await engine.wait_idle()
    failed = spans.named(name)[0]
    assert (failed.status, failed.description) == ("ERROR", "KeyError: ['(redacted)']")
    assert failed.exceptions == ("['(redacted)']",)
    assert "['(redacted)']" in failed.stacks[0]
    assert "hunter" not in failed.stacks[0]


async def test_failed_reconcile_records_its_exception_and_its_retry_stays_in_the_trace() -> None:
    spans, staff = Spans(), Staff()

    async def fail_once(_: headway.Runtime, request: headway.Request[Team]) -> None:
        if request.attempt == 1:
            raise LookupError("no desk is left")

    staff.before = fail_once
    async with headway.open_engine("memory:", staff.app, report=events.ignore, tracing=spans.provider) as engine:
        await engine.wait_idle()
        with spans.root():
            await engine.client.write(staff.team.new("core", Team(size=1)))
        await engine.wait_idle()
    failed, retried = spans.named("reconcile")[:2]
    assert (failed.status, failed.description) == ("ERROR", "LookupError: no desk is left")
    assert failed.exceptions == ("no desk is left",)
    assert failed.attributes["outcome"] == "failed"
    assert (retried.attributes["attempt"], retried.attributes["outcome"]) == (2, "done")
    assert retried.status == "UNSET"
    assert retried.trace == failed.trace
    waited = spans.named("wait", attempt=2)[0]
    assert waited.start >= failed.end - 1_000
    check_times(spans.all())


async def test_permanent_failure_and_requeue_are_outcomes_of_the_span() -> None:
    spans, app = Spans(), headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)

    @app.controller(manages=team)
    async def reconcile(_: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
        if request.id.name == "lost":
            raise headway.PermanentFailure("no such building")
        if request.id.name == "lost-in-a-task":
            # A nursery raises such a group.
            raise ExceptionGroup("of a nursery", [headway.PermanentFailure("no such floor")])
        return headway.requeue_after(3600)

    async with headway.open_engine("memory:", app, report=events.ignore, tracing=spans.provider) as engine:
        await engine.wait_idle()
        with spans.root():
            for name in ("lost", "lost-in-a-task", "late"):
                await engine.client.write(team.new(name, Team(size=1)))
        await engine.wait_idle()
    outcomes = {
        each.attributes["name"]: (each.attributes["outcome"], each.status, each.description)
        for each in spans.named("reconcile")
    }
    assert outcomes == {
        "lost": ("permanent", "ERROR", "PermanentFailure: no such building"),
        "lost-in-a-task": ("permanent", "ERROR", "PermanentFailure: no such floor"),
        "late": ("requeue", "UNSET", ""),
    }


async def test_failed_mapping_is_an_error_of_its_span_and_its_retry_is_mapped_in_the_trace() -> None:
    """The change counts as delivered once."""
    spans, app = Spans(), headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    desk = app.type("staff", "v1", "Account", Account)
    calls: Counter[str] = Counter()

    def fail_once(resource: headway.Resource[Account], _: headway.CacheReader) -> list[headway.ResourceId]:
        calls[resource.name] += 1
        if calls[resource.name] == 1:
            raise LookupError("not known yet")
        return [team.id(resource.name)]

    @app.controller(manages=team, watches=[headway.watch(desk, fail_once)], backoff=headway.Backoff(0.001, 0.001))
    async def reconcile(_: headway.Runtime, __: headway.Request[Team]) -> None: ...

    async with headway.open_engine("memory:", app, report=events.ignore, tracing=spans.provider) as engine:
        await engine.wait_idle()
        with spans.root():
            await engine.client.write(desk.new("core", Account(size=1)))
        await engine.wait_idle()
    failed, mapped = spans.named("map")
    assert (failed.status, failed.exceptions, mapped.status) == ("ERROR", ("not known yet",), "UNSET")
    assert len(spans.named("deliver")) == 1
    [reconciled] = spans.named("reconcile")
    assert reconciled.trace == mapped.trace == failed.trace


async def test_write_that_is_refused_is_an_error_of_its_span_and_has_no_commit() -> None:
    spans, staff = Spans(), Staff()
    async with headway.open_engine("memory:", staff.app, report=events.ignore, tracing=spans.provider) as engine:
        team = await engine.client.write(staff.team.new("core", Team(size=1)))
        await engine.client.write(team)
        with spans.root(), pytest.raises(headway.errors.Conflict):
            await engine.client.write(team)
    [write] = spans.named("write")
    assert write.status == "ERROR"
    assert not spans.named("commit")


async def test_deletion_and_status_are_traced_to_their_reconciles() -> None:
    spans, staff = Spans(), Staff()
    async with headway.open_engine("memory:", staff.app, report=events.ignore, tracing=spans.provider) as engine:
        team = await engine.client.write(staff.team.new("core", Team(size=1)))
        await engine.wait_idle()
        with spans.root():
            team = await engine.client.write_status(team, "desk", [READY])
        await engine.wait_idle()
        with spans.root():
            await engine.client.delete(team)
        await engine.wait_idle()
    assert [each.attributes["verb"] for each in spans.named("write")][:2] == ["WriteStatus", "Delete"]
    found: dict[int, list[str]] = {}
    for each in spans.named("reconcile", controller="staff/teams"):
        found.setdefault(each.trace, chain(each, spans.all()))
    assert list(found.values()) == [CHAIN, CHAIN]


async def test_unsampled_trace_makes_no_span_and_keeps_no_context() -> None:
    """The engine's provider would sample everything that it is asked for. It is asked for nothing."""
    spans, program, staff = Spans(), unsampled(), Staff()
    async with headway.open_engine("memory:", staff.app, report=events.ignore, tracing=spans.provider) as engine:
        await engine.wait_idle()
        with program.root() as root:
            assert not root.get_span_context().trace_flags.sampled
            await engine.client.write(staff.team.new("core", Team(size=1)))
        await engine.client.write(staff.team.new("other", Team(size=1)))
        await engine.wait_idle()
        assert len(await engine.client.list(staff.account)) == 2
    assert spans.all() == []


async def test_span_around_the_whole_engine_is_no_parent_of_its_reconciles() -> None:
    """Tasks inherit the span in which they are started. Those of an engine outlive it."""
    spans, staff = Spans(), Staff()
    with spans.root():
        opened = headway.open_engine("memory:", staff.app, report=events.ignore, tracing=spans.provider)
        engine = await opened.__aenter__()
        await engine.wait_idle()
    try:
        await engine.client.write(staff.team.new("core", Team(size=1)))
        await engine.wait_idle()
        assert await engine.client.list(staff.account)
    finally:
        await opened.__aexit__(None, None, None)
    assert spans.all() == []


async def test_log_lines_of_a_traced_reconcile_have_the_id_of_its_trace() -> None:
    """Those of the reconciler itself, and that of its failure."""
    spans, staff = Spans(), Staff()

    async def fail_once(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        rt.log.info("looking")
        if request.attempt == 1:
            raise LookupError("no desk is left")

    staff.before = fail_once
    with structlog.testing.capture_logs() as lines:
        async with headway.open_engine("memory:", staff.app, tracing=spans.provider) as engine:
            await engine.wait_idle()
            with spans.root() as root:
                await engine.client.write(staff.team.new("core", Team(size=1)))
            await engine.wait_idle()
            await engine.client.write(staff.team.new("untraced", Team(size=1)))
            await engine.wait_idle()
    trace = f"{root.get_span_context().trace_id:032x}"
    told = [(each["event"], each["attempt"], each.get("trace_id")) for each in lines if each["key"].endswith("core")]
    assert told[:3] == [("looking", 1, trace), ("ReconcileFailed", 1, trace), ("looking", 2, trace)]
    assert not any("trace_id" in each for each in lines if each["key"].endswith("untraced"))

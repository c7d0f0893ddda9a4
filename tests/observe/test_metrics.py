"""Each behavior that the contract calls visible or counted has a metric, which changes when the behavior occurs."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

import headway
from headway import events, pauses, steps
from headway.observe import Metrics, Sample, log_report, reports, states_in, unready
from headway.observe._metrics import _COUNTERS, _LABELS
from headway.queue import QueueStatistics
from headway.resource import ResourceId, TypeName
from headway.run import ControllerStatus, Governed, TypeStatus
from headway.testing import Fault
from tests.helpers.rig import Rig

GUIDE = (Path(__file__).parents[2] / "docs/guides/observing.md").read_text(encoding="utf-8")


def value(metrics: Metrics, name: str, labels: dict[str, str]) -> float | None:
    """Return one sample as Prometheus would read it, or None if it is absent."""
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


class Measured(Rig):
    """A rig whose events are also counted."""

    def __init__(self, clock: MockClock, **more: Any) -> None:
        super().__init__(clock, **more)
        self.metrics = Metrics()
        hear = reports(self.witness.report, self.metrics)
        self.witness.report = hear  # type: ignore[method-assign, assignment]  # both hear everything

    def value(self, sample: str, **labels: str) -> float | None:
        return value(self.metrics, sample, labels)


async def test_counters_exist_at_zero_before_their_first_event(autojump_clock: MockClock) -> None:
    """Prometheus sees no increase in a sample that begins at 1."""
    rig = Measured(autojump_clock)
    async with rig.open() as engine:
        rig.metrics.watch(engine.status)
        ours = {"controller": "test/pools"}
        for outcome in ("done", "requeue", "failed", "permanent"):
            assert rig.value("headway_reconcile_total", outcome=outcome, **ours) == 0
        for name in (
            "headway_writes_unknown_total",
            "headway_reconcile_timeouts_total",
            "headway_self_triggers_total",
            "headway_controller_restarts_total",
            "headway_reconcile_seconds_count",
            "controller_runtime_reconcile_errors_total",
            "controller_runtime_terminal_reconcile_errors_total",
            "workqueue_retries_total",
        ):
            assert rig.value(name, **ours) == 0, name
        for problem in ("unusable", "away", "rolled_back"):
            assert rig.value("headway_store_failures_total", problem=problem) == 0
            assert rig.value("headway_store_recoveries_total", problem=problem) == 0
        await engine.wait_idle()
        assert rig.value("headway_mapping_failures_total", type="test.v1.Pool", **ours) == 0
        assert rig.value("headway_payloads_undecodable_total", type="test.v1.Pool") == 0


def test_controller_that_runs_nowhere_has_only_its_phase() -> None:
    """A worker may have named many. With a series of each counter for each, a scrape of 1,000 took seconds."""
    metrics = Metrics()
    metrics.watch(lambda: [ControllerStatus("staff/teams", "absent", seconds=7.0)])
    of_it = [line for line in metrics.text().decode().splitlines() if "staff/teams" in line]
    assert {re.split("[{ ]", line)[0] for line in of_it} == {
        "headway_controller_phase",
        "headway_controller_phase_seconds",
        "headway_controller_ready",
    }


def test_outcomes_of_an_issuer_exist_from_its_first_reading_on() -> None:
    metrics = Metrics()
    metrics(events.IssuerKeysRead("ci", 2))
    for outcome, times in (("read", 1), ("failed", 0)):
        assert value(metrics, "headway_issuer_reads_total", {"issuer": "ci", "outcome": outcome}) == times


async def test_no_sample_has_a_key_as_label(autojump_clock: MockClock) -> None:
    """The page does not grow with the resources or their events, and no sample appears twice."""
    rig = Measured(autojump_clock)

    async def fail(_: headway.Runtime, request: headway.Request) -> None:
        if request.attempt == 1:
            raise LookupError(request.id.name)
        if request.id.name.endswith("0"):
            raise headway.PermanentFailure(request.id.name)

    rig.pools.replace(fail)
    async with rig.open() as engine:
        rig.metrics.watch(engine.status)
        counts = []
        for start in (0, 20):
            for number in range(start, start + 20):
                await rig.write_pool(f"p{number}")
            await rig.wait_idle()
            page = rig.metrics.text().decode()
            samples = [
                (sample.name, tuple(sorted(sample.labels.items())))
                for family in text_string_to_metric_families(page)
                for sample in family.samples
            ]
            assert len(samples) == len(set(samples))
            assert "p0" not in page
            assert "_created" not in page
            counts.append(len(samples))
        assert counts[0] == counts[1]


@pytest.mark.parametrize("holding", ["", "a reason"])
def test_pause_alone_does_not_make_a_controller_unready(holding: str) -> None:
    """The metric, the table of `headway top` and /readyz agree. Only the other two say that it is paused."""
    status = ControllerStatus("c", "running", seconds=7.0, paused="an audit", holding=holding)
    metrics = Metrics()
    metrics.watch(lambda: [status])
    assert value(metrics, "headway_controller_ready", {"controller": "c"}) == float(not holding)
    assert value(metrics, "headway_controller_paused", {"controller": "c"}) == 1
    assert bool(unready(lambda: [status])) == bool(holding)
    samples: dict[str, list[Sample]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    [state] = states_in("p", samples)
    assert (state.ready, state.paused) == (not holding, True)
    assert state.state == ("running, not ready, paused" if holding else "running, paused")


async def test_guide_lists_every_metric(autojump_clock: MockClock) -> None:
    """It names each metric with each of its labels, and no metric that does not exist."""
    rig = Measured(autojump_clock)
    async with rig.open() as engine:
        governed = Governed(headway.WriteLimit(10))
        rig.metrics.watch(lambda: [replace(status, shards=(), governed=governed) for status in engine.status()])
        await rig.wait_idle()
        ours, others = {}, set()
        for family in rig.metrics.collect():
            name = family.name + ("_total" if family.type == "counter" else "")
            if name.startswith("headway_"):
                ours[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
                ours[name] |= set(_COUNTERS.get(family.name.removeprefix("headway_"), ("", []))[1])
            else:
                others.add(name)
    listed: dict[str, set[str]] = {}
    for names, labels in re.findall(r"^\| (`headway_.*?) \| (.*?) \|", GUIDE, re.MULTILINE):
        listed |= {name: set(labels.split(", ")) for name in re.findall(r"`(\w+)`", names)}
    assert listed.keys() == ours.keys()
    for name, labels in ours.items():
        assert labels <= listed[name], name
    start = ""
    aliased: set[str] = set()
    for name in re.findall(r"`(\S+?)`", GUIDE[GUIDE.index("Dashboards made for") :].splitlines()[0]):
        aliased.add(start + name.removeprefix("…") if name.startswith("…") else name)
        if not name.startswith("…"):
            start = re.match(r"controller_runtime_(?:reconcile_)?|workqueue_", name)[0]  # type: ignore[index]  # one of these it is
    assert {re.sub("__+", "_", alias) for alias in aliased} == others


def test_each_gauge_shows_its_own_number() -> None:
    """All numbers in the status of this test differ."""
    kind = TypeStatus(TypeName("x", "v1", "Y"), True, 90, 80, 3, lag=0, refused=4, cut_off="away", cut_off_seconds=5.0)
    late = TypeStatus(TypeName("x", "v1", "Z"), False, 70, 80, 6)
    status = ControllerStatus(
        "c",
        "running",
        seconds=7.0,
        term=8,
        types=(kind, late),
        concurrency=9,
        queue=QueueStatistics(10, 11, 12, 13, 14, 0.0, 15, 16),
        running=(17.0, 18.0),
        oldest_wait=19.0,
        holding="a reason",
        unmapped=20,
        not_done_count=21,
        restarts=22,
        shards=(1, 2, 3, 5),
    )
    metrics = Metrics()
    metrics.watch(lambda: [status])
    for name, labels, expected in (
        ("controller_phase", {"phase": "running"}, 1),
        ("controller_phase", {"phase": "standby"}, 0),
        ("controller_phase_seconds", {}, 7),
        ("controller_ready", {}, 0),
        ("controller_term", {}, 8),
        ("controller_restarts_total", {}, 22),
        ("shards_held", {}, 4),
        ("concurrency", {}, 9),
        ("cache_primed", {"type": "x.v1.Y"}, 1),
        ("cache_primed", {"type": "x.v1.Z"}, 0),
        ("cache_resources", {"type": "x.v1.Z"}, 6),
        ("cache_revision", {"type": "x.v1.Z"}, 70),
        ("cache_lag_revisions", {"type": "x.v1.Y"}, 0),
        ("cache_lag_revisions", {"type": "x.v1.Z"}, 20),
        ("stream_cut_off_seconds", {"type": "x.v1.Y"}, 5),
        ("queue_keys", {"state": "ready"}, 10),
        ("queue_keys", {"state": "backlog"}, 11),
        ("queue_keys", {"state": "resting"}, 12),
        ("queue_keys", {"state": "scheduled"}, 13),
        ("queue_keys", {"state": "in hand"}, 14),
        ("queue_adds_total", {}, 15),
        ("queue_merged_total", {}, 16),
        ("queue_oldest_seconds", {}, 19),
        ("keys_held", {}, 10),
        ("held", {}, 1),
        ("unmapped", {}, 20),
        ("keys_not_done", {}, 21),
        ("reconcile_running_seconds", {}, 35),
        ("reconcile_longest_seconds", {}, 18),
    ):
        assert value(metrics, f"headway_{name}", labels) == expected, name


def test_table_of_the_guide_names_existing_events_and_fields() -> None:
    """Every event and field beside its metrics exists; events below a warning are in brackets."""
    fields_there = {each.name for kind in (ControllerStatus, TypeStatus) for each in fields(kind)}
    table = GUIDE.split("## Where to look")[1].split("## Metrics")[0]
    rows = re.findall(r"^\| (`headway_.*?) \|.*\| (.*?) ?\|$", table, re.MULTILINE)
    assert len(rows) > 40
    lines: set[str] = set()
    for metrics, shown in rows:
        quiet = {name for names in re.findall(r"\((`.*?)\)", shown) for name in re.findall(r"`(\w+)`", names)}
        for name in re.findall(r"`(\w+)`", shown):
            if not name[0].isupper():
                assert name in fields_there, metrics
                continue
            lines.add(name)
            event = next(getattr(each, name) for each in (pauses, steps, events) if hasattr(each, name))
            given = {
                "error": LookupError("error"),
                "id": ResourceId(TypeName("staff", "v1", "Team"), "core"),
                "reasons": (),
            }
            values = [given.get(each, each) for each in event.__match_args__]
            with structlog.testing.capture_logs() as logged:
                log_report()(event(*values))
            assert bool(logged) == (name not in quiet), name
    assert len(lines) == 37


async def test_failures_are_counted_by_cause(autojump_clock: MockClock) -> None:
    """A failure, a permanent failure and a timeout are counted separately."""
    rig = Measured(autojump_clock, deadline=1.0)

    async def fail(_: headway.Runtime, request: headway.Request) -> None:
        if request.id.name == "slow" and request.attempt == 1:
            await trio.sleep_forever()
        if request.id.name == "turns" and request.attempt == 1:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                raise ValueError("the backend did not answer") from None
        if request.id.name == "never":
            raise headway.PermanentFailure("no")

    rig.pools.replace(fail)
    async with rig.open() as engine:
        rig.metrics.watch(engine.status)
        for name in ("slow", "turns", "never"):
            await rig.write_pool(name)
        await rig.wait_idle()
        ours = {"controller": "test/pools"}
        assert rig.value("headway_reconcile_total", outcome="failed", **ours) == 2
        assert rig.value("headway_reconcile_timeouts_total", **ours) == 2
        assert rig.value("headway_reconcile_total", outcome="permanent", **ours) == 1
        assert rig.value("controller_runtime_reconcile_errors_total", **ours) == 3
        assert rig.value("controller_runtime_terminal_reconcile_errors_total", **ours) == 1
        assert rig.value("workqueue_retries_total", **ours) == 2


async def test_scrape_shows_the_state_of_the_controllers(autojump_clock: MockClock) -> None:
    """It shows the progress of priming, running and waiting keys, and the lag of one type behind the others."""
    rig = Measured(autojump_clock, concurrency=1)
    rig.pools.pause = 100.0
    rig.channel.stall(rig.pools.summary)
    async with rig.open() as engine:
        rig.metrics.watch(engine.status)
        await trio.sleep(3)
        ours = {"controller": "test/pools"}
        assert rig.value("headway_controller_phase", phase="priming", **ours) == 1
        assert rig.value("headway_controller_phase_seconds", **ours) == pytest.approx(3, abs=0.1)
        assert rig.value("headway_controller_ready", **ours) == 0
        assert rig.value("headway_cache_primed", type="test.v1.Summary", **ours) == 0
        assert rig.value("headway_cache_primed", type="test.v1.Pool", **ours) == 1
        assert rig.value("headway_cache_lag_revisions", type="test.v1.Summary", **ours) == rig.store.position.revision
        rig.channel.release(rig.pools.summary)
        for name in "abc":
            await rig.write_pool(name)
        await trio.sleep(10)
        assert rig.value("headway_controller_phase", phase="running", **ours) == 1
        assert rig.value("headway_cache_resources", type="test.v1.Pool", **ours) == 3
        assert rig.value("headway_queue_keys", state="in hand", **ours) == 1
        assert rig.value("headway_queue_keys", state="ready", **ours) == rig.value("workqueue_depth", **ours) == 2
        assert rig.value("headway_queue_oldest_seconds", **ours) == pytest.approx(10, abs=1)
        assert rig.value("controller_runtime_active_workers", **ours) == 1
        assert rig.value("workqueue_longest_running_processor_seconds", **ours) == pytest.approx(10, abs=1)
        rig.pools.pause = 0


async def test_write_with_unknown_outcome_shows_the_keys_it_blocks(autojump_clock: MockClock) -> None:
    """The keys are shown until the write is resolved. Writes and keys are counted."""
    rig = Measured(autojump_clock)
    async with rig.open() as engine:
        rig.metrics.watch(engine.status)
        await rig.write_pool("a")
        await rig.wait_idle()
        ours = {"controller": "test/pools"}
        rig.channel.writes(Fault.LOST)
        rig.channel.raises(*[Fault.FAILED] * 5)
        await rig.write_member("m", "a")
        await trio.sleep(0.05)
        assert rig.value("headway_held", **ours) == 1
        [status] = [each for each in engine.status() if each.name == "test/pools"]
        assert status.problem == "holds back every key: the outcome of a write is unknown and is being resolved"
        await rig.wait_idle()
        assert rig.value("headway_held", **ours) == 0
        assert rig.value("headway_writes_unknown_total", **ours) == 1
        assert rig.value("headway_writes_settled_total", **ours) == 1


async def test_restart_is_counted_by_the_cause_that_ended_the_run(autojump_clock: MockClock) -> None:
    """The next run has another term."""
    rig = Measured(autojump_clock)
    async with rig.open() as engine:
        rig.metrics.watch(engine.status)
        await rig.write_pool("a")
        await rig.wait_idle()
        ours = {"controller": "test/pools"}
        before = rig.value("headway_controller_term", **ours)
        await rig.restart()
        await rig.wait_idle()
        assert rig.value("headway_runs_ended_total", **ours) == 1
        assert rig.value("headway_controller_restarts_total", **ours) == 1
        assert rig.value("headway_runs_started_total", **ours) == 2
        after = rig.value("headway_controller_term", **ours)
        assert before is not None
        assert after is not None
        assert after > before


def test_every_event_is_counted() -> None:
    """An event without a metric was forgotten here."""
    modules = (
        "headway.events._engine",
        "headway.events._server",
        "headway.pauses._reported",
        "headway.steps._reported",
    )
    # The status of a controller counts the writes that have waited.
    told = {events.Reconciled, events.Primed, events.Priming, events.WritesHeld}
    known = [*vars(events).values(), *vars(pauses).values(), *vars(steps).values()]
    there = {each for each in known if isinstance(each, type) and each.__module__ in modules}
    there -= {pauses.ControllerPaused}
    assert there == told | _LABELS.keys()
    assert {name for name, _ in _LABELS.values()} | {"reconcile", "reconcile_timeouts"} == _COUNTERS.keys()


@pytest.mark.parametrize("event", _LABELS, ids=lambda event: event.__name__)
def test_each_event_increments_its_counter(event: type) -> None:
    """It rises by one under its own labels. tests/base/test_bounded_report.py tests events that stand for several."""
    metrics = Metrics()
    kinds = {name: kind for name, kind in event.__annotations__.items() if name != "suppressed"}
    fields: dict[str, Any] = {name: 7 if kind in ("int", "float") else name for name, kind in kinds.items()}
    metrics(event(**fields))
    moved = re.findall(
        rf"^headway_{_LABELS[event][0]}_total(?:\{{(.*)\}})? 1.0$", metrics.text().decode(), re.MULTILINE
    )
    assert len(moved) == 1


def test_several_reports_each_get_every_event() -> None:
    """Successes are reported when at least one report wants them."""
    heard: list[object] = []
    both = reports(heard.append, log_report())
    assert events.receives_successes(both)
    event = events.WriteResolved("pools", 7)
    both(event)
    assert heard == [event]
    assert not events.receives_successes(reports(log_report(), log_report()))


def test_series_of_leases_that_are_gone_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may use a lease for each job. Those that it holds, and the latest of the others, stay."""
    monkeypatch.setattr("headway.observe._metrics._LEASES", 3)
    metrics = Metrics()

    def series() -> set[str]:
        return {
            sample.labels["lease"]
            for family in text_string_to_metric_families(metrics.text().decode())
            for sample in family.samples
            if "lease" in sample.labels
        }

    metrics(events.LeaseTaken("held", "me", 1))
    metrics(events.LeaseAwaited("awaited", "other", 1))
    for number in range(9):
        name = f"job-{number}"
        metrics(events.LeaseTaken(name, "me", number))
        metrics(events.LeaseDelayed(name, OSError(), 1.0))
        assert name in series()
        metrics(events.LeaseEnded(name, number, None if number % 2 else OSError()))
        metrics(events.LeaseDelayed("held", OSError(), 1.0))
    assert series() == {"held", "job-6", "job-7", "job-8"}
    assert value(metrics, "headway_leases_delayed_total", {"lease": "held"}) == 9
    metrics(events.LeaseEnded("held", 1, None))
    metrics(events.LeaseTaken("job-0", "me", 1))
    metrics(events.LeaseEnded("job-0", 1, None))
    assert series() == {"held", "job-8", "job-0"}


async def test_two_engines_on_one_page_give_each_series_once(autojump_clock: MockClock) -> None:
    """Both have Headway's own controllers. Prometheus refuses a page that has a series twice."""
    metrics = Metrics()
    async with headway.open_engine("memory:") as one, headway.open_engine("memory:") as two:
        for engine in (one, two):
            await engine.wait_idle()
            metrics.watch(engine.status)
        series = [line.rpartition(" ")[0] for line in metrics.text().decode().splitlines() if not line.startswith("#")]
        assert len(series) == len(set(series))
        # The one that is not ready is the one to know of.
        name = one.status()[0].name
        ill = [replace(each, phase="ended", error="it is ill") for each in two.status() if each.name == name]
        metrics.watch(lambda: ill)
        assert value(metrics, "headway_controller_ready", {"controller": name}) == 0


def test_certificate_that_cannot_be_used_is_shown_until_one_can() -> None:
    metrics, labels = Metrics(), {"certificate": "server.pem"}
    metrics(events.CertificateRefused("server.pem", OSError("no certificate")))
    assert value(metrics, "headway_certificate_refused", labels) == 1
    metrics(events.CertificateRenewed("server.pem"))
    assert value(metrics, "headway_certificate_refused", labels) == 0

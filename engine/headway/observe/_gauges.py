"""The state of the controllers as gauges, and aliases of metrics under controller-runtime's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, get_args

from headway.run import ControllerStatus, Phase

if TYPE_CHECKING:
    from prometheus_client import Metric


def gauges(controllers: Sequence[ControllerStatus]) -> list[Metric]:
    """Return the metrics of these controllers."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}

    def put(name: str, text: str, labels: dict[str, str], value: float, *, counts: bool = False) -> None:
        family = families.get(name)
        if family is None:
            kind = CounterMetricFamily if counts else GaugeMetricFamily
            family = families[name] = kind(f"headway_{name}", text, labels=list(labels))
        family.add_metric(list(labels.values()), value)

    newest = _newest(controllers)
    for status in controllers:
        of = {"controller": status.name}
        for phase in get_args(Phase):
            put("controller_phase", "1 for the current phase.", of | {"phase": phase}, float(phase == status.phase))
        put("controller_phase_seconds", "Seconds since it entered its phase.", of, status.seconds)
        put("controller_ready", "1 while it is reconciling.", of, float(not status.problem and status.paused is None))
        put("controller_paused", "1 while an operator has paused it.", of, float(status.paused is not None))
        put("controller_term", "Its run's term.", of, status.term)
        if status.shards is not None:
            put("shards_held", "Shards that this process has.", of, len(status.shards))
        put("controller_restarts", "Runs that have ended, except to add a watch.", of, status.restarts, counts=True)
        put("concurrency", "The number of keys that it may reconcile at once.", of, status.concurrency)
        for each in status.types:
            both = of | {"type": str(each.type)}
            put("cache_primed", "1 once the type's cache has had a complete snapshot.", both, float(each.primed))
            put("cache_resources", "Resources in the cache, or received so far.", both, each.resources)
            put("cache_revision", "The revision up to which the cache is complete.", both, each.revision)
            put("stream_cut_off_seconds", "Seconds without a stream of the type.", both, each.cut_off_seconds)
            text = "Resources found to have a payload that does not decode."
            put("cache_undecodable", text, both, len(each.undecodable))
            text = "Revisions by which the cache is behind the newest revision known to this process."
            put("cache_lag_revisions", text, both, max(newest - each.revision, 0))
        queue = status.queue
        if queue is None:
            continue
        for state, count in (
            ("ready", queue.ready),
            ("backlog", queue.backlog),
            ("resting", queue.delayed_by_failure),
            ("scheduled", queue.scheduled),
            ("in hand", queue.in_hand),
        ):
            put("queue_keys", "Keys, by state; ready includes backlog.", of | {"state": state}, count)
        put("queue_adds", "Keys queued.", of, queue.adds, counts=True)
        put("queue_merged", "Queued keys that joined a run already waiting.", of, queue.merged, counts=True)
        put("queue_oldest_seconds", "Seconds that the oldest ready key has waited.", of, status.oldest_wait or 0.0)
        put("keys_held", "Ready keys that are held back.", of, queue.ready if status.holding else 0)
        put("held", "1 while every key is held back.", of, float(bool(status.holding)))
        put("unmapped", "Changes that are still to be mapped.", of, status.unmapped)
        put("keys_not_done", "Keys whose last reconcile did not succeed.", of, status.not_done_count)
        put("reconcile_running_seconds", "Total duration of the running reconciles so far.", of, sum(status.running))
        put("reconcile_longest_seconds", "Longest running reconcile so far.", of, max(status.running, default=0.0))
    return list(families.values())


def _newest(controllers: Iterable[ControllerStatus]) -> int:
    return max((max(each.revision, each.target) for status in controllers for each in status.types), default=0)


OUTCOMES = {"done": "success", "requeue": "requeue_after", "failed": "error", "permanent": "error"}
"""The outcomes of a reconcile, and controller-runtime's names for them."""

SAME = {
    "headway_reconcile_seconds": ("controller_runtime_reconcile_time_seconds", "workqueue_work_duration_seconds"),
    "headway_reconcile_timeouts": ("controller_runtime_reconcile_timeouts",),
    "headway_concurrency": ("controller_runtime_max_concurrent_reconciles",),
    "headway_queue_wait_seconds": ("workqueue_queue_duration_seconds",),
    "headway_queue_adds": ("workqueue_adds",),
    "headway_reconcile_running_seconds": ("workqueue_unfinished_work_seconds",),
    "headway_reconcile_longest_seconds": ("workqueue_longest_running_processor_seconds",),
}
"""Headway's metrics, and the aliases of each, without the suffixes of counters and histograms."""


def aliases(ours: Iterable[Metric]) -> Iterator[Metric]:
    """Yield controller-runtime's metrics, derived from Headway's."""
    for metric in ours:
        for name in SAME.get(metric.name, ()):
            yield _renamed(metric, name)
        if metric.name == "headway_reconcile":
            yield from _reconciles(metric)
        elif metric.name == "headway_queue_keys":
            yield from _queues(metric)


def _renamed(metric: Metric, name: str) -> Metric:
    from prometheus_client import Metric

    renamed = Metric(name, metric.documentation, metric.type)
    for sample in metric.samples:
        labels = _labels(name, sample.labels)
        renamed.add_sample(name + sample.name.removeprefix(metric.name), labels, sample.value)
    return renamed


def _labels(name: str, labels: dict[str, str]) -> dict[str, str]:
    """Return the labels of an alias. A work queue's metrics also have its controller's name under ``name``."""
    return labels | {"name": labels["controller"]} if name.startswith("workqueue_") else labels


def _reconciles(metric: Metric) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    def counts(name: str, text: str, label: str = "") -> CounterMetricFamily:
        return CounterMetricFamily(name, text, labels=["controller", label] if label else ["controller"])

    total = counts("controller_runtime_reconcile", metric.documentation, "result")
    errors = counts("controller_runtime_reconcile_errors", "Reconciles that raised.")
    terminal = counts("controller_runtime_terminal_reconcile_errors", "Reconciles that raised PermanentFailure.")
    retries = counts("workqueue_retries", "Keys queued again after a failure.", "name")
    results: dict[tuple[str, str], float] = {}
    for sample in metric.samples:
        if not sample.name.endswith("_total"):
            continue
        controller, outcome = sample.labels["controller"], sample.labels["outcome"]
        key = (controller, OUTCOMES[outcome])
        results[key] = results.get(key, 0.0) + sample.value
        if outcome == "permanent":
            terminal.add_metric([controller], sample.value)
        elif outcome == "failed":
            retries.add_metric([controller, controller], sample.value)
    for (controller, result), value in results.items():
        total.add_metric([controller, result], value)
        if result == "error":
            errors.add_metric([controller], value)
    yield from (total, errors, terminal, retries)


def _queues(metric: Metric) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    depth = GaugeMetricFamily("workqueue_depth", "Keys that are ready.", labels=["controller", "name"])
    workers = GaugeMetricFamily("controller_runtime_active_workers", "Keys in hand.", labels=["controller"])
    for sample in metric.samples:
        controller = sample.labels["controller"]
        if sample.labels["state"] == "ready":
            depth.add_metric([controller, controller], sample.value)
        elif sample.labels["state"] == "in hand":
            workers.add_metric([controller], sample.value)
    yield from (depth, workers)

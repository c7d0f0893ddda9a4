"""The state of the controllers as gauges, and aliases of metrics under controller-runtime's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from headway.observe._states import readings
from headway.quotas import QuotaUse
from headway.run import ControllerStatus

if TYPE_CHECKING:
    from prometheus_client import Metric


def gauges(controllers: Sequence[ControllerStatus]) -> list[Metric]:
    """Return the metrics of these controllers."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
    for name, text, labels, value, counts in readings(controllers):
        family = families.get(name)
        if family is None:
            kind = CounterMetricFamily if counts else GaugeMetricFamily
            family = families[name] = kind(f"headway_{name}", text, labels=list(labels))
        family.add_metric(list(labels.values()), value)
    return list(families.values())


def quota_gauges(quotas: Iterable[QuotaUse]) -> list[Metric]:
    """Return the metrics of these quotas."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ["quota", "partition", "namespace", "what"]
    use = GaugeMetricFamily("headway_quota_use", "What the part of a quota holds: resources or bytes.", labels=labels)
    most = GaugeMetricFamily("headway_quota_limit", "The limit of a quota.", labels=labels)
    refused = CounterMetricFamily("headway_quota_refusals", "Commits refused because of a quota.", labels=["quota"])
    for quota in quotas:
        name, place, *limits = quota.limit
        for what, limit, used in zip(("resources", "bytes"), limits, quota.use, strict=True):
            about = [name, place.partition, place.namespace, what]
            use.add_metric(about, used)
            if limit is not None:
                most.add_metric(about, limit)
        refused.add_metric([name], quota.refused)
    return [use, most, refused]


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

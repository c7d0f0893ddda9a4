"""The state of the controllers as gauges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        put("controller_ready", "1 while it is reconciling.", of, float(not status.problem))
        put("controller_term", "Its run's term.", of, status.term)
        if status.shards is not None:
            put("shards_held", "Shards that this process has.", of, len(status.shards))
        put("controller_restarts", "Runs that have ended.", of, status.restarts, counts=True)
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

"""The state of the controllers as named readings: what metrics and `headway top` show. No I/O.

Each number about a controller has its name and its rule here, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

from headway.run import ControllerStatus, Phase, newest_revision


class Reading(NamedTuple):
    """A number about a controller, or about one of its types.

    Attributes:
        name: the name of the metric, without ``headway_`` and the suffix of a counter.
        text: what it is, for readers of the metrics.
        counts: True if it only grows.
    """

    name: str
    text: str
    labels: dict[str, str]
    value: float
    counts: bool = False


def readings(controllers: Sequence[ControllerStatus]) -> Iterator[Reading]:
    """Yield the readings of these controllers."""
    newest = newest_revision(controllers)
    for status in controllers:
        of = {"controller": status.name}
        for phase in get_args(Phase):
            yield Reading(
                "controller_phase", "1 for the current phase.", of | {"phase": phase}, float(phase == status.phase)
            )
        yield Reading("controller_phase_seconds", "Seconds since it entered its phase.", of, status.seconds)
        text = "1 unless something other than a pause keeps it from reconciling, as in /readyz."
        yield Reading("controller_ready", text, of, float(not status.problem))
        if status.phase == "absent":
            # There is nothing else to say about it here.
            continue
        yield Reading("controller_paused", "1 while an operator has paused it.", of, float(status.paused is not None))
        yield Reading("controller_term", "Its run's term.", of, status.term)
        if status.shards is not None:
            yield Reading("shards_held", "Shards that this process has.", of, len(status.shards))
        yield Reading(
            "controller_restarts", "Runs that have ended, except to add a watch.", of, status.restarts, counts=True
        )
        if (governed := status.governed) is not None:
            text = "Writes that wait for their turn under the controller's write_limit."
            yield Reading("writes_waiting", text, of, governed.waiting)
            yield Reading("writes_held", "Writes that have waited for their turn.", of, governed.held, counts=True)
            text = "Seconds for which writes have waited for their turn."
            yield Reading("writes_held_seconds", text, of, governed.held_seconds, counts=True)
        yield Reading("concurrency", "The number of keys that it may reconcile at once.", of, status.concurrency)
        for each in status.types:
            both = of | {"type": str(each.type)}
            yield Reading(
                "cache_primed", "1 once the type's cache has had a complete snapshot.", both, float(each.primed)
            )
            yield Reading("cache_resources", "Resources in the cache, or received so far.", both, each.resources)
            yield Reading("cache_revision", "The revision up to which the cache is complete.", both, each.revision)
            yield Reading("stream_cut_off_seconds", "Seconds without a stream of the type.", both, each.cut_off_seconds)
            text = "Resources found to have a payload that does not decode."
            yield Reading("cache_undecodable", text, both, len(each.undecodable))
            text = "Revisions by which the cache is behind the newest revision known to this process."
            yield Reading("cache_lag_revisions", text, both, max(newest - each.revision, 0))
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
            yield Reading("queue_keys", "Keys, by state; ready includes backlog.", of | {"state": state}, count)
        yield Reading("queue_adds", "Keys queued.", of, queue.adds, counts=True)
        yield Reading("queue_merged", "Queued keys that joined a run already waiting.", of, queue.merged, counts=True)
        yield Reading(
            "queue_oldest_seconds", "Seconds that the oldest ready key has waited.", of, status.oldest_wait or 0.0
        )
        yield Reading("keys_held", "Ready keys that are held back.", of, queue.ready if status.holding else 0)
        yield Reading("held", "1 while every key is held back.", of, float(bool(status.holding)))
        yield Reading("unmapped", "Changes that are still to be mapped.", of, status.unmapped)
        yield Reading("keys_not_done", "Keys whose last reconcile did not succeed.", of, status.not_done_count)
        yield Reading(
            "reconcile_running_seconds", "Total duration of the running reconciles so far.", of, sum(status.running)
        )
        yield Reading(
            "reconcile_longest_seconds", "Longest running reconcile so far.", of, max(status.running, default=0.0)
        )

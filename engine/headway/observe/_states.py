"""The state of each controller of a process, as named readings in its metrics, and from a scrape of them: what
`headway top` shows. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from headway._gen.headway.observe.v1 import ControllerNow
from headway.base import plain
from headway.run import ControllerStatus, Phase, newest_revision

_ONCE: dict[str, tuple[str, Callable[[float], object]]] = {
    "headway_controller_ready": ("ready", bool),
    "headway_controller_paused": ("paused", bool),
    "headway_controller_phase_seconds": ("seconds", float),
    "headway_queue_oldest_seconds": ("oldest", float),
    "headway_keys_not_done": ("not_done", int),
    "headway_controller_restarts_total": ("restarts", int),
}
"""The metrics that a controller has once, with their names and types here."""

_STATES = {"ready": "queued", "in hand": "running", "resting": "resting", "scheduled": "scheduled"}
_FAILURES = ("failed", "permanent")

Sample = tuple[Mapping[str, str], float]
"""The labels and the value of a sample."""


@dataclass
class ControllerState:
    """A controller of a process, at one scrape.

    Attributes:
        rate: reconciles per second since the previous scrape; None at the first one.
        failures: failed reconciles per second; None at the first scrape.
        ready: True unless something other than a pause keeps it from reconciling.
        queued: the number of ready keys; ``running``, ``resting`` and ``scheduled`` are the numbers in other states.
        lag: the number of revisions that its slowest type is behind.
    """

    process: str
    name: str
    phase: str = ""
    seconds: float = 0.0
    ready: bool = False
    paused: bool = False
    rate: float | None = None
    failures: float | None = None
    queued: int = 0
    running: int = 0
    resting: int = 0
    scheduled: int = 0
    not_done: int = 0
    oldest: float = 0.0
    restarts: int = 0
    lag: int = 0
    resources: int = 0
    types: int = 0
    primed: int = 0
    reconciles: Mapping[str, int] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The phase in words, with a pause. While it primes, also how far it is."""
        return state_text(self)

    def rates_since(self, before: ControllerState, seconds: float) -> None:
        """Set the rates from what was counted before."""
        # A process that has started again counts from 0.
        gained = {key: max(count - before.reconciles.get(key, 0), 0) for key, count in self.reconciles.items()}
        self.rate = sum(gained.values()) / seconds
        self.failures = sum(gained.get(each, 0) for each in _FAILURES) / seconds


def state_text(of: ControllerState | ControllerNow) -> str:
    """Return the phase of a controller in words, with a pause. While it primes, also how far it is."""
    text = of.phase if of.ready else f"{of.phase}, not ready"
    if of.phase == "priming":
        text = f"priming {of.primed} of {of.types} types"
    return f"{text}, paused" if of.paused else text


def states_in(process: str, samples: Mapping[str, list[Sample]]) -> Iterator[ControllerState]:
    """Yield the controllers in the samples of a page."""

    def of(metric: str) -> Iterator[tuple[ControllerState, Mapping[str, str], float]]:
        for labels, value in samples.get(metric, ()):
            if labels.get("controller") in states:
                yield states[labels["controller"]], labels, value

    states = {
        labels["controller"]: ControllerState(process, plain(labels["controller"]))
        for labels, _ in samples.get("headway_controller_ready", ())
    }
    for metric, (name, kind) in _ONCE.items():
        for state, _, value in of(metric):
            setattr(state, name, kind(value))
    for state, labels, value in of("headway_controller_phase"):
        if value:
            state.phase = plain(labels["phase"])
    for state, labels, value in of("headway_queue_keys"):
        if labels["state"] in _STATES:
            setattr(state, _STATES[labels["state"]], int(value))
    for state, labels, value in of("headway_reconcile_total"):
        state.reconciles = {**state.reconciles, labels["outcome"]: int(value)}
    for state, _, value in of("headway_cache_lag_revisions"):
        state.lag = max(state.lag, int(value))
    for state, _, value in of("headway_cache_resources"):
        state.resources += int(value)
    for state, _, value in of("headway_cache_primed"):
        state.types += 1
        state.primed += int(value)
    yield from sorted(states.values(), key=lambda state: state.name)


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

"""The state of each controller of a process, from a scrape of its metrics: what `headway top` shows. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from headway._gen.headway.observe.v1 import ControllerNow
from headway.base import plain

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

"""What a controller is doing now, for people and metrics to look at."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from headway.cache import Informer
from headway.controller._results import NotDone
from headway.queue import QueueStatistics
from headway.resource import Key, TypeName

CUT_OFF = 10.0
"""Seconds without a stream of a type after which a controller doesn't count as reconciling: a server that is started
again is back before.
"""

Phase = Literal["starting", "priming", "running", "resting", "standby"]
"""``starting``: taking the lease, raising the fence, and the initialiser; ``priming``: its types' caches fill;
``running``: mapping and reconciling; ``resting``: between two runs; ``standby``: another process runs it, and this one
is ready to."""


@dataclass(frozen=True, slots=True)
class TypeStatus:
    """One of a controller's N+1 types.

    Attributes:
        primed: whether its cache has had a whole snapshot.
        revision: up to which its cache is complete (its frontier).
        target: the revision that the run waits for before it begins.
        resources: how many its cache holds; while a first snapshot comes in, how many have come.
        lag: how many revisions it is behind the newest of the controller's types. A change that one type has told waits
            to be mapped until all have reached it.
        refused: how many items of its streams were older than what is held.
        cut_off: why there is no stream of it now; empty: there is one, or the first is being opened.
        cut_off_seconds: for how long.
        undecodable: the keys of the resources found to have payload bytes that do not decode. Indexes and mappers that
            look at their payloads leave them out.
    """

    type: TypeName
    primed: bool
    revision: int
    target: int
    resources: int
    lag: int = 0
    refused: int = 0
    cut_off: str = ""
    cut_off_seconds: float = 0.0
    undecodable: tuple[Key, ...] = ()


def type_statuses(types: Collection[Informer], target: int, now: float) -> tuple[TypeStatus, ...]:
    """What a run's types are doing, at a time by Trio's clock."""
    newest = max((shared.frontier for shared in types), default=0)
    statuses = []
    for shared in types:
        why, since = shared.cut_off or ("", now)
        statuses.append(
            TypeStatus(
                type=shared.type.name,
                primed=shared.gate.primed,
                revision=shared.frontier,
                target=target,
                resources=shared.resources,
                lag=max(newest, target) - shared.frontier,
                refused=shared.refused,
                cut_off=why,
                cut_off_seconds=now - since,
                undecodable=tuple(shared.undecodable),
            )
        )
    return tuple(statuses)


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """A controller at one moment. Times are in seconds.

    Attributes:
        seconds: how long it has been in this phase.
        term: the present run's; 0 before it has one.
        settled: the revision up to which nothing is owed; 0 while something is.
        types: empty while no run is there.
        concurrency: how many keys it may reconcile at once.
        queue: None unless it is running.
        running: how long each reconcile that is in hand has been running.
        oldest_wait: how long the key that has waited longest has been ready; None: no key is.
        holding: why every key is held back; empty: none is.
        unmapped: changes that are still to be mapped.
        not_done: up to 1,000 of the keys whose last reconcile didn't end well, by how they are called.
        not_done_count: of all of them.
        restarts: how many runs have ended.
        error: what ended the last run, or keeps the next one from its lease, as class and text; empty: nothing has.
        leader: the process that runs it while this one stands by.
        shards: those that this process has; None unless it is sharded.
    """

    name: str
    phase: Phase
    seconds: float
    term: int = 0
    starting_revision: int = 0
    settled: int = 0
    types: tuple[TypeStatus, ...] = ()
    concurrency: int = 1
    queue: QueueStatistics | None = None
    running: tuple[float, ...] = ()
    oldest_wait: float | None = None
    holding: str = ""
    unmapped: int = 0
    not_done: tuple[NotDone, ...] = ()
    not_done_count: int = 0
    restarts: int = 0
    error: str = ""
    leader: str = ""
    shards: tuple[int, ...] | None = None

    @property
    def problem(self) -> str:
        """Why it isn't reconciling now, as a sentence without its name; empty: it is."""
        if self.phase == "resting":
            runs = "a failed run" if self.restarts == 1 else f"{self.restarts} failed runs, the last"
            return f"rests after {runs} by {self.error}"
        if self.phase == "starting":
            return f"has been starting for {self.seconds:.0f} s" + (f", after {self.error}" if self.error else "")
        if self.phase == "priming":
            return f"has been priming for {self.seconds:.0f} s: waits for {self._unprimed()}"
        if self.holding:
            return f"holds back every key: {self.holding}"
        cut_off = [each for each in self.types if each.cut_off_seconds >= CUT_OFF]
        return "; ".join(
            f"has heard nothing of {each.type} for {each.cut_off_seconds:.0f} s: {each.cut_off}" for each in cut_off
        )

    @property
    def notice(self) -> str:
        """What is wrong without keeping it from reconciling, as a sentence without its name; empty: nothing is."""
        return "; ".join(
            f"leaves out {len(each.undecodable)} of {each.type} whose payload does not decode, such as "
            f"{'/'.join(filter(None, each.undecodable[0]))}"
            for each in self.types
            if each.undecodable
        )

    @property
    def brief_notice(self) -> str:
        """`notice` in a few words that strangers may read, as `cause` is of `problem`."""
        count = sum(len(each.undecodable) for each in self.types)
        return f"leaves out {count} {'resource' if count == 1 else 'resources'} that can't be decoded" if count else ""

    @property
    def cause(self) -> str:
        """The kind of `problem`, in a few words that strangers may read: no text of an error, no name of a type."""
        if not self.problem:
            return ""
        if self.phase == "resting":
            return f"resting after {'a failed run' if self.restarts == 1 else f'{self.restarts} failed runs'}"
        if self.phase in ("starting", "priming"):
            return f"{self.phase} for {self.seconds:.0f} s"
        if self.holding:
            return "holding back every key, because the outcome of a write is unknown"
        return f"cut off from {sum(each.cut_off_seconds >= CUT_OFF for each in self.types)} of its types"

    def _unprimed(self) -> str:
        return (
            ", ".join(
                f"{each.type} ({each.resources} resources, revision {each.revision} of {each.target}"
                + (f"; {each.cut_off})" if each.cut_off else ")")
                for each in self.types
                if not each.primed or each.revision < each.target
            )
            or "the types to reach one revision"
        )

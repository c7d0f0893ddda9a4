"""The status of a controller, and the keys whose last reconcile did not succeed. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from headway.cache import Informer, range_of
from headway.queue import QueueStatistics
from headway.resource import Key, ResourceId, TypeName
from headway.run._governor import Governed

CUT_OFF = 10.0
"""The number of seconds without a stream of one of its types before a controller counts as cut off.

A server that restarts is back sooner.
"""

Phase = Literal["starting", "priming", "running", "resting", "standby", "ended", "absent"]
"""The phase of a controller.

- ``starting``: acquiring the lease, raising the fence, and running the initialiser.
- ``priming``: filling the caches of its types.
- ``running``: mapping and reconciling.
- ``resting``: waiting between two runs.
- ``standby``: ready to take over from another process that runs it.
- ``ended``: the block of its engine has ended, so that no further run begins.
- ``absent``: it runs in no process, although workers of this server ran it and it is wanted.
"""


@dataclass(frozen=True, slots=True)
class TypeStatus:
    """The status of a type that a controller manages or watches.

    Attributes:
        primed: True if its cache has had a complete snapshot.
        revision: the revision up to which its cache is complete (its frontier).
        target: the revision that the run waits for before it begins.
        resources: the number of resources in its cache; during a first snapshot, the number received.
        lag: the number of revisions that it is behind the newest of the controller's types. A change of one type is
            mapped only after all types have reached it.
        refused: the number of items in its streams that were older than the cache.
        cut_off: the reason that it has no stream now; empty if it has one or the first is being opened.
        cut_off_seconds: the time without a stream.
        scope: the part of the type that is cached, such as ``namespace='sales'``; empty for the whole type.
        undecodable: the keys of resources whose payloads do not decode. Indexes and mappers that read the payload leave
            them out.
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
    scope: str = ""

    @property
    def of(self) -> str:
        """The type with its scope."""
        return f"{self.type} within {self.scope}" if self.scope else str(self.type)


def newest_revision(statuses: Iterable[ControllerStatus]) -> int:
    """Return the newest revision that the controllers with these statuses know of."""
    return max((max(each.revision, each.target) for status in statuses for each in status.types), default=0)


def type_statuses(types: Collection[Informer], target: int, now: float) -> tuple[TypeStatus, ...]:
    """Return the status of a run's types at a time on Trio's clock."""
    newest = max((informer.ask_on() for informer in types), default=0)
    statuses = []
    for informer in types:
        why, since = informer.cut_off or ("", now)
        statuses.append(
            TypeStatus(
                type=informer.type.name,
                primed=informer.store.primed,
                revision=informer.store.frontier,
                target=target,
                resources=informer.resources,
                lag=max(newest, target) - informer.store.frontier,
                refused=informer.store.refused,
                cut_off=why,
                cut_off_seconds=now - since,
                undecodable=tuple(informer.undecodable),
                scope=str(range_of(informer.type)),
            )
        )
    return tuple(statuses)


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """The status of a controller at one moment. Times are in seconds.

    Attributes:
        seconds: the time since it entered this phase; 0 once it has ended.
        term: the term of the current run; 0 before it has one.
        settled: the revision up to which no work is pending, or 0 if some is.
        types: the status of each type; empty between runs.
        concurrency: the number of keys that it may reconcile at once.
        queue: statistics of the queue; None unless it is running.
        running: the duration so far of each running reconcile.
        oldest_wait: the longest time that a key has been ready; None if no key is ready.
        holding: the reason that every key is held; empty if they are not.
        unmapped: the number of changes that are still to be mapped.
        not_done: the keys whose last reconcile did not succeed, by name; at most 1,000.
        not_done_count: the number of all such keys.
        restarts: the number of runs that have ended, except those that ended to add a watch.
        error: the class and message of the error that ended the last run, or that keeps the next one from its lease;
            empty if there is none.
        leader: the process that runs the controller while this one is on standby.
        shards: the shards of this process; None unless the controller is sharded.
        added_watches: the watches that its runs in this process have added (`Runtime.watch`), such as
            ``staff.v1.Account by team_of``.
        paused: why an operator has paused it, which may be empty; None if it is not paused. It is then not reconciling,
            but everything else goes on.
        paused_seconds: the time since it was paused; 0 if it is not, or if that is not known. Another reason for the
            same pause does not begin it anew.
        reconciles: the number of its reconciles in this process, by outcome.
        governed: the state of its ``write_limit`` in this process; None if it has none.
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
    added_watches: tuple[str, ...] = ()
    paused: str | None = None
    paused_seconds: float = 0.0
    reconciles: Mapping[str, int] = field(default_factory=dict)
    governed: Governed | None = None

    @property
    def problem(self) -> str:
        """The reason why the controller is not reconciling now, or an empty text.

        It is a sentence without its subject, such as "has been priming for 12 s, waiting for ...".
        """
        if self.phase == "ended":
            return "has ended with the block of its engine" + (f", after {self.error}" if self.error else "")
        if self.phase == "absent":
            return f"has run in no process for {self.seconds:.0f} s: start a worker that runs it"
        if self.phase == "resting":
            runs = "a failed run" if self.restarts == 1 else f"{self.restarts} failed runs, the last"
            return f"is backing off after {runs} with {self.error}"
        if self.phase == "starting":
            return f"has been starting for {self.seconds:.0f} s" + (f", after {self.error}" if self.error else "")
        if self.phase == "priming":
            return f"has been priming for {self.seconds:.0f} s, waiting for {self._unprimed()}"
        if self.holding:
            return f"holds back every key: {self.holding}"
        cut_off = [each for each in self.types if each.cut_off_seconds >= CUT_OFF]
        return "; ".join(
            f"has received nothing about {each.of} for {each.cut_off_seconds:.0f} s: {each.cut_off}" for each in cut_off
        )

    @property
    def writes_held(self) -> str:
        """The writes that its ``write_limit`` holds back now, as a sentence without its subject, or an empty text."""
        return "" if self.governed is None else self.governed.notice

    @property
    def notice(self) -> str:
        """A state that an operator should know although nothing is wrong with the controller, or an empty text.

        It has the form of `problem`.
        """
        paused = [] if self.paused is None else [f"is paused{f': {self.paused}' if self.paused else ''}"]
        undecodable = [
            f"leaves out {len(each.undecodable)} of {each.of} whose payload does not decode, such as "
            f"{'/'.join(filter(None, each.undecodable[0]))}"
            for each in self.types
            if each.undecodable
        ]
        return "; ".join([*paused, *filter(None, [self.writes_held]), *undecodable])

    @property
    def brief_notice(self) -> str:
        """A short form of `notice` for unauthenticated readers, as `cause` is of `problem`."""
        count = sum(len(each.undecodable) for each in self.types)
        text = f"leaves out {count} {'resource' if count == 1 else 'resources'} that can't be decoded" if count else ""
        held = "holds back writes, because of its write_limit" if self.writes_held else ""
        return "; ".join(filter(None, ["is paused" if self.paused is not None else "", held, text]))

    @property
    def cause(self) -> str:
        """A short form of `problem` for unauthenticated readers, without the text of an error or the name of a type."""
        if not self.problem:
            return ""
        if self.phase == "ended":
            return "ended"
        if self.phase == "absent":
            return f"has run in no process for {self.seconds:.0f} s"
        if self.phase == "resting":
            return f"backing off after {'a failed run' if self.restarts == 1 else f'{self.restarts} failed runs'}"
        if self.phase in ("starting", "priming"):
            return f"{self.phase} for {self.seconds:.0f} s"
        if self.holding:
            return "holding back every key, because the outcome of a write is unknown"
        return f"cut off from {sum(each.cut_off_seconds >= CUT_OFF for each in self.types)} of its types"

    def _unprimed(self) -> str:
        return (
            ", ".join(
                f"{each.of} ({each.resources} resources, revision {each.revision} of {each.target}"
                + (f"; {each.cut_off})" if each.cut_off else ")")
                for each in self.types
                if not each.primed or each.revision < each.target
            )
            or "the types to reach one revision"
        )


KEPT = 1000
"""The number of such keys that are kept with their errors. Any others are only counted."""


@dataclass(frozen=True, slots=True)
class NotDone:
    """A key whose last reconcile failed or was delayed.

    Attributes:
        outcome: ``failed`` if it is retried, ``permanent`` if it is not retried until something changes, or ``slowed``
            if it is delayed because it triggers itself or fights with another writer.
        error: the class and message of the exception; for a slowed key, its writes or its fight.
        attempts: the number of consecutive attempts.
        at: the time of the last attempt on Trio's clock, in seconds.
        until: the latest time of the next attempt; None if it waits for a change.
        timed_out: True if the deadline passed before the reconcile ended.
        pending_since: when its work became pending; None if it waits for a change. Failures do not reset it.
    """

    id: ResourceId
    outcome: Literal["failed", "permanent", "slowed"]
    error: str
    attempts: int
    at: float
    until: float | None
    timed_out: bool = False
    pending_since: float | None = None


class Results:
    """The keys of a run whose last reconcile did not succeed, and how many reconciles there were.

    Args:
        counts: the number of reconciles of the controller by outcome, through all of its runs.

    Attributes:
        not_done: the result of each key; None for keys beyond the first `KEPT`.
    """

    def __init__(self, counts: Counter[str] | None = None) -> None:
        self.counts = Counter[str]() if counts is None else counts
        self.not_done: dict[Key, NotDone | None] = {}

    def note(self, result: NotDone) -> None:
        """Record a key that failed or was delayed."""
        key = result.id.key
        # Keep the text and not the exception, whose traceback would keep many objects alive.
        known = self.not_done.get(key)
        self.not_done[key] = result if known is not None or len(self.not_done) < KEPT else None

    def done(self, key: Key) -> None:
        """Record that a key was reconciled successfully."""
        self.not_done.pop(key, None)

    def list(self) -> tuple[NotDone, ...]:
        """Return the known results by partition, namespace and name."""
        return tuple(each for _, each in sorted(self.not_done.items()) if each is not None)

"""The trace of one run: what happened, in order, as records that a person can read and an oracle can judge. Pure.

Times are virtual seconds since the start of the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any, Literal, NamedTuple

from headway.events import LeaseTaken
from headway.resource import Key, Kind, ResourceId, Within, pb

OVER = "the scenario is over"
"""The beginning of the entry that ends the scenario in a trace."""
_EVERYTHING = Within()


def named(kind: Kind, key: Key) -> str:
    """Return a readable name, such as ``Account ada``, with partition and namespace if they are not the defaults."""
    units = [unit for unit in key[:2] if unit not in ("", "default")]
    return f"{kind[1]} {'/'.join((*units, key[2]))}"


@dataclasses.dataclass(frozen=True, slots=True)
class Committed:
    """A change of one resource in the store.

    Attributes:
        by: the controller, or "" for a user and for Headway itself.
        term: the term of the write's fence.
        member: the member of the write's fence. The shards of a controller each have their own.
    """

    at: float
    revision: int
    kind: Kind
    key: Key
    old: pb.Resource | None
    new: pb.Resource | None
    by: str
    term: int
    member: str = ""

    @property
    def what(self) -> Literal["created", "changed", "deleted"]:
        """The kind of change."""
        if self.new is None:
            return "deleted"
        return "created" if self.old is None else "changed"

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"store at {self.revision}: {named(self.kind, self.key)} {self.what}{by}"


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered:
    """An item that a process received from the stream of a type: a change, the end of a snapshot or a bookmark."""

    at: float
    process: str
    kind: Kind
    what: str
    revision: int

    def __str__(self) -> str:
        return f"{self.process} receives {self.kind[1]}: {self.what} at {self.revision}"


class Seen(NamedTuple):
    """A resource that a function has read from its cache, or written.

    Attributes:
        version: its version; 0 if it was absent.
        at: the number of entries in the trace at that time.
        within: the part of the type that the cache has.
    """

    kind: Kind
    key: Key
    version: int
    how: Literal["read", "written"]
    at: int
    within: Within = _EVERYTHING


@dataclasses.dataclass(slots=True)
class Reconcile:
    """A call of a function of the program: a reconcile, with the cache's revisions at its start, or another function.

    Attributes:
        key: the key that is reconciled, or the daemon's resource. Empty for a function of the whole controller.
        seen: what it has read from the cache and what it has written, in order.
        steps: the number of steps that the run had taken before.
        function: the function, such as ``the daemon`` or ``the initializer``, if it is not the reconciler.
    """

    at: float
    process: str
    controller: str
    kind: Kind
    key: Key
    reasons: str
    term: int
    revisions: dict[str, int]
    seen: list[Seen] = dataclasses.field(default_factory=list)
    steps: int = 0
    trace: list[Entry] = dataclasses.field(default_factory=list, repr=False)
    function: str = ""

    def saw(
        self, kind: Kind, key: Key, version: int, how: Literal["read", "written"], within: Within = _EVERYTHING
    ) -> None:
        """Record that the reconcile has read or written a resource."""
        self.seen.append(Seen(kind, key, version, how, len(self.trace), within))

    @property
    def about(self) -> str:
        """The resource that it is called for, or the function."""
        if not self.function:
            return named(self.kind, self.key)
        of = named(self.kind, self.key) if self.key[2] else self.controller
        return f"{self.function} of {of}" if of else self.function

    def __str__(self) -> str:
        if self.function:
            return f"{self.process} calls {self.about}"
        seen = ", ".join(f"{name} at {revision}" for name, revision in self.revisions.items())
        return f"{self.process} reconciles {self.about} ({self.controller}: {self.reasons}); its cache: {seen}"


@dataclasses.dataclass(slots=True)
class Reconciled:
    """The end of a reconcile, or of another function of the program."""

    at: float
    began: Reconcile
    result: str

    def __str__(self) -> str:
        read = {
            f"{named(each.kind, each.key)} {f'at {each.version}' if each.version else 'absent'}"
            for each in self.began.seen
            if each.how == "read"
        }
        seen = f", having read {', '.join(sorted(read))}" if read else ""
        return f"{self.began.process} ends {self.began.about}: {self.result}{seen}"


@dataclasses.dataclass(slots=True)
class Step:
    """A call made by a function of the program, and its outcome.

    Attributes:
        revision: the revision of the change that it made; 0 if it changed nothing.
        answer: what the program learned from it: the reply of the world outside, or the versions that were read.
        place: the file and the line of the program that made the call.
        effect: the time at which it took effect, and the number of entries in the trace then; zeros if it never did.
    """

    at: float
    number: int
    by: Reconcile
    method: str
    kind: Kind
    key: Key
    write: bool
    outcome: str = "under way"
    revision: int = 0
    answer: str = dataclasses.field(default="", repr=False)
    place: tuple[str, int] = dataclasses.field(default=("", 0), repr=False, compare=False)
    effect: tuple[float, int] = dataclasses.field(default=(0.0, 0), repr=False, compare=False)

    @property
    def call(self) -> str:
        """The call, without its outcome."""
        where = named(self.kind, self.key) if self.key[2] else f"{self.kind[1]}s" if self.kind[1] else ""
        return f"{self.by.process} step {self.number}: {f'{self.method} {where}'.strip()}"

    def __str__(self) -> str:
        changed = f" at {self.revision}" if self.revision else ""
        # What was read outside decides what the program does next.
        told = self.outcome == "done" and not self.kind[1] and self.answer not in ("", "None")
        return f"{self.call}: {self.outcome}{changed}{f', and returns {self.answer}' if told else ''}"


@dataclasses.dataclass(frozen=True, slots=True)
class Happened:
    """Any other event: a fault that struck, a process that began or ended, an engine's report.

    Attributes:
        step: the number of the step that the fault struck; 0 if it struck none.
    """

    at: float
    text: str
    fault: bool = False
    step: int = 0

    def __str__(self) -> str:
        return f"** {self.text} **" if self.fault else self.text


@dataclasses.dataclass(frozen=True, slots=True)
class OutsideChanged:
    """The world outside at the start, or after a call of it: a copy. It is recorded for the checks of ``always``."""

    at: float
    call: str
    state: Any = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return f"the world outside, after {self.call}"


class Uncertain(NamedTuple):
    """An entry into a step that was begun before and never ended.

    Attributes:
        by: the call of the program that enters it.
        of: the resource of the step.
        step: the name of the step.
        key: the key that the outside was given.
        steps: the number of calls that had begun before, in the whole run.
    """

    by: Reconcile
    of: ResourceId
    step: str
    key: str
    steps: int


Entry = Committed | Delivered | Reconcile | Reconciled | Step | Happened | OutsideChanged


class Trace:
    """Everything that happened in a run.

    Attributes:
        entries: all entries, in order.
        commits: the commits among them.
        steps: the steps among them.
        reconciles: the reconciles among them.
        checkpoints: the checkpoints worth a crash, by process and number: each is the first one after a message between
            the process and the server that is not a step.
        upgrades: the processes that were upgraded, by name, each with the number of steps begun before.
        outside: what the world outside contains, at the start and after each call that has changed that.
        drifted: the indices of those that no call of the program has made.
        looks: the number of steps begun before each look of the program at the wall clock.
        events: the events that engines reported.
        uncertain: the entries into steps whose outcome was unknown.
        on_cluster: True if the program's types are of Kubernetes.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.commits: list[Committed] = []
        self.steps: list[Step] = []
        self.reconciles: list[Reconcile] = []
        self.checkpoints: list[tuple[str, int]] = []
        self.upgrades: list[tuple[str, int]] = []
        self.outside: list[frozenset[tuple[str, Hashable]]] = []
        self.drifted: set[int] = set()
        self.looks: list[int] = []
        self.events: list[Any] = []
        self.uncertain: list[Uncertain] = []
        self.on_cluster = False

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        self.entries.append(entry)
        if isinstance(entry, Committed):
            self.commits.append(entry)
        elif isinstance(entry, Step):
            self.steps.append(entry)
        elif isinstance(entry, Reconcile) and not entry.function:
            self.reconciles.append(entry)


class PeersTrace(Trace):
    """The trace of a peer. Its commits and the other events are in the story of the program's side, too."""

    def __init__(self, side: str, of: Trace) -> None:
        super().__init__()
        self._side = side
        self._of = of

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        super().add(entry)
        if isinstance(entry, Committed | Happened):
            text = entry.text if isinstance(entry, Happened) else str(entry)
            self._of.add(Happened(entry.at, f"{self._side}: {text}", isinstance(entry, Happened) and entry.fault))


def reconciled_by(trace: Trace) -> Mapping[str, list[str]]:
    """Return the resources that each process has reconciled, as texts, by process."""
    found: dict[str, dict[str, None]] = {}
    for each in trace.reconciles:
        found.setdefault(each.process, {})[named(each.kind, each.key)] = None
    return {process: sorted(names) for process, names in sorted(found.items())}


def is_spread(trace: Trace, processes: int) -> bool:
    """Return True unless a sharded controller has keys enough for every process, but some process has none."""
    sharded = {
        event.name.partition("/")[2].partition("#")[0]
        for event in trace.events
        if isinstance(event, LeaseTaken) and "#" in event.name
    }
    for controller in sharded:
        mine = [each for each in trace.reconciles if each.controller == controller]
        keys = {each.key for each in mine}
        if len(keys) >= processes > len({each.process for each in mine}):
            return False
    return True

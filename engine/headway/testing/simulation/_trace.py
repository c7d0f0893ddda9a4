"""What happened in one run, in order, as records that a person can read and an oracle can judge. Pure.

Times are virtual seconds since the run began.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from headway.resource import Key, Kind, pb


def named(kind: Kind, key: Key) -> str:
    """A resource for people: ``Account ada``, with partition and namespace where they aren't the default ones."""
    units = [unit for unit in key[:2] if unit not in ("", "default")]
    return f"{kind[1]} {'/'.join((*units, key[2]))}"


@dataclasses.dataclass(frozen=True, slots=True)
class Committed:
    """A change of one resource in the store.

    Attributes:
        by: the controller, or "" for a user and Headway itself.
        term, member: of the fence that the write bore; a sharded controller's shards have each their own.
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
        """What it was."""
        if self.new is None:
            return "deleted"
        return "created" if self.old is None else "changed"

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"store at {self.revision}: {named(self.kind, self.key)} {self.what}{by}"


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """A process was told something by the stream of a type: a change, a snapshot's end, a bookmark."""

    at: float
    process: str
    kind: Kind
    what: str
    revision: int

    def __str__(self) -> str:
        return f"{self.process} hears of {self.kind[1]}: {self.what} at {self.revision}"


@dataclasses.dataclass(slots=True)
class Reconcile:
    """A reconcile, with the cache's revisions at its start, and what it has seen since, in order.

    That is what it read of the cache, and what it has written: (kind, key, version or 0, "read" or "written", when), in
    which "when" is how many entries its trace had.
    """

    at: float
    process: str
    controller: str
    kind: Kind
    key: Key
    reasons: str
    term: int
    revisions: dict[str, int]
    seen: list[tuple[Kind, Key, int, str, int]] = dataclasses.field(default_factory=list)
    # How many steps the run had taken before.
    steps: int = 0
    trace: list[Entry] = dataclasses.field(default_factory=list, repr=False)

    def saw(self, kind: Kind, key: Key, version: int, how: str) -> None:
        """It has read or written this."""
        self.seen.append((kind, key, version, how, len(self.trace)))

    def __str__(self) -> str:
        seen = ", ".join(f"{name} at {revision}" for name, revision in self.revisions.items())
        who = f"{self.process} reconciles {named(self.kind, self.key)} ({self.controller}: {self.reasons})"
        return f"{who}; its cache: {seen}"


@dataclasses.dataclass(slots=True)
class Reconciled:
    """A reconcile's end."""

    at: float
    began: Reconcile
    result: str

    def __str__(self) -> str:
        told = {
            f"{named(kind, key)} {f'at {version}' if version else 'is not there'}"
            for kind, key, version, how, _ in self.began.seen
            if how == "read"
        }
        read = sorted(told)
        seen = f", having read {', '.join(read)}" if read else ""
        return f"{self.began.process} ends {named(self.began.kind, self.began.key)}: {self.result}{seen}"


@dataclasses.dataclass(slots=True)
class Step:
    """A call that a reconcile made, and what became of it; ``revision`` where it changed something, else 0."""

    at: float
    number: int
    by: Reconcile
    method: str
    kind: Kind
    key: Key
    write: bool
    outcome: str = "under way"
    revision: int = 0

    def __str__(self) -> str:
        where = named(self.kind, self.key) if self.key[2] else f"{self.kind[1]}s" if self.kind[1] else ""
        changed = f" at {self.revision}" if self.revision else ""
        what = f"{self.method} {where}".strip()
        return f"{self.by.process} step {self.number}: {what}: {self.outcome}{changed}"


@dataclasses.dataclass(frozen=True, slots=True)
class Happened:
    """Anything else: a fault that struck, a process that began or ended, what an engine reported."""

    at: float
    text: str
    fault: bool = False

    def __str__(self) -> str:
        return f"** {self.text} **" if self.fault else self.text


Entry = Committed | Told | Reconcile | Reconciled | Step | Happened


class Trace:
    """Everything that happened in a run.

    Attributes:
        entries: in order.
        commits, steps, reconciles: those among them.
        checkpoints: the first one of each process, by its number, after something has passed between it and the server
            that is no step.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.commits: list[Committed] = []
        self.steps: list[Step] = []
        self.reconciles: list[Reconcile] = []
        self.checkpoints: list[tuple[str, int]] = []
        self.events: list[Any] = []

    def add(self, entry: Entry) -> None:
        """Note what happens now."""
        self.entries.append(entry)
        if isinstance(entry, Committed):
            self.commits.append(entry)
        elif isinstance(entry, Step):
            self.steps.append(entry)
        elif isinstance(entry, Reconcile):
            self.reconciles.append(entry)

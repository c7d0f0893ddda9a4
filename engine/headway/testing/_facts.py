"""What a process can see of a store, as facts that are written down: plain tuples, a line of JSON each. Pure.

A `History` of the facts of many processes judges the store. A `RecordingChannel` makes most of them by itself.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from headway.resource import Change, Key, Kind, pb, resource_key

Times = tuple[float, float]
"""When a call was sent, and when it was answered, by a clock that all the processes share."""


class Told(NamedTuple):
    """One resource as a watch or an answer has told it.

    Attributes:
        revision: of the change; of a resource in a snapshot its version.
        digest: stands for its content; of a deletion empty.
        more: whether more of the same commit follows in the watch.
    """

    revision: int
    key: Key
    uid: str
    digest: str
    deleted: bool = False
    more: bool = False


class WatchOpened(NamedTuple):
    """A watch was opened, with a snapshot or (``after``) to go on from a revision.

    Attributes:
        watch: a name that no other watch of the history has.
        within: partition and namespace exactly, or ``*`` for any, and the start of the name.
    """

    watch: str
    kind: Kind
    within: tuple[str, str, str]
    after: int | None


class SnapshotTold(NamedTuple):
    """Some of what was there."""

    watch: str
    resources: tuple[Told, ...]


class SnapshotEnded(NamedTuple):
    """Everything that was there at this revision has been told."""

    watch: str
    store_id: str
    revision: int


class ChangesTold(NamedTuple):
    """Changes, in the order in which they were told."""

    watch: str
    changes: tuple[Told, ...]


class BookmarkTold(NamedTuple):
    """Everything up to this revision has been told."""

    watch: str
    store_id: str
    revision: int
    resumed: bool


class WriteAnswered(NamedTuple):
    """A write was answered, or its outcome is unknown.

    Attributes:
        who: the process that wrote; a process that was started again is another one.
        fence: the write's (controller, member, term), if it bore one.
        outcome: ``acknowledged``, ``refused`` (it has certainly not happened), or ``unknown``.
        digest: what was to be stored; of a deletion empty.
        revision: of the answer's position.
        stored: what the answer says to be stored under the key at that revision; None: nothing.
        expected: the version that the write was to replace, if it named one.
    """

    who: str
    kind: Kind
    key: Key
    times: Times
    fence: tuple[str, str, int] | None
    outcome: str
    digest: str
    revision: int = 0
    stored: Told | None = None
    expected: int = 0


class ReadAnswered(NamedTuple):
    """A read of the store was answered; ``version`` 0: nothing was there."""

    who: str
    kind: Kind
    key: Key
    times: Times
    revision: int
    version: int


class CacheSeen(NamedTuple):
    """What a cache held of a kind: the version of each key.

    Attributes:
        cache: a name for one life of one cache: what is seen under it may never go back.
        revision: up to which the cache says it is complete.
    """

    cache: str
    kind: Kind
    revision: int
    held: tuple[tuple[Key, int], ...]


class TermHeld(NamedTuple):
    """A process holds a lease in a term."""

    who: str
    lease: str
    term: int


class ReconcileDone(NamedTuple):
    """A key was reconciled without failure.

    Attributes:
        began: when, by the clock of `Times`.
        seen: of each kind, the revision up to which the cache was complete when it began.
    """

    who: str
    controller: str
    key: Key
    began: float
    seen: tuple[tuple[Kind, int], ...]


class DeletionsMissed(NamedTuple):
    """A run has said that it can't know what of a kind was deleted after a revision and before it began, which was at
    ``upto`` at the latest (`DeletionsUnknown`).
    """

    who: str
    controller: str
    kind: Kind
    after: int
    upto: int


Fact = (
    WatchOpened
    | SnapshotTold
    | SnapshotEnded
    | ChangesTold
    | BookmarkTold
    | WriteAnswered
    | ReadAnswered
    | CacheSeen
    | TermHeld
    | ReconcileDone
    | DeletionsMissed
)
_FACTS: dict[str, Any] = {each.__name__: each for each in Fact.__args__}


def fact_line(fact: Fact) -> str:
    """A fact as a line of JSON, without its end of line."""
    return json.dumps([type(fact).__name__, *fact], separators=(",", ":"))


def read_fact(line: str) -> Fact:
    """The fact that `fact_line` has made a line of. Raises ValueError for anything else."""
    name, *values = json.loads(line)
    if name not in _FACTS:
        raise ValueError(f"{line[:80]!r} is no fact of a history: its first value is one of {', '.join(_FACTS)}")
    fact = _FACTS[name](*map(_tuples, values))
    if isinstance(fact, SnapshotTold):
        return fact._replace(resources=tuple(Told(*each) for each in fact.resources))
    if isinstance(fact, ChangesTold):
        return fact._replace(changes=tuple(Told(*each) for each in fact.changes))
    if isinstance(fact, WriteAnswered) and fact.stored is not None:
        return fact._replace(stored=Told(*fact.stored))
    read: Fact = fact
    return read


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def digest_of(resource: pb.Resource) -> str:
    """Stands for what a writer decides of a resource: its data and its status."""
    content = hashlib.blake2b(b"" if resource.data is None else resource.data.value, digest_size=8)
    for key in sorted(resource.status):
        content.update(key.encode() + bytes(resource.status[key]))
    return content.hexdigest()


def told_of(resource: pb.Resource) -> Told:
    """A resource that is stored."""
    uid = resource.id.uid if resource.id is not None else ""
    return Told(int(resource.version), resource_key(resource), uid, digest_of(resource))


def told_of_change(change: Change) -> Told:
    """A change as a watch tells it."""
    told = told_of(change.resource)
    if not change.deleted:
        return told._replace(more=change.more)
    return told._replace(revision=change.revision, digest="", deleted=True, more=change.more)

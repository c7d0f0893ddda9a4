"""The facts that a process can observe about a store, as plain tuples with one line of JSON each. Pure.

A `History` judges the store by the facts of many processes. A `RecordingChannel` makes most of them by itself.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from headway.resource import Change, Key, Kind, pb, resource_key

Times = tuple[float, float]
"""The times at which a call was sent and answered, by a clock that all the processes share."""


Entries = tuple[tuple[str, str], ...]
"""Metadata entries, as pairs of a key and a value."""


class DeliveredResource(NamedTuple):
    """A resource, as delivered by a watch or a reply.

    Attributes:
        revision: the revision of the change; for a resource in a snapshot, its version.
        digest: a digest of its content; empty for a deletion.
        more: true if the watch delivers more of the same commit after it.
        metadata: its metadata entries, sorted; empty for a deletion.
    """

    revision: int
    key: Key
    uid: str
    digest: str
    deleted: bool = False
    more: bool = False
    metadata: Entries = ()


class WatchOpened(NamedTuple):
    """A watch was opened, with a snapshot, or to resume after the revision ``after``.

    Attributes:
        watch: a name that is unique within the history.
        within: the partition and namespace, or ``*`` for any, and a prefix of the name.
        metadata: the metadata entries that a resource must have to be watched.
    """

    watch: str
    kind: Kind
    within: tuple[str, str, str]
    after: int | None
    metadata: Entries = ()


class SnapshotDelivered(NamedTuple):
    """A part of a snapshot was delivered."""

    watch: str
    resources: tuple[DeliveredResource, ...]


class SnapshotEnded(NamedTuple):
    """The snapshot of this revision has been delivered completely."""

    watch: str
    store_id: str
    revision: int


class ChangesDelivered(NamedTuple):
    """Changes were delivered, in this order."""

    watch: str
    changes: tuple[DeliveredResource, ...]


class BookmarkDelivered(NamedTuple):
    """A bookmark was delivered: the watch has delivered everything up to this revision."""

    watch: str
    store_id: str
    revision: int
    resumed: bool


class WriteSent(NamedTuple):
    """A write was sent. It has no answer if its process is killed meanwhile.

    Attributes:
        digest: as in `WriteAnswered`.
    """

    who: str
    kind: Kind
    key: Key
    digest: str


class WriteAnswered(NamedTuple):
    """A write was answered, or its outcome is unknown.

    Attributes:
        who: the process that wrote. A restarted process counts as another one.
        fence: the write's (controller, member, term), if it had a fence.
        outcome: ``acknowledged``, ``refused`` (certainly not stored) or ``unknown``.
        digest: a digest of what was to be stored; empty for a deletion.
        revision: the revision of the reply's position.
        stored: what the reply says is stored under the key at that revision; None if nothing is.
        expected: the version that the write was to replace, or 0 if it named none.
    """

    who: str
    kind: Kind
    key: Key
    times: Times
    fence: tuple[str, str, int] | None
    outcome: str
    digest: str
    revision: int = 0
    stored: DeliveredResource | None = None
    expected: int = 0


class ReadAnswered(NamedTuple):
    """A read of the store was answered. ``version`` is 0 if the resource was not found."""

    who: str
    kind: Kind
    key: Key
    times: Times
    revision: int
    version: int


class CacheSeen(NamedTuple):
    """The contents of a cache for one kind: the version of each key.

    Attributes:
        cache: a unique name for one life of one cache. Within that life, no key may go back.
        revision: the frontier: the cache is complete up to this revision.
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
        began: the start, by the clock of `Times`.
        seen: for each kind, the cache's frontier at the start.
    """

    who: str
    controller: str
    key: Key
    began: float
    seen: tuple[tuple[Kind, int], ...]


class DeletionsMissed(NamedTuple):
    """A run reported that it cannot know all deletions of a kind (`DeletionsUnknown`).

    It may have missed deletions after the revision ``after`` and up to ``upto``. The run began at ``upto`` at the
    latest.
    """

    who: str
    controller: str
    kind: Kind
    after: int
    upto: int


Fact = (
    WatchOpened
    | SnapshotDelivered
    | SnapshotEnded
    | ChangesDelivered
    | BookmarkDelivered
    | WriteSent
    | WriteAnswered
    | ReadAnswered
    | CacheSeen
    | TermHeld
    | ReconcileDone
    | DeletionsMissed
)
_FACTS: dict[str, Any] = {each.__name__: each for each in Fact.__args__}


def fact_line(fact: Fact) -> str:
    """Return a fact as a line of JSON, without a newline."""
    return json.dumps([type(fact).__name__, *fact], separators=(",", ":"))


def read_fact(line: str) -> Fact:
    """Return the fact of a line made by `fact_line`.

    Raises:
        ValueError: if the line is not such a fact.
    """
    name, *values = json.loads(line)
    if name not in _FACTS:
        raise ValueError(
            f"{line[:80]!r} is not a fact of a history: its first value must be one of {', '.join(_FACTS)}"
        )
    fact = _FACTS[name](*map(_tuples, values))
    if isinstance(fact, SnapshotDelivered):
        return fact._replace(resources=tuple(DeliveredResource(*each) for each in fact.resources))
    if isinstance(fact, ChangesDelivered):
        return fact._replace(changes=tuple(DeliveredResource(*each) for each in fact.changes))
    if isinstance(fact, WriteAnswered) and fact.stored is not None:
        return fact._replace(stored=DeliveredResource(*fact.stored))
    read: Fact = fact
    return read


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def digest_of(resource: pb.Resource) -> str:
    """Return a digest of the parts of a resource that writers decide: its data and its status."""
    content = hashlib.blake2b(b"" if resource.data is None else resource.data.value, digest_size=8)
    for key in sorted(resource.status):
        content.update(key.encode() + bytes(resource.status[key]))
    return content.hexdigest()


def delivered_resource(resource: pb.Resource) -> DeliveredResource:
    """Return the form of a stored resource in a fact."""
    uid = resource.id.uid if resource.id is not None else ""
    return DeliveredResource(
        int(resource.version),
        resource_key(resource),
        uid,
        digest_of(resource),
        metadata=tuple(sorted(resource.metadata.items())),
    )


def delivered_change(change: Change) -> DeliveredResource:
    """Return the form of a change of a watch in a fact."""
    delivered = delivered_resource(change.resource)._replace(more=change.more)
    if not change.deleted:
        return delivered
    return delivered._replace(revision=change.revision, digest="", deleted=True, metadata=())

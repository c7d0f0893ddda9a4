"""The items of a watch (snapshot chunks, their end, changes, bookmarks), and positions in a store's history.

These are the in-process forms of the wire's WatchEvent. One object holds several events, so that a snapshot of
100,000 resources takes a hundred lists instead of 100,000 messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from headway._gen.headway.resource import v1 as pb

ANY_VERSIONS = "*"


class Position(NamedTuple):
    """A position in one store's history. Revisions with different store ids cannot be compared.

    Attributes:
        store_id: the id of the store.
        session: the session of the store.
        revision: the number of a commit.
        versions: the versions of the kind whose resources the watch contained, separated by commas. A watch that
            contains other versions cannot resume from the position. Empty means the type's own version alone;
            only types with several forms have others. After a ``#`` comes a digest of what the caller may read of the
            type, if there are rules. With `ANY_VERSIONS`, every watch can resume from it.
    """

    store_id: str
    session: str
    revision: int
    versions: str = ""

    def message(self) -> pb.Position:
        """Return this position as a wire message."""
        return pb.Position(
            store_id=self.store_id, incarnation=self.session, revision=self.revision, versions=self.versions
        )


def position(message: pb.Position | None) -> Position | None:
    """Return the position in a wire message, or None if the message is None."""
    if message is None:
        return None
    return Position(message.store_id, message.incarnation, message.revision, message.versions)


class Change(NamedTuple):
    """The change of one resource in one commit.

    Attributes:
        revision: the revision of the commit. A delete has a revision too.
        resource: the resource as the commit stored it, or its last state if the commit deleted it. The message is
            shared and must not be changed.
        deleted: True if the commit deleted the resource.
        more: True if another change of the same commit follows in this stream.
    """

    revision: int
    resource: pb.Resource
    deleted: bool
    more: bool


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Some of the existing resources, sorted by key over all chunks if ``in_order``. No chunk follows EndOfSnapshot."""

    resources: list[pb.Resource]
    in_order: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class EndOfSnapshot:
    """The end of the snapshot: everything that existed at ``position`` has been delivered."""

    position: Position


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes in order of revision: whole commits, unless the last has ``more``. Shared, so do not change them."""

    changes: list[Change]


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A position up to which the stream is complete.

    Attributes:
        position: the position.
        resumed: True if the stream resumes from there without a snapshot.
    """

    position: Position
    resumed: bool = False


StreamItem = SnapshotChunk | EndOfSnapshot | Changes | Bookmark


@dataclass(frozen=True, slots=True)
class ScopeConfirmed:
    """The server's confirmation that a watch is filtered by metadata. It is the first item of such a watch.

    Attributes:
        selector: the metadata entries that it is filtered by.
    """

    selector: str

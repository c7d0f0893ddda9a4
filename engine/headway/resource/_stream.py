"""What a watch says: snapshot chunks, their end, changes, bookmarks; and positions in a store's history.

These are the in-process forms of the wire's WatchEvent, several events to an object, so that a snapshot of
100,000 resources is a hundred lists and not 100,000 messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headway._gen.headway.resource import v1 as pb

ANY_VERSIONS = "*"


class Position(NamedTuple):
    """A place in one store's history. Revisions of different store ids say nothing of each other.

    Attributes:
        versions: of a position that a watch of a type with converters told, the versions of the kind whose resources
            the watch contains, with commas between. A watch that contains other ones cannot go on from there. Empty:
            the type's own version alone. `ANY_VERSIONS`: it goes on whatever it contained.
    """

    store_id: str
    session: str
    revision: int
    versions: str = ""

    def message(self) -> pb.Position:
        """This position as the wire has it."""
        return pb.Position(
            store_id=self.store_id, incarnation=self.session, revision=self.revision, versions=self.versions
        )


def position(message: pb.Position | None) -> Position | None:
    """The position in a wire message, or None where there is none."""
    if message is None:
        return None
    return Position(message.store_id, message.incarnation, message.revision, message.versions)


class Change(NamedTuple):
    """One resource's change in one commit.

    Attributes:
        revision: the commit's; a delete has one of its own.
        resource: as stored by the commit, or as it last was when the commit deleted it. Shared: never written to.
        deleted: whether the commit deleted it.
        more: whether another change of the same commit follows in this stream.
    """

    revision: int
    resource: pb.Resource
    deleted: bool
    more: bool


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Some of the resources that are there. Only before EndOfSnapshot."""

    resources: list[pb.Resource]


@dataclass(frozen=True, slots=True)
class EndOfSnapshot:
    """Everything that was there at ``position`` has been said."""

    position: Position


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes in order of revision, whole commits unless the last has ``more``. Shared: never written to."""

    changes: list[Change]


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The stream has said everything up to ``position``. ``resumed``: it goes on from there without a snapshot."""

    position: Position
    resumed: bool = False


StreamItem = SnapshotChunk | EndOfSnapshot | Changes | Bookmark

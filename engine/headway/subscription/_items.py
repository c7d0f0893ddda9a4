"""The items of a subscription, in process: parts of a snapshot, its end, whole commits, and positions reached. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.base import repr_text
from headway.errors import InvalidArgument, PayloadError
from headway.protobuf import decode, encode
from headway.resource import Change, Position, SnapshotChunk, position
from headway.subscription._topic_log import TopicEvent, TopicPosition

SubscriptionEvent = Change | TopicEvent


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """A part of the snapshot, beside its `SnapshotChunk`s. It may change or delete what an earlier part contains."""

    events: list[SubscriptionEvent]


@dataclass(frozen=True, slots=True)
class SnapshotComplete:
    """The end of the snapshot: everything that existed at ``position`` has been delivered."""

    position: SubscriptionPosition


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """An announcement: a snapshot follows, because the changes since the last position are not known."""

    reason: str


class Commit(NamedTuple):
    """Everything that one commit, or one call of `Topic.publish`, has changed in the subjects."""

    events: list[SubscriptionEvent]
    position: SubscriptionPosition


@dataclass(frozen=True, slots=True)
class Commits:
    """Whole commits, in order."""

    commits: list[Commit]


@dataclass(frozen=True, slots=True)
class Reached:
    """A position up to which everything has been delivered."""

    position: SubscriptionPosition


SubscriptionItem = SnapshotChunk | SnapshotPart | SnapshotComplete | NewSnapshot | Commits | Reached


class SubscriptionPosition(NamedTuple):
    """A position in what a subscription delivers. ``str(position)`` is a line of text that `parse` reads.

    Attributes:
        store: the position in the store; None without a type.
        topics: the positions in the topics.
        selection: identifies the subjects and the caller's rights. A subscription with others begins with a snapshot.
    """

    store: Position | None = None
    topics: tuple[TopicPosition, ...] = ()
    selection: str = ""

    @override
    def __str__(self) -> str:
        return base64.urlsafe_b64encode(encode(self.message())).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> SubscriptionPosition:
        """Return the position that ``str(position)`` has written. Raise InvalidArgument for any other text."""
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            return subscription_position(decode(subscribe_pb.Position, data))
        except (binascii.Error, PayloadError, TypeError, ValueError):
            raise InvalidArgument(
                f"{repr_text(text)} is not a position of a subscription: give what str(batch.position) has returned"
            ) from None

    def message(self) -> subscribe_pb.Position:
        """Return this position as a wire message."""
        return subscribe_pb.Position(
            store=None if self.store is None else self.store.message(),
            topics=[
                subscribe_pb.TopicPosition(topic=each.topic, incarnation=each.incarnation, number=each.number)
                for each in self.topics
            ],
            selection=self.selection,
        )


def subscription_position(message: subscribe_pb.Position) -> SubscriptionPosition:
    """Return the position in a wire message."""
    topics = tuple(TopicPosition(each.topic, each.incarnation, each.number) for each in message.topics)
    return SubscriptionPosition(position(message.store), topics, message.selection)


class CommitMerge:
    """The changes of several watches that are not whole commits yet.

    Args:
        frontiers: the revision up to which each watch is complete.
    """

    def __init__(self, frontiers: Sequence[int]) -> None:
        self._frontiers = list(frontiers)
        # Invariant: no change here is at or below a revision that `take` has passed.
        self._pending: dict[int, list[Change]] = {}

    @property
    def frontier(self) -> int:
        """The revision up to which every watch is complete."""
        return min(self._frontiers)

    def lowest(self) -> int:
        """Return the index of the watch to read next."""
        return self._frontiers.index(min(self._frontiers))

    def feed(self, index: int, changes: Sequence[Change], frontier: int) -> None:
        """Add the changes of a watch, which is complete up to ``frontier`` afterwards."""
        for change in changes:
            self._pending.setdefault(change.revision, []).append(change)
        self._frontiers[index] = max(self._frontiers[index], frontier)

    def take(self, limit: int | None = None) -> list[tuple[int, list[Change]]]:
        """Return the whole commits in order, up to a revision if there is a ``limit``."""
        whole = self.frontier if limit is None else min(self.frontier, limit)
        return [
            (revision, sorted(self._pending.pop(revision), key=lambda change: not change.deleted))
            for revision in sorted(self._pending)
            if revision <= whole
        ]

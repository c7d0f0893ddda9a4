"""The items of a subscription, in process: parts of a snapshot, its end, whole commits, and positions reached. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headway.resource import AnyMessage, Change, SnapshotChunk
from headway.subscription._position import SubscriptionPosition


class TopicEvent(NamedTuple):
    """An event of a topic, encoded."""

    topic: str
    subject: str
    data: AnyMessage


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

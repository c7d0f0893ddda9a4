"""The states of a receiver, the work for its driver, and small parts of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from headway._gen.headway.peering import v1 as wire
from headway._gen.headway.peering.v1 import Subject
from headway.peering.stream._rules import Breach, PeerLimits
from headway.resource import quoted
from headway.storage import MOST_OPERATIONS, Operation, Remove

COMMIT = MOST_OPERATIONS - 2
"""The number of copies in one commit. The position and the requirement of the partition belong to it as well.

A copy that is removed counts twice, because of what it may own here.
"""

REASON = 300
"""The maximum length of a reason that is stored, and of each text of a position."""


class Copying(Enum):
    """The states of a receiver, as the conditions of a Peering show them. The value is a sentence."""

    WAITING = "No snapshot has begun."
    SNAPSHOT = "A snapshot is being copied."
    CURRENT = "Every change is copied as it happens."
    ROLLED_BACK = "The peer's store was rolled back."
    BEHIND = "The peer's server is behind what was already copied."


@dataclass(slots=True)
class Work:
    """The work for one response, in this order.

    Attributes:
        commits: the operations of each commit.
        state: the state to store with the commit number `state_at`; None to store nothing.
        replies: the requests to send after that.
        server: the peer's new addresses.
        replaced: True if the peer's store was replaced by another one.
    """

    commits: list[list[Operation]] = field(default_factory=list)
    state: wire.Imported | None = None
    replies: list[wire.Request] = field(default_factory=list)
    server: wire.Server | None = None
    replaced: bool = False

    @property
    def state_at(self) -> int:
        """The index of the commit that stores the state.

        A complete state is stored with the last one. Any other is stored with the first one, because it would be wrong
        to resume after a part of the commits from the state before them. Without commits, it is stored alone.
        """
        return len(self.commits) - 1 if self.state is None or self.state.complete else 0


def ack(subject: Subject, nonce: int) -> Work:
    """Return the work of acknowledging a response."""
    return Work(replies=[wire.Request(subject=subject, ack=wire.Ack(nonce=nonce))])


def nack(subject: Subject, nonce: int, why: str) -> Work:
    """Return the work of refusing a response as a whole."""
    return Work(replies=[wire.Request(subject=subject, nack=wire.Nack(nonce=nonce, message=why[:2000]))])


def commits(operations: Iterable[Operation]) -> list[list[Operation]]:
    """Return the operations in commits of the size that every store accepts."""
    found: list[list[Operation]] = []
    room = 0
    for operation in operations:
        weight = 2 if isinstance(operation, Remove) else 1
        if weight > room:
            found.append([])
            room = COMMIT
        found[-1].append(operation)
        room -= weight
    return found


class Partial:
    """The events of a commit that continues in the next batch."""

    def __init__(self, limits: PeerLimits) -> None:
        self._limits = limits
        self.events: list[wire.Event] = []
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self.events)

    def clear(self) -> None:
        """Forget the events."""
        self.events, self._size = [], 0

    def add(self, events: list[wire.Event]) -> None:
        """Add events. Raise Breach if there are too many."""
        self.events += events
        self._size += sum(_payload(event) for event in events)
        most, size = self._limits.commit, self._limits.commit_size
        if len(self.events) > most or self._size > size:
            raise Breach(f"a commit of more than {most} changes or {size} bytes")

    def take(self) -> list[wire.Event]:
        """Return the events, and forget them."""
        events = self.events
        self.clear()
        return events


def _payload(event: wire.Event) -> int:
    return 0 if event.upsert is None or event.upsert.data is None else len(event.upsert.data.value)


def checked(position: wire.PeerPosition | None) -> wire.PeerPosition:
    """Return a position of the peer. Raise Breach if it is incomplete or too long."""
    if position is None or not position.store_id or not position.revision:
        raise Breach("a position has no store_id or no revision")
    if max(len(position.store_id), len(position.session), len(position.selection)) > REASON:
        raise Breach(f"a position has a field of more than {REASON} characters")
    return position


def payload_problem(response: wire.Response) -> str | None:
    """Return the reason why the payload of a response does not fit its subject; None if it does."""
    payloads = {
        Subject.SERVER: (response.server,),
        Subject.EXPORTS: (response.exports,),
        Subject.RESOURCES: (response.begins, response.batch, response.complete, response.progress),
    }
    present = {subject for subject, found in payloads.items() if any(each is not None for each in found)}
    if not present:
        return "the response has no payload that is known here"
    if present != {response.subject}:
        return f"the payload does not belong to subject {int(response.subject)}"
    return None


def same_place(one: wire.PeerPosition, other: wire.PeerPosition) -> bool:
    """Return True if two positions are equal."""
    return (one.store_id, one.session, one.revision, one.selection) == (
        *(other.store_id, other.session, other.revision, other.selection),
    )


def rolled_back(here: wire.PeerPosition, last: wire.PeerPosition) -> str:
    """Return the message for a peer whose store was rolled back."""
    return (
        f"store {quoted(here.store_id)} no longer has revision {last.revision}, which was copied: it was rolled back; "
        f"its session is {quoted(here.session)} now"
    )


def behind(here: wire.PeerPosition, last: wire.PeerPosition) -> str:
    """Return the message for a snapshot below what was copied, by a server that lags or was rolled back."""
    return (
        f"the snapshot is of revision {here.revision}, and {last.revision} was copied before; "
        f"its session is {quoted(here.session)} now"
    )

"""The faults of peerings, by the number of a message between the two engines. Pure.

Messages are numbered from 1 over both directions, from the moment when the peerings are complete. Heartbeats count too.
A side is the name of a peer, or ``home`` for the program's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import ClassVar

from headway.testing.simulation._fault_base import Fault

HOME = "home"
"""The name of the program's own side, and of its peering on the other side."""


@dataclasses.dataclass(frozen=True, slots=True)
class MessageFault(Fault):
    """A fault at a message between two engines."""

    message: int
    changes_the_end: ClassVar[bool] = False
    """True if a store may end otherwise than without faults. The rules of peerings still hold."""


@dataclasses.dataclass(frozen=True, slots=True)
class PeerCut(MessageFault):
    """The link of the peering breaks, the message is lost, and no other stream opens for some seconds."""

    name = "peer_cut"
    seconds: float = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class PeerSlow(MessageFault):
    """The message and those after it in its direction arrive some seconds later, in their order."""

    name = "peer_slow"
    seconds: float = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class SideFault(MessageFault):
    """A fault of one of the two engines, at a message."""

    side: str


@dataclasses.dataclass(frozen=True, slots=True)
class EngineKilled(SideFault):
    """The engine of a side is killed, the message is lost, and the engine starts again.

    If several engines share the store of the side, it is the one that has the streams. It starts again after its leases
    have expired.
    """

    name = "engine_killed"


@dataclasses.dataclass(frozen=True, slots=True)
class PeerHandOver(SideFault):
    """Another engine of a side acquires the lease of the streams. The old leader learns of it some time later."""

    name = "peer_hand_over"


@dataclasses.dataclass(frozen=True, slots=True)
class PeerHistoryLost(SideFault):
    """The link breaks for some seconds, and the side's store then no longer has the history to resume it."""

    name = "peer_history_lost"
    seconds: float = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class PeerRestored(SideFault):
    """The side's store is replaced by its backup of ``revision``, with a new store id. Users ask again for the rest."""

    name = "peer_restored"
    changes_the_end = True
    revision: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class PeerRolledBack(SideFault):
    """The side's store is replaced by an older copy of itself, with the same id. An operator accepts that."""

    name = "peer_rolled_back"
    changes_the_end = True
    revision: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class PeeringDeleted(SideFault):
    """A user deletes the peering on a side."""

    name = "peering_deleted"
    changes_the_end = True


@dataclasses.dataclass(frozen=True, slots=True)
class AtPeer(Fault):
    """A fault of another section, in the world of a peer."""

    name = "at_peer"
    side: str
    fault: Fault

    def __str__(self) -> str:
        return f"{self.side}: {self.fault}"


_ALWAYS_THE_SAME_END = frozenset(
    (
        *("crash_before", "crash_after", "crash_at", "not_done", "answer_lost", "answer_late", "cut_off", "pause"),
        *("server_restart", "stall", "drop", "repeat", "history_lost", "missed", "lease_lost", "hand_over"),
        "clock_jump",
    )
)
"""The faults after which a peer ends as without them."""


def changes_the_end(plan: Iterable[Fault]) -> bool:
    """Return True if a run with these faults may end otherwise than one without."""
    return any(
        each.changes_the_end
        if isinstance(each, MessageFault)
        else isinstance(each, AtPeer) and each.fault.name not in _ALWAYS_THE_SAME_END
        for each in plan
    )


MESSAGE_FAULTS: tuple[type[MessageFault], ...] = (
    PeerCut,
    PeerSlow,
    EngineKilled,
    PeerHandOver,
    PeerHistoryLost,
    PeerRestored,
    PeerRolledBack,
    PeeringDeleted,
)

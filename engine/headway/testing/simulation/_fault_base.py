"""The base of all faults, the schedules, and the faults of peerings. Pure.

A schedule is what may happen in any run, although nothing goes wrong.

A fault of a peering strikes at a message between the two engines. Messages are numbered from 1 over both directions,
from the moment when the peerings are complete. Heartbeats count too. A side is the name of a peer, or ``home`` for the
program's own.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True)
class Fault:
    """A fault: one thing that goes wrong in a run. Each subclass is a frozen dataclass.

    Attributes:
        name: the name in plans. It is made from the name of the class: ``crash_before`` for `CrashBefore`.
    """

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = re.sub(r"\B(?=[A-Z])", "_", cls.__name__).lower()
        dataclasses.dataclass(frozen=True)(cls)

    def __str__(self) -> str:
        given = ", ".join(repr(getattr(self, field.name)) for field in dataclasses.fields(self))
        return f"{self.name}({given})"


class StepFault(Fault):
    """A fault in one call of a reconciler."""

    step: int


class Slow(StepFault):
    """The call takes effect some seconds late, and the caller waits for it while everything else goes on."""

    seconds: float = 10.0


class ChangeDuring(StepFault):
    """Users wait after each change until all work is done, but their next change comes while this call is under way."""


class Spaced(Fault):
    """Users pause for some seconds after each change."""

    seconds: float = 2.0


class Settled(Fault):
    """Users wait after each change until all work is done."""


class Relay(Fault):
    """Before each change of the users, the leader is suspended and another process leads, each in turn."""


class Interim(Fault):
    """From a change of the users on, another process leads in place of the suspended leader, which leads again later.

    Attributes:
        away, back: the numbers of the first change that the other one handles, and of the first one after its lead.
    """

    away: int
    back: int


class NewRun(Fault):
    """When all work on the users' change at ``revision`` is done, each controller has a new run in the same process."""

    revision: int


class ChangeInTick(Fault):
    """A change of the users falls into a call that the program makes by its own clock, after all other work is done."""

    # The number of the users' change, and the number of the call, counted from the moment when all work is done.
    change: int
    call: int


class TickDuring(Fault):
    """A call of a reconcile, after a change of the users, is slow until the program has done what it does by its clock.

    The users make the change when a timer, a daemon or a requeue is due in a few seconds.
    """

    # The number of the users' change, and the number of the call, counted from that change.
    change: int
    call: int


class Hurried(Fault):
    """Users never wait until work is done."""


class NewFromStart(Fault):
    """The program of the last upgrade runs from the start."""


class DoneAgain(StepFault):
    """The call is done, and its request arrives once more after some seconds, or else at the end of the scenario."""

    seconds: float = 0.0


SCHEDULES: tuple[type[Fault], ...] = (Spaced, Settled, Hurried, Slow, ChangeDuring)
"""What may happen in any run, although nothing goes wrong: users and calls are slower or faster."""


HOME = "home"
"""The name of the program's own side, and of its peering on the other side."""


class MessageFault(Fault):
    """A fault at a message between two engines."""

    message: int
    changes_the_end: ClassVar[bool] = False
    """True if a store may end otherwise than without faults. The rules of peerings still hold."""


class PeerCut(MessageFault):
    """The link of the peering breaks, the message is lost, and no other stream opens for some seconds."""

    seconds: float = 5.0


class PeerSlow(MessageFault):
    """The message and those after it in its direction arrive some seconds later, in their order."""

    seconds: float = 30.0


class SideFault(MessageFault):
    """A fault of one of the two engines, at a message."""

    side: str


class EngineKilled(SideFault):
    """The engine of a side is killed, the message is lost, and the engine starts again.

    If several engines share the store of the side, it is the one that has the streams. It starts again after its leases
    have expired.
    """


class PeerHandOver(SideFault):
    """Another engine of a side acquires the lease of the streams. The old leader learns of it some time later."""


class PeerHistoryLost(SideFault):
    """The link breaks for some seconds, and the side's store then no longer has the history to resume it."""

    seconds: float = 5.0


class PeerRestored(SideFault):
    """The side's store is replaced by its backup of ``revision``, with a new store id. Users ask again for the rest."""

    changes_the_end = True
    revision: int = 0


class PeerRolledBack(SideFault):
    """The side's store is replaced by an older copy of itself, with the same id. An operator accepts that."""

    changes_the_end = True
    revision: int = 0


class PeeringDeleted(SideFault):
    """A user deletes the peering on a side."""

    changes_the_end = True


class AtPeer(Fault):
    """A fault of another section, in the world of a peer."""

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

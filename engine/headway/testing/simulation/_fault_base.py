"""The base of all faults, and the schedules: what may happen in any run, although nothing goes wrong. Pure."""

from __future__ import annotations

import dataclasses
from typing import ClassVar


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """A fault: one thing that goes wrong in a run."""

    name: ClassVar[str]

    def __str__(self) -> str:
        given = ", ".join(repr(getattr(self, field.name)) for field in dataclasses.fields(self))
        return f"{self.name}({given})"


@dataclasses.dataclass(frozen=True, slots=True)
class StepFault(Fault):
    """A fault in one call of a reconciler."""

    step: int


@dataclasses.dataclass(frozen=True, slots=True)
class Slow(StepFault):
    """The call takes effect some seconds late, and the caller waits for it while everything else goes on."""

    name = "slow"
    seconds: float = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeDuring(StepFault):
    """Users wait after each change until all work is done, but their next change comes while this call is under way."""

    name = "change_during"


@dataclasses.dataclass(frozen=True, slots=True)
class Spaced(Fault):
    """Users pause for some seconds after each change."""

    name = "spaced"
    seconds: float = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Settled(Fault):
    """Users wait after each change until all work is done."""

    name = "settled"


@dataclasses.dataclass(frozen=True, slots=True)
class Relay(Fault):
    """Before each change of the users, the leader is suspended and another process leads, each in turn."""

    name = "relay"


@dataclasses.dataclass(frozen=True, slots=True)
class Interim(Fault):
    """From a change of the users on, another process leads in place of the suspended leader, which leads again later.

    Attributes:
        away, back: the numbers of the first change that the other one handles, and of the first one after its lead.
    """

    name = "interim"
    away: int
    back: int


@dataclasses.dataclass(frozen=True, slots=True)
class NewRun(Fault):
    """When all work on the users' change at ``revision`` is done, each controller has a new run in the same process."""

    name = "new_run"
    revision: int


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeInTick(Fault):
    """A change of the users falls into a call that the program makes by its own clock, after all other work is done."""

    name = "change_in_tick"
    # The number of the users' change, and the number of the call, counted from the moment when all work is done.
    change: int
    call: int


@dataclasses.dataclass(frozen=True, slots=True)
class TickDuring(Fault):
    """A call of a reconcile, after a change of the users, is slow until the program has done what it does by its clock.

    The users make the change when a timer, a daemon or a requeue is due in a few seconds.
    """

    name = "tick_during"
    # The number of the users' change, and the number of the call, counted from that change.
    change: int
    call: int


@dataclasses.dataclass(frozen=True, slots=True)
class Hurried(Fault):
    """Users never wait until work is done."""

    name = "hurried"


@dataclasses.dataclass(frozen=True, slots=True)
class NewFromStart(Fault):
    """The program of the last upgrade runs from the start."""

    name = "new_from_start"


@dataclasses.dataclass(frozen=True, slots=True)
class DoneAgain(StepFault):
    """The call is done, and its request arrives once more after some seconds, or else at the end of the scenario."""

    name = "done_again"
    seconds: float = 0.0


SCHEDULES: tuple[type[Fault], ...] = (Spaced, Settled, Hurried, Slow, ChangeDuring)
"""What may happen in any run, although nothing goes wrong: users and calls are slower or faster."""

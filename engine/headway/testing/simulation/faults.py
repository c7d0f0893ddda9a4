"""The faults, by name and place, and plans of them. A plan prints as the line that repeats it. Pure.

A step is a call made by a reconciler or another function of the program: a write, a read of the store or a call of
the outside world. Steps are numbered from 1, over all processes, in the order of their starts. A revision is the number
of a commit. A checkpoint is a Trio checkpoint of a process, in its reconcilers or in Headway itself. A look is a
process's call that reads the wall clock.

Up to the first fault of its plan, a run is identical to the one without faults, step by step and revision by revision.
So a number from the one means the same in the other.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any

from headway.base import Count, Range, Seconds, value_problem
from headway.errors import DeclarationError
from headway.resource import did_you_mean
from headway.testing.simulation._fault_base import HOME as HOME
from headway.testing.simulation._fault_base import MESSAGE_FAULTS as MESSAGE_FAULTS
from headway.testing.simulation._fault_base import SCHEDULES as SCHEDULES
from headway.testing.simulation._fault_base import AtPeer as AtPeer
from headway.testing.simulation._fault_base import ChangeDuring as ChangeDuring
from headway.testing.simulation._fault_base import ChangeInTick as ChangeInTick
from headway.testing.simulation._fault_base import DoneAgain as DoneAgain
from headway.testing.simulation._fault_base import EngineKilled as EngineKilled
from headway.testing.simulation._fault_base import Fault as Fault
from headway.testing.simulation._fault_base import Hurried as Hurried
from headway.testing.simulation._fault_base import Interim as Interim
from headway.testing.simulation._fault_base import MessageFault as MessageFault
from headway.testing.simulation._fault_base import NewFromStart as NewFromStart
from headway.testing.simulation._fault_base import NewRun as NewRun
from headway.testing.simulation._fault_base import PeerCut as PeerCut
from headway.testing.simulation._fault_base import PeerHandOver as PeerHandOver
from headway.testing.simulation._fault_base import PeerHistoryLost as PeerHistoryLost
from headway.testing.simulation._fault_base import PeeringDeleted as PeeringDeleted
from headway.testing.simulation._fault_base import PeerRestored as PeerRestored
from headway.testing.simulation._fault_base import PeerRolledBack as PeerRolledBack
from headway.testing.simulation._fault_base import PeerSlow as PeerSlow
from headway.testing.simulation._fault_base import Relay as Relay
from headway.testing.simulation._fault_base import Settled as Settled
from headway.testing.simulation._fault_base import SideFault as SideFault
from headway.testing.simulation._fault_base import Slow as Slow
from headway.testing.simulation._fault_base import Spaced as Spaced
from headway.testing.simulation._fault_base import StepFault as StepFault
from headway.testing.simulation._fault_base import TickDuring as TickDuring
from headway.testing.simulation._fault_base import changes_the_end as changes_the_end


class CrashBefore(StepFault):
    """The process is killed before the call takes effect, and restarts."""


class CrashAfter(StepFault):
    """The process is killed after the call takes effect and before it returns, and restarts."""


class NotDone(StepFault):
    """The call has no effect and fails with a connection error."""


class AnswerLost(StepFault):
    """The call takes effect, but its deadline passes before the reply arrives."""


class AnswerLate(StepFault):
    """The call takes effect, and its reply arrives some seconds late."""

    seconds: float = 5.0


class CommitLate(StepFault):
    """The call times out, and its request arrives later, if it is still valid."""

    seconds: float = 0.0


class CommitLast(StepFault):
    """The call times out, and its request arrives when the scenario is over and all work is done."""


class LostRace(StepFault):
    """Another writer was first and changed only the version: the call fails with a conflict."""

    name = "conflict"


class LeaseLost(StepFault):
    """The store ends the process's leases too early: another process leads while this one does not know it."""


class HandOver(StepFault):
    """Just before the call, the store ends the process's leases, and another process leads: the next one in order."""


class Outage(StepFault):
    """From this call of the world outside on, each call of the same method fails for some seconds, and is not done."""

    seconds: float = 60.0


class CutOff(StepFault):
    """From this call on, the process is cut off from the network for some seconds."""

    seconds: float = 40.0


class Pause(StepFault):
    """The process is paused just before the call for longer than its lease lasts. When it resumes, the call goes out
    first.
    """

    seconds: float = 40.0


class ClockJump(StepFault):
    """All clocks jump ahead just before the call."""

    seconds: float = 600.0


class ServerRestart(StepFault):
    """The server restarts just before the call: every stream and every call breaks."""


class ApiServerFault(StepFault):
    """A fault of the API server of a program on Kubernetes."""

    seconds: float = 60.0


class Throttled(ApiServerFault):
    """From this call on, the API server refuses every call for some seconds (429). Its watches go on."""


class FailOver(ApiServerFault):
    """Just before the call, another API server takes over. Its watches lag for some seconds, its reads do not."""


class RestartBehind(StepFault):
    """The process is killed after the call takes effect; its next life first sees the store as of ``revision``."""

    revision: int = 0


class Replaced(StepFault):
    """The process is killed after the call takes effect, and does not start again before it is upgraded."""


class Restore(StepFault):
    """After the call takes effect, the store is replaced by its backup of ``revision``, with a new store id.

    If the step is 0, this happens when all work that follows from the users' change at that revision is done.
    """

    revision: int = 0


class ChangeFault(Fault):
    """A fault in the streams that deliver the change of ``type`` at ``revision``."""

    type: str
    revision: int


class Stall(ChangeFault):
    """The type's streams stall at this change for some seconds; the streams of other types go on."""

    seconds: float = 60.0


class Drop(ChangeFault):
    """The type's streams break before they deliver this change."""


class Repeat(ChangeFault):
    """The change is delivered twice."""


class HistoryLost(ChangeFault):
    """The type's streams break before they deliver this change and cannot resume: the history is compacted."""


class Hide(ChangeFault):
    """The change is never delivered: the type's streams continue with a snapshot once the store is at ``until``."""

    until: int = 0


class Merged(ChangeFault):
    """The type's streams stop before this change, and continue with a snapshot after the users' next change.

    Users don't wait for it, so the two changes are delivered as one.
    """


class GarbageLate(ChangeFault):
    """The garbage collector of Kubernetes does nothing for some seconds after this change."""

    seconds: float = 60.0


class Missed(ChangeFault):
    """The processes are killed before they receive this change, and the history is compacted before they restart."""


class CrashAt(Fault):
    """The process is killed at this Trio checkpoint, counted over all its tasks and lives, and restarts."""

    process: str
    checkpoint: int


class WallJump(Fault):
    """The wall clock jumps, forward or back, just before a process of the program looks at it for the nth time.

    The monotonic clock and Trio's go on. Looks are counted over all processes.
    """

    look: int
    seconds: float = -600.0


JUMPS = (ClockJump, WallJump)
"""The faults that let a clock jump. It is the clock of every process, also if a call of a peer is struck."""


STEP_FAULTS: tuple[type[StepFault], ...] = (
    CrashBefore,
    CrashAfter,
    NotDone,
    AnswerLost,
    AnswerLate,
    CommitLate,
    CommitLast,
    LostRace,
    LeaseLost,
    HandOver,
    Outage,
    CutOff,
    Pause,
    ClockJump,
    ServerRestart,
    RestartBehind,
    Replaced,
    Restore,
)
CHANGE_FAULTS: tuple[type[ChangeFault], ...] = (Stall, Drop, Repeat, HistoryLost, Hide, Merged, Missed)
CLUSTER_FAULTS: tuple[type[Fault], ...] = (Throttled, FailOver, GarbageLate)
"""The faults that only programs on Kubernetes meet."""
FAULTS: tuple[type[Fault], ...] = (
    *STEP_FAULTS,
    *CHANGE_FAULTS,
    *CLUSTER_FAULTS,
    CrashAt,
    NewRun,
    ChangeInTick,
    TickDuring,
    Relay,
    Interim,
    WallJump,
    *SCHEDULES,
    *MESSAGE_FAULTS,
    NewFromStart,
    DoneAgain,
)
_BY_NAME: dict[str, type[Fault]] = {fault.name: fault for fault in FAULTS}


class Plan(Sequence[Fault]):
    """The faults of one run. ``str(plan)`` is a line that `Plan.parse` reads."""

    def __init__(self, *faults: Fault, seed: int = 0) -> None:
        self._faults = faults
        self.seed = seed

    def __len__(self) -> int:
        return len(self._faults)

    def __getitem__(self, at: Any) -> Any:
        return self._faults[at]

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    def __hash__(self) -> int:
        return hash((self._faults, self.seed))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and (self._faults, self.seed) == (other._faults, other.seed)

    def __str__(self) -> str:
        faults = [str(fault) for fault in self._faults] + ([f"seed({self.seed})"] if self.seed else [])
        return "; ".join(faults) or "none"

    def __repr__(self) -> str:
        return f"Plan.parse({str(self)!r})"

    @property
    def jumps(self) -> list[ClockJump | WallJump]:
        """The faults that let a clock jump, also those in the world of a peer."""
        return [each for each in (getattr(of, "fault", of) for of in self) if isinstance(each, JUMPS)]

    def at(self, side: str) -> Plan:
        """Return the faults in the world of a peer."""
        return Plan(*(each.fault for each in self if isinstance(each, AtPeer) and each.side == side))

    @classmethod
    def parse(cls, line: str) -> Plan:
        """Parse a line such as ``crash_after(3); stall('staff.v1.Account', 12, 60.0)``. ``none`` is the plan without
        faults.

        Raises:
            DeclarationError: if the line cannot be parsed; the message quotes the faulty part.
        """
        faults: list[Fault] = []
        seed = 0
        for part in filter(None, (part.strip() for part in line.split(";"))):
            if part == "none":
                continue
            side, of, rest = part.partition(":")
            at_peer = bool(of) and "(" not in side
            name, arguments = _called(rest.strip() if at_peer else part)
            if name == "seed":
                seed = int(*arguments)
                continue
            fault = _fault(part, name, arguments)
            faults.append(AtPeer(side.strip(), fault) if at_peer else fault)
        return cls(*faults, seed=seed)


def _fault(part: str, name: str, arguments: list[Any]) -> Fault:
    kind = _BY_NAME.get(name)
    if kind is None:
        hint = did_you_mean(name, _BY_NAME)
        raise DeclarationError(f"plan: unknown fault {name!r}{hint}: use one of {', '.join(_BY_NAME)}")
    try:
        fault = kind(*arguments)
    except TypeError:
        fields = ", ".join(field.name for field in dataclasses.fields(kind))
        raise DeclarationError(f"plan: {part!r} should be {name}({fields})") from None
    numbers = {"int": Count, "float": Annotated[float, Range()] if kind is WallJump else Seconds}
    for field in dataclasses.fields(kind):
        if problem := value_problem(field.name, numbers.get(str(field.type), Any), getattr(fault, field.name)):
            raise DeclarationError(f"plan: {part!r}: {problem}")
    return fault


def _listed(text: str) -> int | float | str:
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    return text


def _called(part: str) -> tuple[str, list[Any]]:
    # As a report lists it: `stall staff.Team/12`.
    if listed := re.fullmatch(r"(\w+) +([^\s(]+)", part):
        return listed[1], [_listed(each) for each in listed[2].split("/")]
    try:
        call = ast.parse(part, mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords:
            return call.func.id, [ast.literal_eval(argument) for argument in call.args]
    except (SyntaxError, ValueError):
        pass
    unquoted = re.search(r"[(,]\s*([A-Za-z][\w.-]*)\s*[,)]", part)
    hint = f": quote '{unquoted[1]}'" if unquoted else ""
    raise DeclarationError(f"plan: {part!r} should be a fault with its arguments, such as crash_after(3){hint}")

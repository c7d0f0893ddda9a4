"""What can go wrong, by name, and where; a plan is some of it and reads as the line that repeats it. Pure.

A step is a call that a reconciler makes, numbered from 1 as they begin, over all processes: a write, a read of the
store, a call of the world outside. A revision is that of a commit. A checkpoint is where a task of a process waits, or
could, in the reconcilers and in Headway itself. Up to a plan's first fault a run is the same as
without it, step by step and revision by revision, so that a number from the one means the same in the other.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from headway.errors import DeclarationError
from headway.resource import did_you_mean


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    name: ClassVar[str]

    def __str__(self) -> str:
        given = ", ".join(repr(getattr(self, field.name)) for field in dataclasses.fields(self))
        return f"{self.name}({given})"


@dataclasses.dataclass(frozen=True, slots=True)
class StepFault(Fault):
    """Befalls one call of a reconciler."""

    step: int


@dataclasses.dataclass(frozen=True, slots=True)
class CrashBefore(StepFault):
    """The process is killed before the call has reached anything, and started again."""

    name = "crash_before"


@dataclasses.dataclass(frozen=True, slots=True)
class CrashAfter(StepFault):
    """The process is killed when the call is done and before it has heard so, and started again."""

    name = "crash_after"


@dataclasses.dataclass(frozen=True, slots=True)
class NotDone(StepFault):
    """The call is not done, and fails as one over a broken connection does."""

    name = "not_done"


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerLost(StepFault):
    """The call is done, and its deadline passes before the answer is there."""

    name = "answer_lost"


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerLate(StepFault):
    """The call is done, and answered some seconds later."""

    name = "answer_late"
    seconds: float = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class CommitLate(StepFault):
    """The call fails by its deadline, and what it asked for arrives afterwards, if anybody still lets it."""

    name = "commit_late"
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class CommitLast(StepFault):
    """The call fails by its deadline, and what it asked for arrives when the scenario is over and all is done."""

    name = "commit_last"


@dataclasses.dataclass(frozen=True, slots=True)
class LostRace(StepFault):
    """Another writer was first, and has changed nothing but the version: the call is refused by a conflict."""

    name = "conflict"


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseLost(StepFault):
    """The store ends the leases of the process too early: another process leads while this one doesn't know it."""

    name = "lease_lost"


@dataclasses.dataclass(frozen=True, slots=True)
class CutOff(StepFault):
    """From the call on the process reaches nothing for so long."""

    name = "cut_off"
    seconds: float = 40.0


@dataclasses.dataclass(frozen=True, slots=True)
class Pause(StepFault):
    """The process stops for longer than its lease lasts, the call about to leave, which then does so first of all."""

    name = "pause"
    seconds: float = 40.0


@dataclasses.dataclass(frozen=True, slots=True)
class ClockJump(StepFault):
    """Before the call, all clocks jump ahead."""

    name = "clock_jump"
    seconds: float = 600.0


@dataclasses.dataclass(frozen=True, slots=True)
class ServerRestart(StepFault):
    """Before the call, the server ends and starts again: every stream and every call breaks."""

    name = "server_restart"


@dataclasses.dataclass(frozen=True, slots=True)
class RestartBehind(StepFault):
    """The process is killed when the call is done; its next life is shown the store as it was at ``revision``."""

    name = "restart_behind"
    revision: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Restore(StepFault):
    """When the call is done, the store is replaced by a backup of itself at ``revision``, under a new store id."""

    name = "restore"
    revision: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeFault(Fault):
    """Befalls the streams that tell the change of ``type`` at ``revision``."""

    type: str
    revision: int


@dataclasses.dataclass(frozen=True, slots=True)
class Stall(ChangeFault):
    """Nothing of the type is told from this change on, for so long; other types go on."""

    name = "stall"
    seconds: float = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Drop(ChangeFault):
    """The type's streams break before this change is told."""

    name = "drop"


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat(ChangeFault):
    """The change is told twice."""

    name = "repeat"


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryLost(ChangeFault):
    """The type's streams break before this change is told, and can't resume: the history has been compacted."""

    name = "history_lost"


@dataclasses.dataclass(frozen=True, slots=True)
class Hide(ChangeFault):
    """The change is told to nobody: its type's streams go on with a snapshot when the store is at ``until``."""

    name = "hide"
    until: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Missed(ChangeFault):
    """The processes are killed before they hear of this change, and the history in which it is told is gone then."""

    name = "missed"


@dataclasses.dataclass(frozen=True, slots=True)
class CrashAt(Fault):
    """The process is killed at this checkpoint, counted over all of its tasks and lives, and started again."""

    name = "crash_at"
    process: str
    checkpoint: int


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
    CutOff,
    Pause,
    ClockJump,
    ServerRestart,
    RestartBehind,
    Restore,
)
CHANGE_FAULTS: tuple[type[ChangeFault], ...] = (Stall, Drop, Repeat, HistoryLost, Hide, Missed)
FAULTS: tuple[type[Fault], ...] = (*STEP_FAULTS, *CHANGE_FAULTS, CrashAt)
_BY_NAME: dict[str, type[Fault]] = {fault.name: fault for fault in FAULTS}


class Plan(Sequence[Fault]):
    """What goes wrong in one run; ``str`` of it is the line that `Plan.parse` reads."""

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

    @classmethod
    def parse(cls, line: str) -> Plan:
        """The plan of a line such as ``crash_after(3); stall('staff.v1.Account', 12, 60.0)``; ``none`` is without any.

        Raises DeclarationError that names what can't be read.
        """
        faults: list[Fault] = []
        seed = 0
        for part in filter(None, (part.strip() for part in line.split(";"))):
            if part == "none":
                continue
            name, arguments = _called(part)
            if name == "seed":
                seed = int(*arguments)
                continue
            kind = _BY_NAME.get(name)
            if kind is None:
                hint = did_you_mean(name, _BY_NAME)
                raise DeclarationError(f"plan: there is no fault {name!r}{hint}: use one of {', '.join(_BY_NAME)}")
            try:
                faults.append(kind(*arguments))
            except TypeError:
                fields = ", ".join(field.name for field in dataclasses.fields(kind))
                raise DeclarationError(f"plan: {part!r} should be {name}({fields})") from None
        return cls(*faults, seed=seed)


def _called(part: str) -> tuple[str, list[Any]]:
    try:
        call = ast.parse(part, mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords:
            return call.func.id, [ast.literal_eval(argument) for argument in call.args]
    except (SyntaxError, ValueError):
        pass
    raise DeclarationError(f"plan: {part!r} should be a fault with its numbers, such as crash_after(3)")

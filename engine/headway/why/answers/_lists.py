"""The answers about whole processes: what is stuck, and what controllers do now, as values. No I/O.

Like the classes of `_answer.py`, each has a message of the same name and fields in ``headway.observe.v1``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from headway.why.answers._answer import LeaseNow, Ref


@dataclass(frozen=True, slots=True)
class StuckItem:
    """Work that has been pending since ``since``. If ``resource`` has no name, it is the whole controller.

    Attributes:
        line: where a running reconcile waits: the innermost line of the program.
    """

    controller: str = ""
    process: str = ""
    resource: Ref | None = None
    state: str = ""
    since: float = 0.0
    attempt: int = 0
    error: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class Standby:
    """A controller of a process that waits for its lease since ``since``. ``manages`` is the type that it manages.

    The lease is None if the caller may not read it.
    """

    controller: str = ""
    process: str = ""
    manages: str = ""
    since: float = 0.0
    lease: LeaseNow | None = None


@dataclass(frozen=True, slots=True)
class StuckList:
    """The work that has been pending for long, the oldest first. ``more`` counts what was left out.

    If there is too much, the oldest of each process, controller and type is listed.

    Attributes:
        standbys: the controllers on standby whose lease a process holds that was not asked. Nothing is
            pending for them.
        more_standbys: the number of those that were left out.
    """

    at: float = 0.0
    items: tuple[StuckItem, ...] = ()
    more: int = 0
    unreachable: tuple[str, ...] = ()
    standbys: tuple[Standby, ...] = ()
    more_standbys: int = 0

    def sentences(self) -> list[str]:
        """Return the list for people, one line each."""
        from headway.why.answers._sentences import stuck_sentences

        return stuck_sentences(self)

    def as_object(self) -> dict[str, Any]:
        """Return the list as a JSON object."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class Failing:
    """A resource whose last reconcile did not succeed, or whose change could not be mapped.

    Attributes:
        outcome: ``failed``, ``permanent``, ``slowed`` or ``unmapped``.
        attempts: the number of consecutive failures.
        at: the time of the last attempt. For an unmapped change, it is the time of the first failure.
        until: the time of the next attempt; 0 if it waits for a change.
        pending_since: when its work became pending; 0 if it waits for a change. Failures do not reset it.
    """

    resource: Ref | None = None
    outcome: str = ""
    error: str = ""
    attempts: int = 0
    at: float = 0.0
    until: float = 0.0
    pending_since: float = 0.0


@dataclass(frozen=True, slots=True)
class ControllerNow:
    """The numbers of a controller in one process, and what fails.

    Attributes:
        seconds: the time since it entered its phase.
        ready: True unless something other than a pause keeps it from reconciling.
        leader: the process that runs the controller while this one is on standby.
        cause: a short reason why it is not reconciling; empty if it is.
        types: the number of its types, and ``primed`` how many of them are primed.
        reconciles: the number of its reconciles in this process, and ``failures`` how many of them failed.
        failing: the newest failures of each type: first failed reconciles, then failed mappers.
        mapping_failed: the number of resources whose change could not be mapped, because a mapper raised.
        writes_held: the writes that its ``write_limit`` holds back, as a sentence without its subject; may be empty.
    """

    name: str = ""
    process: str = ""
    phase: str = ""
    seconds: float = 0.0
    ready: bool = False
    paused: bool = False
    pause_reason: str = ""
    leader: str = ""
    cause: str = ""
    queued: int = 0
    running: int = 0
    resting: int = 0
    scheduled: int = 0
    not_done: int = 0
    unmapped: int = 0
    restarts: int = 0
    lag: int = 0
    types: int = 0
    primed: int = 0
    reconciles: int = 0
    failures: int = 0
    oldest: float = 0.0
    failing: tuple[Failing, ...] = ()
    mapping_failed: int = 0
    writes_held: str = ""

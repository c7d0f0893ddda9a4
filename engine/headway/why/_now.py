"""The numbers of one process's controllers, for the page of the server that they are connected to. No I/O."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from headway._gen.headway.observe.v1 import ControllerNow, Failing
from headway.base import bounded, by_turns
from headway.run import ControllerStatus, Supervisor
from headway.why._local import to_wall
from headway.why.answers import FAILURES, Wall, ref_of, short_name

_LONGEST = 500
"""The number of characters of a text."""
FAILING = 40
"""The number of failing resources of a controller in an answer. Half of them may be of one type."""


def controllers_now(supervisors: Sequence[Supervisor]) -> list[ControllerNow]:
    """Return what the controllers of this process do now, as `headway top` shows it."""
    # Imported here, because only a server with a page asks this, and other processes should not pay for the import.
    from headway.observe import states_of

    wall = to_wall()
    asked = [each for each in supervisors if each.definition is not None]
    by_name = {each.fence_name: each for each in asked}
    statuses = {name: replace(each.status(), name=name) for name, each in by_name.items()}
    found = []
    for state in states_of("", list(statuses.values())):
        status = statuses[state.name]
        failing, mapping_failed = failing_of(by_name[state.name], status, wall)
        found.append(
            ControllerNow(
                name=state.name,
                phase=state.phase,
                seconds=state.seconds,
                ready=state.ready,
                paused=status.paused is not None,
                pause_reason=bounded(status.paused or "", _LONGEST),
                leader=bounded(status.leader, _LONGEST),
                cause=bounded(status.cause, _LONGEST),
                queued=state.queued,
                running=state.running,
                resting=state.resting,
                scheduled=state.scheduled,
                not_done=state.not_done,
                unmapped=status.unmapped,
                restarts=state.restarts,
                lag=state.lag,
                types=state.types,
                primed=state.primed,
                reconciles=sum(state.reconciles.values()),
                failures=sum(state.reconciles.get(each, 0) for each in FAILURES),
                oldest=state.oldest,
                failing=failing,
                mapping_failed=mapping_failed,
                writes_held=status.writes_held,
            )
        )
    return found


def failing_of(supervisor: Supervisor, status: ControllerStatus, wall: Wall) -> tuple[list[Failing], int]:
    """Return what fails in a controller with this status, and how many resources have a change that is not mapped."""
    unmapped, mapping_failed = supervisor.newest_unmapped(FAILING // 4)
    found = [
        Failing(
            ref_of(each.id.type, each.id.key),
            each.outcome,
            bounded(each.error, _LONGEST),
            each.attempts,
            wall(each.at),
            0.0 if each.until is None else wall(each.until),
            0.0 if each.pending_since is None else wall(each.pending_since),
        )
        for each in heapq.nlargest(FAILING // 2, status.not_done, key=lambda each: each.at)
    ]
    found += [
        Failing(
            ref_of(each.type, each.key),
            "unmapped",
            bounded(f"{short_name(each.function)}: {each.error}", _LONGEST),
            each.failures,
            wall(each.since),
            wall(each.due),
            wall(each.since),
        )
        for each in unmapped
    ]
    # A viewer may see only some of the types, so each type has places of its own.
    kept = sorted(islice(by_turns(range(len(found)), lambda at: _group(found[at])), FAILING))
    return [found[at] for at in kept], mapping_failed


def _group(failing: Failing) -> tuple[bool, str]:
    return failing.outcome == "unmapped", "" if failing.resource is None else failing.resource.type

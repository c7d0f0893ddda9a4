"""The numbers of one process's controllers, for its page, or that of the server that it is connected to. No I/O."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import islice

from headway._gen.headway.observe.v1 import ControllerNow, Failing
from headway.base import bounded, by_turns
from headway.run import ControllerStatus, Supervisor, newest_revision
from headway.why._local import to_wall
from headway.why.answers import FAILURES, Wall, ref_of, short_name

_LONGEST = 500
"""The number of characters of a text."""
FAILING = 40
"""The number of failing resources of a controller in an answer. Half of them may be of one type."""


def controllers_now(found: Sequence[tuple[Supervisor, ControllerStatus]]) -> list[ControllerNow]:
    """Return what controllers of this process do now, each given with its status."""
    wall, newest = to_wall(), newest_revision(status for _, status in found)
    return [_now(supervisor, status, newest, wall) for supervisor, status in found]


def _now(supervisor: Supervisor, status: ControllerStatus, newest: int, wall: Wall) -> ControllerNow:
    failing, mapping_failed = _failing(supervisor, status, wall)
    now = ControllerNow(
        name=supervisor.fence_name,
        phase=status.phase,
        seconds=status.seconds,
        ready=not status.problem,
        paused=status.paused is not None,
        pause_reason=bounded(status.paused or "", _LONGEST),
        leader=bounded(status.leader, _LONGEST),
        cause=bounded(status.cause, _LONGEST),
        unmapped=status.unmapped,
        restarts=status.restarts,
        lag=max((newest - each.revision for each in status.types), default=0),
        types=len(status.types),
        primed=sum(each.primed for each in status.types),
        reconciles=sum(status.reconciles.values()),
        failures=sum(status.reconciles.get(each, 0) for each in FAILURES),
        failing=failing,
        mapping_failed=mapping_failed,
        writes_held=status.writes_held,
    )
    if (queue := status.queue) is not None:
        now.queued, now.running, now.resting = queue.ready, queue.in_hand, queue.delayed_by_failure
        now.scheduled, now.not_done, now.oldest = queue.scheduled, status.not_done_count, status.oldest_wait or 0.0
    return now


def _failing(supervisor: Supervisor, status: ControllerStatus, wall: Wall) -> tuple[list[Failing], int]:
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

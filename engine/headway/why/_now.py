"""The numbers of the controllers of one process, for the page of the server that they work for. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headway.base import bounded
from headway.run import Supervisor
from headway.why._answer import ControllerNow

_LONGEST = 500
"""The number of characters of a text."""
_FAILURES = ("failed", "permanent")


def controllers_now(supervisors: Sequence[Supervisor]) -> list[ControllerNow]:
    """Return what the controllers of this process do now, as `headway top` shows it."""
    # Only a server with a page asks this, and other processes do not pay for the import.
    from headway.observe import states_of

    asked = [each for each in supervisors if each.definition is not None]
    statuses = {each.fence_name: replace(each.status(), name=each.fence_name) for each in asked}
    found = []
    for state in states_of("", list(statuses.values())):
        status = statuses[state.name]
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
                failures=sum(state.reconciles.get(each, 0) for each in _FAILURES),
                oldest=state.oldest,
            )
        )
    return found

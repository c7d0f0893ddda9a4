"""The finding about controllers that write when all work is done. It says what was due then, if anything was. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.testing.simulation._trace import Committed, Trace, named
from headway.testing.simulation.oracles._oracles import Finding, Scheduled

_ADVICE = " (let the scenario sleep until no requeue and no timer has work left; quiet=None if they always have)"


def late_writes(oracle: str, when: str, late: Sequence[Committed], trace: Trace, due: Iterable[Scheduled]) -> Finding:
    """Return the finding about these writes.

    Args:
        when: the time of the writes, such as ``after a restart``.
        due: the keys that controllers were to reconcile at a requested time, as of the beginning of that time.
    """
    first = late[0]
    writer = next((step.by for step in trace.steps if step.revision == first.revision), None)
    keys = sorted({f"{named(kind, key)} (by {controller})" for controller, kind, key in due})
    if writer is not None and writer.function:
        # Such a function has a clock of its own, so it may have something to do at any time.
        state = f", made by {writer.about}" + (_ADVICE if oracle == "quiet" else "")
    elif keys:
        state = f", when these were due to be reconciled: {', '.join(keys)}" + (_ADVICE if oracle == "quiet" else "")
    else:
        state = ", when there was nothing to do"
    text = f"{len(late)} {'write' if len(late) == 1 else 'writes'} {when}{state}, such as: {first}"
    return Finding(oracle, text, (first.kind, first.key), (first,))

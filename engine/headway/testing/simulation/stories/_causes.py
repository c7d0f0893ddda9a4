"""The entries of a trace that findings are about: where a story begins and what it must contain. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from headway.testing.simulation._trace import Committed, Entry, Happened, Reconcile, Step, Trace
from headway.testing.simulation.oracles import Finding, Result

_OF_A_FINDING = 6
"""The number of entries shown for one finding. Later ones decide, so they are kept."""


def located(findings: Sequence[Finding], result: Result, references: Sequence[Result]) -> list[Finding]:
    """Return the findings about the world outside, each with the calls that runs without faults make less often.

    If the calls are the same, add the last two, because these may have come in another order.
    """
    calls = _outside_calls(result.trace)
    usual: Counter[str] = Counter()
    for each in references:
        usual |= Counter(step.method for step in _outside_calls(each.trace))
    made = Counter(step.method for step in calls)
    extra = [step for step in calls if made[step.method] > usual[step.method]] or calls[-2:]
    return [
        dataclasses.replace(each, entries=tuple(extra)) if each.oracle == "outside" and not each.entries else each
        for each in findings
    ]


def causes(trace: Trace, findings: Sequence[Finding]) -> Mapping[int, list[int]]:
    """Return the positions in the trace of the entries that findings are about, each with the findings' positions.

    For a finding about a resource, these are the changes that led to its end state: its creations, its deletions and
    its last change.
    """
    position = {id(entry): at for at, entry in enumerate(trace.entries)}
    found: dict[int, list[int]] = {}
    for number, finding in enumerate(findings):
        entries = finding.entries or _of_place(trace, finding)
        arrivals = [late for each in entries if isinstance(each, Step) for late in _late(trace, each)]
        for each in [*entries[-_OF_A_FINDING:], *arrivals]:
            if id(each) in position:
                found.setdefault(position[id(each)], []).append(number)
    return found


def callers(trace: Trace, positions: Sequence[int]) -> list[int]:
    """Return the positions of the steps that made these entries, and of the calls of functions that took the steps."""
    writers = {step.revision: step for step in trace.steps if step.revision}
    position = {id(entry): at for at, entry in enumerate(trace.entries) if isinstance(entry, Reconcile | Step)}
    found: dict[int, None] = {}
    for at in positions:
        entry = trace.entries[at]
        step = writers.get(entry.revision) if isinstance(entry, Committed) else entry
        if isinstance(step, Step):
            found[position[id(step.by)]] = found[position[id(step)]] = None
    return list(found)


def is_planned_fault(entry: Entry) -> bool:
    """Return True for a fault that strikes, rather than for what follows from it, such as the end of a process."""
    return isinstance(entry, Happened) and entry.fault and not entry.text.endswith(" is killed")


def _of_place(trace: Trace, finding: Finding) -> tuple[Entry, ...]:
    changes = [each for each in trace.commits if (each.kind, each.key) == finding.place]
    return tuple(each for each in changes if each.what != "changed" or each is changes[-1])


def _late(trace: Trace, step: Step) -> list[Entry]:
    """Return the entries that say that a call arrived late."""
    text = f"step {step.number} arrives late and "
    return [each for each in trace.entries if isinstance(each, Happened) and each.text.startswith(text)]


def _outside_calls(trace: Trace) -> list[Step]:
    return [each for each in trace.steps if not each.kind[1] and each.method.startswith("call outside.")]

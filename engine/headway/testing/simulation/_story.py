"""The story of a failed run: what is wrong, under which faults, what happened, and the line that repeats it. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from headway.testing.simulation._faults import Plan
from headway.testing.simulation._oracles import Finding, Result
from headway.testing.simulation._trace import Committed, Entry, Happened, Reconcile, Reconciled, Step, Told, Trace

_LINES = 70
_FINDINGS = 8


def told(plan: Plan, result: Result, findings: Sequence[Finding]) -> str:
    """Return the story of a failed run."""
    lines = [f"{each}" for each in findings[:_FINDINGS]]
    if len(findings) > _FINDINGS:
        lines.append(f"... and {len(findings) - _FINDINGS} more")
    return "\n".join(
        [
            *lines,
            "",
            f"when: {_when(plan)}",
            "",
            *timeline(result.trace),
            "",
            f"again: {replay_line(plan)}",
        ]
    )


def _when(plan: Plan) -> str:
    if not len(plan):
        return "no faults"
    return "; then ".join(f"{fault} - {(type(fault).__doc__ or '').strip()}" for fault in plan)


def replay_line(plan: Plan) -> str:
    """Return the line that repeats the run."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    return f'HEADWAY_PLAN="{plan}" pytest {test}' if test else f"explore(..., plan={str(plan)!r})"


def timeline(trace: Trace) -> list[str]:
    """Return what happened around the faults and after them, one line each, with the store's revisions."""
    entries = [each for each in trace.entries if _matters(each)]
    struck = next((at for at, each in enumerate(entries) if isinstance(each, Happened) and each.fault), 0)
    begin = max(0, struck - 12)
    while begin and not isinstance(entries[begin], Reconcile | Committed):
        begin -= 1
    shown = entries[begin : begin + _LINES]
    lines = [f"{each.at:9.3f}  {_line(each)}" for each in shown]
    if begin:
        lines.insert(0, f"           ({begin} lines before)")
    if begin + _LINES < len(entries):
        lines.append(f"           ({len(entries) - begin - _LINES} lines after)")
    return lines


def _matters(entry: Entry) -> bool:
    if isinstance(entry, Told):
        return entry.what != "a bookmark"
    return True


def _line(entry: Entry) -> str:
    indent = "" if isinstance(entry, Committed | Happened) else "  " if isinstance(entry, Told) else "    "
    if isinstance(entry, Step | Reconciled):
        indent = "      "
    return f"{indent}{entry}"

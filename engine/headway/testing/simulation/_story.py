"""A refutation as a story: what is wrong, by which faults, what happened, and the line that repeats it. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from headway.testing.simulation._faults import Plan
from headway.testing.simulation._oracles import Finding, Result
from headway.testing.simulation._trace import Committed, Entry, Happened, Reconcile, Reconciled, Step, Told, Trace

_LINES = 70
_FINDINGS = 8


def told(plan: Plan, result: Result, findings: Sequence[Finding]) -> str:
    """The story of a run that was found wrong."""
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
        return "nothing goes wrong"
    return "; then ".join(f"{fault} - {(type(fault).__doc__ or '').strip()}" for fault in plan)


def replay_line(plan: Plan) -> str:
    """What repeats the run, on one line."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    return f'HEADWAY_PLAN="{plan}" pytest {test}' if test else f"explore(..., plan={str(plan)!r})"


def timeline(trace: Trace) -> list[str]:
    """What happened around the faults and after them, a line each; the revisions are the store's."""
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
    # A reconcile that has done nothing is told by its end.
    return True


def _line(entry: Entry) -> str:
    indent = "" if isinstance(entry, Committed | Happened) else "  " if isinstance(entry, Told) else "    "
    if isinstance(entry, Step | Reconciled):
        indent = "      "
    return f"{indent}{entry}"

"""The part of a trace that a story shows: it begins at the first fault, step that was struck, or cause. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from headway.testing.simulation._trace import (
    Committed,
    Delivered,
    Entry,
    Happened,
    OutsideChanged,
    Reconcile,
    Reconciled,
    Step,
    Trace,
)
from headway.testing.simulation.oracles import Finding
from headway.testing.simulation.stories._causes import callers, causes, is_planned_fault

_BEFORE = 12
"""The number of lines before the first fault or cause."""
_AT_THE_END = 12
"""The number of lines at the end that are shown for a finding that is about no entry."""
_AROUND = (2, 5)
_DECIDING = 6
"""How many of the last calls of the world outside, and of the last failures for good, come before other lines."""
_LONGEST_ROW = 16
"""The number of lines in the longest row that is recognized when it repeats itself."""
_NUMBER = re.compile(r"\d+(\.\d+)?")
_THE_END = "the scenario is over"


class Excerpt:
    """The shown part of a trace.

    Attributes:
        shown: the positions of the shown entries in the trace, in order.
        hidden: the number of hidden entries before each shown one, and at last after all of them.
        repeats: for each of these, whether all of them repeat what is above them.
        causes: the positions of the entries that findings are about, each with the findings' positions.

    Args:
        most: the number of entries to show.
        earlier: whether to show entries before the first fault or cause, too, if there is room for them.
    """

    def __init__(self, trace: Trace, findings: Sequence[Finding], most: int, *, earlier: bool = False) -> None:
        self.causes: Mapping[int, list[int]] = causes(trace, findings)
        telling = [at for at, each in enumerate(trace.entries) if at in self.causes or _tells(each)]
        line_of = {at: line for line, at in enumerate(telling)}
        over = next((at for at, each in enumerate(trace.entries) if _is_the_end(each)), len(trace.entries))
        struck = [at for at in telling if at < over and is_planned_fault(trace.entries[at])]
        found = [line_of[at] for at in self.causes]
        numbers = {each.step for at in struck if isinstance(each := trace.entries[at], Happened)}
        steps = [at for at in telling if isinstance(each := trace.entries[at], Step) and each.number in numbers]
        anchors = [*found, *(line_of[at] for at in (*struck, *steps))]
        calls = [line_of[at] for at in callers(trace, list(self.causes)) if at in line_of]
        begin = max(0, min(anchors, default=0) - _BEFORE)
        while begin and not isinstance(trace.entries[telling[begin]], Reconcile | Committed):
            begin -= 1
        unlocated = len({number for of in self.causes.values() for number in of}) < len(findings)
        last = range(max(begin, len(telling) - _AT_THE_END), len(telling)) if unlocated else ()
        again = _repeated([_NUMBER.sub("#", str(trace.entries[at])) for at in telling]).difference(anchors, last)
        near = [at + away for around in _AROUND for at in anchors for away in range(-around, around + 1)]
        given_up = [line_of[at] for at in telling if _gives_up(trace.entries[at])]
        outside = [line_of[at] for at in telling if at < over and _is_outside(trace.entries[at])]
        deciding = [*given_up[-_DECIDING:], *outside[-_DECIDING:]]
        wanted = [*anchors, *calls, *last, *deciding, *near, *range(begin, len(telling))]
        # Faults are many when a fault repeats itself. No cause is left out.
        most = max(most, len(found))
        chosen = dict.fromkeys(line for line in wanted if begin <= line < len(telling) and line not in again)
        lines = sorted([*chosen][:most])
        # A note that one is hidden takes as much room as that one.
        lines = sorted({*lines, *(after - 1 for before, after in pairwise(lines) if after - before == 2)})
        if earlier:
            lines = [*range(max(0, begin - most + len(lines)), begin), *lines]
        self.shown = [telling[line] for line in lines]
        gaps = [range(before + 1, after) for before, after in zip([-1, *lines], [*lines, len(telling)], strict=True)]
        self.hidden = [len(each) for each in gaps]
        self.repeats = [again.issuperset(each) for each in gaps]


def _repeated(texts: Sequence[str]) -> set[int]:
    """Return the positions of texts that are a repetition: a row of them equals the row just before it.

    Such rows are the attempts of a reconcile that fails again and again.
    """
    found: set[int] = set()
    at = 1
    while at < len(texts):
        for size in range(1, min(_LONGEST_ROW, at, len(texts) - at) + 1):
            if texts[at : at + size] == texts[at - size : at]:
                found.update(range(at, at + size))
                at += size
                break
        else:
            at += 1
    return found


def _tells(entry: Entry) -> bool:
    if isinstance(entry, Delivered):
        return entry.what != "a bookmark"
    return not isinstance(entry, OutsideChanged)


def _gives_up(entry: Entry) -> bool:
    return isinstance(entry, Reconciled) and entry.result.startswith("PermanentFailure")


def _is_outside(entry: Entry) -> bool:
    return isinstance(entry, Step) and not entry.kind[1] and entry.outcome == "done"


def _is_the_end(entry: Entry) -> bool:
    return isinstance(entry, Happened) and entry.text.startswith(_THE_END)

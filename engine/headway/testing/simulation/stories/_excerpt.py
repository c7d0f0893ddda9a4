"""The part of a trace that a story shows: it begins at the first fault or cause, and contains all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headway.testing.simulation._trace import Committed, Delivered, Entry, Happened, OutsideChanged, Reconcile, Trace
from headway.testing.simulation.oracles import Finding
from headway.testing.simulation.stories._causes import callers, causes, is_planned_fault

_BEFORE = 12
"""The number of lines before the first fault or cause."""
_AT_THE_END = 12
"""The number of lines at the end that are shown for a finding that is about no entry."""
_AROUND = (0, 2, 5)
_THE_END = "the scenario is over"


class Excerpt:
    """The shown part of a trace.

    Attributes:
        shown: the positions of the shown entries in the trace, in order.
        hidden: the number of hidden entries before each shown one, and at last after all of them.
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
        # The causes come first, because faults are many when a fault repeats itself.
        anchors = [line_of[at] for at in (*self.causes, *struck)]
        calls = [line_of[at] for at in callers(trace, list(self.causes)) if at in line_of]
        begin = max(0, min(anchors, default=0) - _BEFORE)
        while begin and not isinstance(trace.entries[telling[begin]], Reconcile | Committed):
            begin -= 1
        last = range(max(begin, len(telling) - _AT_THE_END), len(telling))
        unlocated = len({number for of in self.causes.values() for number in of}) < len(findings)
        lines = _chosen([anchors, calls, last if unlocated else ()], begin, len(telling), most)
        if earlier:
            lines = [*range(max(0, begin - most + len(lines)), begin), *lines]
        self.shown = [telling[line] for line in lines]
        self.hidden = [after - before - 1 for before, after in zip([-1, *lines], [*lines, len(telling)], strict=True)]


def _chosen(wanted: Sequence[Iterable[int]], begin: int, end: int, most: int) -> list[int]:
    """Return at most this many lines from ``begin`` on, in order: the wanted ones, those around them, then the rest."""
    chosen: dict[int, None] = {}
    first, *others = wanted
    nearby = [at + away for around in _AROUND[1:] for at in first for away in range(-around, around + 1)]
    for line in (*first, *(line for of in others for line in of), *nearby, *range(begin, end)):
        if len(chosen) < most and begin <= line < end:
            chosen[line] = None
    return sorted(chosen)


def _tells(entry: Entry) -> bool:
    if isinstance(entry, Delivered):
        return entry.what != "a bookmark"
    return not isinstance(entry, OutsideChanged)


def _is_the_end(entry: Entry) -> bool:
    return isinstance(entry, Happened) and entry.text.startswith(_THE_END)

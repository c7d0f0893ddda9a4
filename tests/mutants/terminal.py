"""Deliberate bugs in live displays, in the progress of long operations, and in drawings."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LIVE = "cli/test_live.py"
_DRAWING = "graphs/test_drawing.py"

TERMINAL_MUTANTS = (
    Mutant(
        "a resource that is not ready in time is not reported",
        "cli/_waiting.py",
        "    missing = [each for each in awaited if not each.done]",
        "    missing: list[Awaited] = []",
        _LIVE,
        "not_ready_in_time",
    ),
    Mutant(
        "a dry run may be waited for",
        "cli/_apply.py",
        '    if dry_run:\n        raise Usage("--wait and',
        '    if False:\n        raise Usage("--wait and',
        _LIVE,
        "contradict",
    ),
    Mutant(
        "a metrics page can move the cursor",
        "observe/_states.py",
        'ControllerState(process, plain(labels["controller"]))',
        'ControllerState(process, labels["controller"])',
        _LIVE,
        "priming",
    ),
    Mutant(
        "a metrics page may be of any size",
        "cli/_scrape.py",
        "most_bytes=_MOST_BYTES",
        "most_bytes=10**9",
        _LIVE,
        "any_answer",
    ),
    Mutant(
        "a counter that begins again gives a negative rate",
        "observe/_states.py",
        "max(count - before.reconciles.get(key, 0), 0)",
        "(count - before.reconciles.get(key, 0))",
        _LIVE,
        "rates",
    ),
    Mutant(
        "bars are hidden although they fit",
        "cli/_bars.py",
        "visible[: max(len(visible) - _MOST, 0)]",
        "visible[: len(visible) - _MOST]",
        _LIVE,
        "bars_fit",
    ),
    Mutant(
        "a copy ends its steps before they are done",
        "storage/upkeep/_copy.py",
        "total = done if ended else max(done, self._totals.get(kind, 0))",
        "total = done",
        "storage/test_copy.py",
        "add_up",
    ),
    Mutant(
        "both of two edges between the same nodes are turned",
        "graphs/_layers.py",
        "turned |= {edge for edge in both if edge[::-1] not in turned}",
        "turned |= both",
        _DRAWING,
    ),
    Mutant(
        "lines that cross are joined",
        "graphs/_drawing.py",
        "if not link or place in joined:",
        "if True:",
        _DRAWING,
    ),
    Mutant(
        "lines between two layers coincide",
        "graphs/_layers.py",
        "rows[place] = max(least, wanted + (wanted + number) % 2)",
        "rows[place] = max(least, wanted)",
        _DRAWING,
    ),
)

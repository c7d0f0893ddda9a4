"""The printed texts: the report on an exploration that found nothing, and the story of a run that failed.

Pure, but for the lines of the program that a story quotes, and the name of the current test.
"""

from __future__ import annotations

import dataclasses
import linecache
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headway.testing.simulation._trace import (
    Committed,
    Delivered,
    Entry,
    Happened,
    OutsideChanged,
    Reconciled,
    Step,
    Trace,
)
from headway.testing.simulation.faults import SCHEDULES, Fault, Plan, StepFault
from headway.testing.simulation.oracles import Finding, Result
from headway.testing.simulation.stories._causes import callers, causes
from headway.testing.simulation.stories._excerpt import Excerpt

_LINES = 28
"""The number of entries in a story, unless its causes are more. With the notes between them, it has some 40 lines."""
_FINDINGS = 8
_CALLS = 8
_OF_CALLS = "      "
_NAMED = 3
"""The number of entries that a list in the report names. A long scenario leaves out thousands of places."""


@dataclasses.dataclass(frozen=True, slots=True)
class Explored:
    """The result of an exploration that found nothing wrong.

    Attributes:
        plans: every possible plan.
        runs: the plans that were run. A missing plan is in ``spoilt``, or the time ran out before it.
        struck: the faults that struck, over all runs. In a plan of two, the second may no longer find a target.
        unmet: the plans with a fault that never struck, because the run did not get to its place.
        left_out: the faults that were not even planned, by reason.
        differing: sentences about what differs between runs without faults, and so was not compared.
        reconciled: the resources that each process reconciled without faults, if there are several processes.
        spoilt: the plans under which the scenario itself failed, with the error.
        without: the faults and schedules that the scenario leaves out, by name.
        not_asked: the plans whose end means nothing, because the world outside carries out a repeated call again.
        steps: the number of calls made by reconcilers, over all runs.
        seconds: the CPU time taken.
    """

    plans: tuple[Plan, ...]
    runs: tuple[Plan, ...]
    struck: tuple[Fault, ...]
    unmet: tuple[Plan, ...]
    left_out: Mapping[str, Sequence[Fault]]
    differing: tuple[str, ...]
    spoilt: Mapping[str, str]
    reconciled: Mapping[str, Sequence[str]]
    steps: int
    seconds: float
    without: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()

    @property
    def planned(self) -> Counter[str]:
        """The number of planned faults, by name."""
        return Counter(fault.name for plan in self.plans for fault in plan)

    @property
    def tried(self) -> Counter[str]:
        """The number of faults that struck, by name."""
        return Counter(fault.name for fault in self.struck)

    @property
    def complete(self) -> bool:
        """True if every plan was run."""
        return len(self.runs) == len(self.plans)

    @property
    def shortfall(self) -> str:
        """What the time ran out before, and how much more it takes, as a sentence; empty if it did not run out."""
        left = self.plans[len(self.runs) + len(self.spoilt) :]
        if not left:
            return ""
        names = dict.fromkeys(fault.name for plan in left for fault in plan)
        never = [name for name in names if not self.tried[name]]
        text = f"no time for {len(left):,} of {len(self.plans):,} plans"
        if never:
            text += f", and so for none with {', '.join(never)}"
        if done := len(self.plans) - len(left):
            text += f"; they take about {math.ceil(self.seconds / done * len(left)):,} s more"
        return f"{text}: raise seconds=, or shorten the scenario"

    def __str__(self) -> str:
        missing = [self.shortfall] if self.shortfall else []
        if self.spoilt:
            missing.append(f"the scenario itself fails under plans that are listed as spoilt ({len(self.spoilt):,})")
        lines = [f"NOT COMPLETE: {', and '.join(missing)}"] if missing else []
        lines += [f"{len(self.runs)} runs, {self.steps} steps, {self.seconds:.1f} s; nothing was found wrong"]
        width, tried = max((len(name) for name in self.planned), default=0), self.tried
        at = {name: " ".join(found) for name, found in _places(self.struck).items()}
        for name, planned in self.planned.items():
            lines.append(f"  {name:<{width}}  {tried[name]} of {planned}{': ' + at[name] if name in at else ''}")
        for why, faults in self.left_out.items():
            where = "; ".join(f"{name} {_first_places(places)}" for name, places in _places(faults).items())
            lines.append(f"  left out, because {why}: {where}")
        lines += [f"  left out by the scenario: {', '.join(self.without)}"] if self.without else []
        again = "because the world outside carries out a repeated call again"
        lines += _first_lines("not judged", [f"{each}, {again}" for each in self.not_asked])
        lines += _first_lines("some faults never struck", list(map(str, self.unmet)))
        lines += [f"  {process} reconciled {', '.join(names)}" for process, names in self.reconciled.items()]
        lines += [f"  not compared: {each}" for each in self.differing]
        lines += _first_lines("spoilt", [f"{plan} by {why}" for plan, why in self.spoilt.items()])
        return "\n".join(lines)


def _first_lines(what: str, texts: Sequence[str]) -> list[str]:
    """Return a line for each of the first texts, and one with the number of the others."""
    more = [f"{len(texts) - _NAMED:,} more"] if len(texts) > _NAMED else []
    return [f"  {what}: {text}" for text in (*texts[:_NAMED], *more)]


def _first_places(places: Mapping[str, int]) -> str:
    """Return the first places as text, with the number of the others."""
    more = sum([*places.values()][_NAMED:])
    return " ".join([*places][:_NAMED]) + (f" and {more:,} more" if more else "")


def _ranges(numbers: list[int]) -> dict[str, int]:
    """Return numbers as ranges with their lengths: ``1 2 3 5`` as ``1-3`` with 3 and ``5`` with 1."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return {"-".join(map(str, part)): part[-1] - part[0] + 1 for part in parts}


def _places(faults: Iterable[Fault]) -> dict[str, dict[str, int]]:
    """Return the places where faults strike, by name, each with the number of places that it stands for.

    Such a place is ``1``, ``2-4`` or ``staff.Team/9``.
    """
    places: dict[str, dict[str, None]] = {}
    for fault in faults:
        # Fields with their default, such as the length of a stall, are left out.
        given = [
            str(value)
            for field in dataclasses.fields(fault)
            if (value := getattr(fault, field.name)) != field.default or value == 0
        ]
        places.setdefault(fault.name, {})["/".join(given)] = None
    return {
        name: _ranges([int(each) for each in found]) if all(map(str.isdecimal, found)) else dict.fromkeys(found, 1)
        for name, found in places.items()
    }


# --- the story of a failed run ---


def story(plan: Plan, result: Result, findings: Sequence[Finding]) -> str:
    """Return the story of a failed run."""
    lines = [f"{each}" for each in findings[:_FINDINGS]]
    if len(findings) > _FINDINGS:
        lines.append(f"... and {len(findings) - _FINDINGS} more")
    return "\n".join(
        [
            *lines,
            "",
            f"when: {when(plan)}",
            "",
            *timeline(result.trace, findings),
            "",
            *_calls(plan, result.trace, findings),
            f"again: {replay_line(plan)}",
        ]
    )


def _calls(plan: Plan, trace: Trace, findings: Sequence[Finding]) -> list[str]:
    """Return the lines of the program that made the calls that were struck or that findings are about."""
    struck = {each.step for each in plan if isinstance(each, StepFault)}
    caused = callers(trace, list(causes(trace, findings[:_FINDINGS])))
    steps = [each for each in trace.steps if each.number in struck]
    steps += [each for at in caused if isinstance(each := trace.entries[at], Step) and each not in steps]
    lines = [
        f"  step {each.number}: {os.path.relpath(file)}:{line}: {linecache.getline(file, line).strip()}"
        for each in sorted(steps, key=lambda each: each.number)[:_CALLS]
        for file, line in [each.place]
        if file
    ]
    return ["the calls:", *lines, ""] if lines else []


def when(plan: Plan) -> str:
    """Return the faults and the timing of a plan in one line, each with its effect."""
    parts = [f"{text} - {why}" for text, why in described(plan)]
    # The faults strike one after the other. The changed order of tasks applies to the whole run.
    told = "; ".join(filter(None, ["; then ".join(parts[: len(plan)]), *parts[len(plan) :]]))
    if is_timing_alone(plan):
        return f"timing alone, without any fault: {told}"
    return told or "no faults"


def described(plan: Plan) -> list[tuple[str, str]]:
    """Return the parts of a plan as text, each with what it means."""
    order = [(f"seed({plan.seed})", "Ready tasks run in another order.")] if plan.seed else []
    return [*((str(fault), " ".join((type(fault).__doc__ or "").split())) for fault in plan), *order]


def is_timing_alone(plan: Plan) -> bool:
    """Return True if a plan has no faults, and changes only the order or the time of what happens."""
    return bool(plan.seed or len(plan)) and all(isinstance(fault, SCHEDULES) for fault in plan)


def current_test() -> str:
    """Return pytest's name for the current test, or an empty text."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def replay_line(plan: Plan) -> str:
    """Return the line that repeats the run."""
    test = current_test()
    return f'HEADWAY_PLAN="{plan}" pytest {test}' if test else f"explore(..., plan={str(plan)!r})"


def timeline(trace: Trace, findings: Sequence[Finding] = ()) -> list[str]:
    """Return what happened from the first fault or cause on, one line each, with the store's revisions.

    The line of a cause ends with the oracles that name it. A call that takes time has a second line, where it takes
    effect.
    """
    excerpt = Excerpt(trace, findings[:_FINDINGS], _LINES)
    lines: list[str] = []
    # The effects of calls that are under way, with their positions in the trace.
    effects: list[tuple[int, str]] = []
    for at, hidden, repeats in zip(excerpt.shown, excerpt.hidden, excerpt.repeats, strict=False):
        lines += [text for after, text in sorted(effects) if after <= at]
        effects = [each for each in effects if each[0] > at]
        if hidden:
            lines.append(f"           ({_hidden(hidden, repeats)}{' before' if not lines else ''})")
        entry = trace.entries[at]
        named = dict.fromkeys(findings[number].oracle for number in excerpt.causes.get(at, ()))
        line = _line(entry) + (f"  <-- {', '.join(named)}" if named else "")
        if isinstance(entry, Step) and entry.effect[0] > entry.at:
            done_at, after = entry.effect
            effects.append((after, f"{done_at:9.3f}  {line}"))
            line = f"{_OF_CALLS}{entry.call}"
        lines.append(f"{entry.at:9.3f}  {line}")
    lines += [text for _, text in sorted(effects)]
    if excerpt.hidden[-1]:
        lines.append(f"           ({_hidden(excerpt.hidden[-1], excerpt.repeats[-1])} after)")
    return lines


def _hidden(lines: int, repeats: bool) -> str:
    return f"{lines} lines{' that repeat those above' if repeats else ''}"


def _line(entry: Entry) -> str:
    indent = "" if isinstance(entry, Committed | Happened) else "  " if isinstance(entry, Delivered) else "    "
    if isinstance(entry, Step | Reconciled | OutsideChanged):
        indent = _OF_CALLS
    return f"{indent}{entry}"

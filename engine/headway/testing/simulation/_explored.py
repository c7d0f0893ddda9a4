"""What an exploration has tried, what not, and why: a report. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headway.testing.simulation._faults import Fault, Plan


@dataclasses.dataclass(frozen=True, slots=True)
class Explored:
    """What was tried and held.

    Attributes:
        plans: all that there was to try.
        runs: those of them that were run; what is missing there was no time for, or is in ``spoilt``.
        struck: the faults that came to pass, in all runs. Of two the second may find nothing to befall any more.
        unmet: the runs in which some fault never struck: they didn't come to where it would have.
        left_out: what was not even planned, by the reason.
        differing: what is not the same in every run without faults, and so was not compared, as sentences.
        spoilt: plans under which the scenario itself failed, by what.
        steps: calls of reconcilers, in all runs.
        seconds: real ones.
    """

    plans: tuple[Plan, ...]
    runs: tuple[Plan, ...]
    struck: tuple[Fault, ...]
    unmet: tuple[Plan, ...]
    left_out: Mapping[str, Sequence[Fault]]
    differing: tuple[str, ...]
    spoilt: Mapping[str, str]
    steps: int
    seconds: float

    @property
    def planned(self) -> Counter[str]:
        """How many faults there were to try, by their name."""
        return Counter(fault.name for plan in self.plans for fault in plan)

    @property
    def tried(self) -> Counter[str]:
        """How many came to pass, by their name."""
        return Counter(fault.name for fault in self.struck)

    @property
    def complete(self) -> bool:
        """Whether everything that was planned was run."""
        return len(self.runs) == len(self.plans)

    def __str__(self) -> str:
        lines = [f"{len(self.runs)} runs, {self.steps} steps, {self.seconds:.1f} s; nothing was found wrong"]
        width, tried = max((len(name) for name in self.planned), default=0), self.tried
        at = _places(self.struck)
        for name, planned in self.planned.items():
            lines.append(f"  {name:<{width}}  {tried[name]} of {planned}{': ' + at[name] if name in at else ''}")
        for why, faults in self.left_out.items():
            where = "; ".join(f"{name} {places}" for name, places in _places(faults).items())
            lines.append(f"  left out, because {why}: {where}")
        lines += [f"  not all of it struck: {plan}" for plan in self.unmet]
        lines += [f"  not compared: {each}" for each in self.differing]
        lines += [f"  spoilt: {plan} by {why}" for plan, why in self.spoilt.items()]
        return "\n".join(lines)


def _ranges(numbers: list[int]) -> str:
    """``1 2 3 5`` as ``1-3 5``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return " ".join("-".join(map(str, part)) for part in parts)


def _places(faults: Iterable[Fault]) -> dict[str, str]:
    """Where faults strike, by their name: ``1 2 4``, ``staff.Team/9``."""
    places: dict[str, dict[str, None]] = {}
    for fault in faults:
        # Without what is as ever, such as how long a stall lasts.
        given = [
            str(value)
            for field in dataclasses.fields(fault)
            if (value := getattr(fault, field.name)) != field.default or value == 0
        ]
        places.setdefault(fault.name, {})["/".join(given)] = None
    return {
        name: _ranges([int(each) for each in found]) if all(map(str.isdecimal, found)) else " ".join(found)
        for name, found in places.items()
    }

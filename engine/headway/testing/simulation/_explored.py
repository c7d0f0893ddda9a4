"""A report on an exploration: what was tried, what was not, and why. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headway.testing.simulation._faults import Fault, Plan


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
        spoilt: the plans under which the scenario itself failed, with the error.
        steps: the number of calls made by reconcilers, over all runs.
        seconds: the real time taken.
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

    def __str__(self) -> str:
        lines = [f"{len(self.runs)} runs, {self.steps} steps, {self.seconds:.1f} s; nothing was found wrong"]
        width, tried = max((len(name) for name in self.planned), default=0), self.tried
        at = _places(self.struck)
        for name, planned in self.planned.items():
            lines.append(f"  {name:<{width}}  {tried[name]} of {planned}{': ' + at[name] if name in at else ''}")
        for why, faults in self.left_out.items():
            where = "; ".join(f"{name} {places}" for name, places in _places(faults).items())
            lines.append(f"  left out, because {why}: {where}")
        lines += [f"  some faults never struck: {plan}" for plan in self.unmet]
        lines += [f"  not compared: {each}" for each in self.differing]
        lines += [f"  spoilt: {plan} by {why}" for plan, why in self.spoilt.items()]
        return "\n".join(lines)


def _ranges(numbers: list[int]) -> str:
    """Return numbers as ranges: ``1 2 3 5`` as ``1-3 5``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return " ".join("-".join(map(str, part)) for part in parts)


def _places(faults: Iterable[Fault]) -> dict[str, str]:
    """Return the places where faults strike, by name: ``1 2 4``, ``staff.Team/9``."""
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
        name: _ranges([int(each) for each in found]) if all(map(str.isdecimal, found)) else " ".join(found)
        for name, found in places.items()
    }

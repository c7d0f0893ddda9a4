"""Measure two things in turn, several times, and say how they compare.

Our side and the other one are run A B A B in one process (or, for imports, in fresh ones), so that whatever else the
machine does meets both. Each figure is the median of its rounds and the ratio is that of the two medians. The garbage
collector is left as the program left it: whatever a side makes it do is part of its price.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

RESULTS = Path(__file__).parent / "results.json"

Unit = Literal["us", "bytes"]


class NotHere(Exception):
    """What a scenario measures isn't on this machine; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a scenario found: our cost and the other's, in microseconds or bytes for each unit of work.

    Attributes:
        bound: the highest ratio that is held; None: it has none.
    """

    name: str
    ours: float
    against: float
    unit: Unit
    bound: float | None

    @property
    def ratio(self) -> float:
        """How many times the other side's cost ours is."""
        return self.ours / self.against

    @property
    def within(self) -> bool:
        """Whether the bound is held."""
        return self.bound is None or self.ratio <= self.bound

    def as_json(self) -> dict[str, float]:
        """The row as `results.json` has it."""
        return {
            f"ours_{self.unit}": round(self.ours, 3),
            f"against_{self.unit}": round(self.against, 3),
            "ratio": round(self.ratio, 3),
        }


@dataclass(frozen=True, slots=True)
class Scenario:
    """One benchmark.

    Attributes:
        measure: takes a size (of what, its file says) and a number of rounds.
        size: the size that the bound is for.
    """

    name: str
    bound: float | None
    measure: Callable[[int, int], Row]
    size: int
    rounds: int

    def run(self, *, size: int | None = None, rounds: int | None = None) -> Row:
        """Measure, at the full size unless told otherwise."""
        return self.measure(size or self.size, rounds or self.rounds)


def interleaved(ours: Callable[[], float], against: Callable[[], float], rounds: int) -> tuple[float, float]:
    """The medians of two measurements, taken in turn."""
    pairs = [(ours(), against()) for _ in range(rounds)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


HEADER = f"{'name':<12}{'ours':>13}{'against':>13}{'ratio':>8}{'at most':>9}  within"


def line(row: Row) -> str:
    """The row for a reader, below `HEADER`."""
    unit = "µs" if row.unit == "us" else "B "
    bound, within = ("-", "-") if row.bound is None else (f"{row.bound:.2f}", "yes" if row.within else "NO")
    return f"{row.name:<12}{row.ours:>10.2f} {unit}{row.against:>10.2f} {unit}{row.ratio:>8.2f}{bound:>9}  {within}"


def write_results(rows: Iterable[Row], path: Path = RESULTS) -> None:
    """Put the rows into the results; rows of other scenarios stay as they are."""
    known: Mapping[str, object] = json.loads(path.read_text()) if path.exists() else {}
    merged = {**known, **{row.name: row.as_json() for row in rows}}
    path.write_text(json.dumps(merged, indent=2, sort_keys=True) + "\n")

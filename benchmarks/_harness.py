"""Measure two things in turn, several times, and say how they compare; keep what a whole run has found.

Our side and the other one are run A B A B in one process (or, for imports, in fresh ones), so that whatever else the
machine does meets both. Each figure is the median of its rounds and the ratio is that of the two medians. The garbage
collector is left as the program left it: whatever a side makes it do is part of its price.

A quick run is for machines that do other work meanwhile. It measures pairs one after the other, until one of them
holds the bound, `PAIRS` of them at most: what is slower than its bound is so in each pair, and noise seldom is.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

RESULTS = Path(__file__).parent / "results.json"

PAIRS = 5
"""Pairs of a quick run that may break a bound before it counts as broken."""

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
        quick: the size of a quick run, which has the same bound; 0: it is left out there.
    """

    name: str
    bound: float | None
    measure: Callable[[int, int], Row]
    size: int
    rounds: int
    quick: int = 0

    def run(self, *, size: int | None = None, rounds: int | None = None) -> Row:
        """Measure, at the full size unless told otherwise."""
        return self.measure(size or self.size, rounds or self.rounds)

    def best_pair(self) -> Row:
        """Measure pairs until one holds the bound, `PAIRS` at most. Returns the best.

        A pair that comes out at no cost or less is noise: what is subtracted in it took longer than the whole.
        """
        pairs: list[Row] = []
        while not pairs or not (pairs[-1].ratio > 0 and pairs[-1].within):
            if len(pairs) == PAIRS:
                break
            pairs.append(self.measure(self.quick, 1))
        return min([row for row in pairs if row.ratio > 0] or pairs, key=lambda row: row.ratio)


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


def load() -> list[float]:
    """How busy the machine is: the load averages of one, five and fifteen minutes."""
    return [round(each, 2) for each in os.getloadavg()]


def write_results(rows: Iterable[Row], before: list[float], path: Path = RESULTS) -> None:
    """Replace the results by those of one whole run, with what it ran on. ``before``: the load at its beginning."""
    run = {
        "commit": _git("rev-parse", "HEAD")
        + ("+" if _git("status", "--porcelain", "--", "engine", "benchmarks") else ""),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{os.cpu_count()} × {_processor()}, {platform.system()} {platform.machine()}",
        "load_before": before,
        "load_after": load(),
    }
    found = {"run": run, "rows": {row.name: row.as_json() for row in rows}}
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def _git(*arguments: str) -> str:
    """What git says of the source, or nothing where it isn't in a repository."""
    command = ["git", "-C", str(Path(__file__).parents[1]), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def _processor() -> str:
    """The model of the processor, where the system says it."""
    try:
        described = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in described if line.startswith("model name")]
    return models[0] if models else platform.processor()

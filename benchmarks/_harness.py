"""Measure two things alternately, several times, and compare them; record the results of a whole run.

Our side and the other side run A B A B in one process (imports run in fresh processes), so other load on the machine
affects both. Each figure is the median of its rounds, and the ratio is the ratio of the two medians. The garbage
collector keeps the settings of the program: the collections that a side causes are part of its cost.

A quick run is for machines with other load. It measures one pair after the other, until a pair is within the bound or
`PAIRS` pairs are measured. Code that is slower than its bound exceeds it in every pair; noise seldom does. The pairs
follow within seconds, so the rows above their bounds are measured again at the end of the run.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

RESULTS = Path(__file__).parent / "results.json"

PAIRS = 5
"""The number of pairs in a quick run that must all exceed a bound before it counts as broken."""

Unit = Literal["us", "bytes"]


class NotHere(Exception):
    """A program that a scenario needs is not installed. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a scenario: our cost and the other side's, in microseconds or bytes per unit of work.

    Attributes:
        bound: The highest allowed ratio, or None if the scenario has no bound.
    """

    name: str
    ours: float
    against: float
    unit: Unit
    bound: float | None

    @property
    def ratio(self) -> float:
        """The ratio of our cost to the other side's."""
        return self.ours / self.against

    @property
    def within(self) -> bool:
        """True if the ratio does not exceed the bound."""
        return self.bound is None or self.ratio <= self.bound

    def as_json(self) -> dict[str, float]:
        """Return the row as `results.json` stores it."""
        return {
            f"ours_{self.unit}": round(self.ours, 3),
            f"against_{self.unit}": round(self.against, 3),
            "ratio": round(self.ratio, 3),
        }


@dataclass(frozen=True, slots=True)
class Scenario:
    """A benchmark.

    Attributes:
        measure: A function of a size and a number of rounds. The scenario's docstring says what is counted.
        size: The size to which the bound applies.
        quick: The size in a quick run, with the same bound; 0 leaves the scenario out of quick runs.
    """

    name: str
    bound: float | None
    measure: Callable[[int, int], Row]
    size: int
    rounds: int
    quick: int = 0

    def run(self, *, size: int | None = None, rounds: int | None = None) -> Row:
        """Measure, by default at the full size."""
        return self.measure(size or self.size, rounds or self.rounds)

    def best_pair(self) -> Row:
        """Measure at most `PAIRS` pairs, until one is within the bound. Return the best pair.

        A pair with a cost of zero or less is noise: the part that is subtracted took longer than the whole.
        """
        pairs: list[Row] = []
        while not pairs or not (pairs[-1].ratio > 0 and pairs[-1].within):
            if len(pairs) == PAIRS:
                break
            pairs.append(self.measure(self.quick, 1))
        return min([row for row in pairs if row.ratio > 0] or pairs, key=lambda row: row.ratio)


def collected(measured: Callable[[], float]) -> Callable[[], float]:
    """Return a measurement that begins when all garbage has been collected, and everything that is alive is old.

    Otherwise, what an earlier turn left decides which turn pays for a full collection of the whole heap.
    """

    def turn() -> float:
        gc.collect()
        return measured()

    return turn


def interleaved(ours: Callable[[], float], against: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Return the medians of two measurements that are made alternately."""
    pairs = [(ours(), against()) for _ in range(rounds)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


HEADER = f"{'name':<12}{'ours':>13}{'against':>13}{'ratio':>8}{'at most':>9}  within"


def line(row: Row) -> str:
    """Return the row as text, in the columns of `HEADER`."""
    unit = "µs" if row.unit == "us" else "B "
    bound, within = ("-", "-") if row.bound is None else (f"{row.bound:.2f}", "yes" if row.within else "NO")
    return f"{row.name:<12}{row.ours:>10.2f} {unit}{row.against:>10.2f} {unit}{row.ratio:>8.2f}{bound:>9}  {within}"


def load() -> list[float]:
    """Return the load averages of the last one, five and fifteen minutes."""
    return [round(each, 2) for each in os.getloadavg()]


def write_results(rows: Iterable[Row], before: list[float], path: Path = RESULTS) -> None:
    """Replace the results with the rows of one whole run and a description of its machine.

    Args:
        before: The load averages at the beginning of the run.
    """
    run = {
        "commit": _commit("HEAD"),
        "python": python(),
        "machine": _machine(),
        "load_before": before,
        "load_after": load(),
    }
    found = {"run": run, "rows": {row.name: row.as_json() for row in rows}}
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


_OPTIMIZED = {"PGO": "--enable-optimizations", "LTO": "--with-lto"}
"""The options by which a Python is configured to be optimized by a profile, and at link time."""


def python() -> str:
    """Return the running Python and its build, which makes a difference of a quarter to most costs.

    A distribution's own Python may have been built twice, and describe the build that is not running.
    """
    version = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.base_prefix == "/usr":
        return f"{version} of {platform.freedesktop_os_release()['PRETTY_NAME']}"
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    found = [name for name, option in _OPTIMIZED.items() if option in arguments]
    return f"{version} built with {' and '.join(found)}" if found else f"{version} built without PGO and LTO"


def measured_on(*others: str) -> str:
    """Return the sentence below a table of figures: the day, commit, machine and Python, and the other programs."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return f"Measured on {day} at commit {_commit('--short=8', 'HEAD')}: {'; '.join((_machine(), python(), *others))}."


def version(module: str) -> str:
    """Return a Go module without its host, and the version that a program of the benchmarks or the tests requires."""
    root = Path(__file__).parents[1]
    for required in (*root.glob("benchmarks/peers/*/go.mod"), *root.glob("tests/*/go.mod")):
        if found := re.search(rf"\b{module} v(\S+)", required.read_text()):
            return f"{module.partition('/')[2]} {found[1]}"
    raise LookupError(f"{module} not found in any go.mod")


def _commit(*revision: str) -> str:
    """Return the commit of the source, with a ``+`` if what is measured differs from it."""
    changed = _git("status", "--porcelain", "--", "engine", "benchmarks")
    return _git("rev-parse", *revision) + ("+" if changed else "")


def _machine() -> str:
    return f"{os.cpu_count()} × {_processor()}, {platform.system()} {platform.machine()}"


def _git(*arguments: str) -> str:
    """Return the output of a git command in the source, or "" if the command fails or git is not installed."""
    command = ["git", "-C", str(Path(__file__).parents[1]), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def _processor() -> str:
    """Return the model of the processor, if the system names it."""
    try:
        described = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in described if line.startswith("model name")]
    return models[0] if models else platform.processor()

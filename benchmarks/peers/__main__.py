"""Measure Headway and controller-runtime in turn, and print their tables: ``python -m benchmarks.peers PROGRAM``.

Each measurement is a process of its own, and the two sides alternate. A figure is the median of its rounds. All rows
but `latency` and `memory` compare processor time, because a Go program spreads its work over all cores. A row says how
much Headway takes for each unit of what controller-runtime takes: below 1 is ahead.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks._harness import load

ROUNDS = 5


class Work(NamedTuple):
    """What is measured: a mode of the programs with its two numbers, and which of their figures is compared."""

    text: str
    mode: str
    size: int
    other: int
    figure: str
    per: int


def works(size: int) -> list[Work]:
    """Return what is measured, with ``size`` objects where there are many."""
    few = max(size // 10, 1)
    return [
        Work(f"open until the first reconcile, {size:,}", "prime", size, 0, "cpu_us", size),
        Work(f"the same with 2 indexes, {size:,}", "prime", size, 2, "cpu_us", size),
        Work(f"open until all are reconciled, {size:,}", "first", size, 0, "cpu_us", size),
        Work(f"the same with 2 indexes, {size:,}", "first", size, 2, "cpu_us", size),
        Work(f"creation, reconcile and status write, 1 writer, {few:,}", "throughput", few, 1, "cpu_us", few),
        Work(f"the same with 8 writers, {few:,}", "throughput", few, 8, "cpu_us", few),
        Work("write until its reconcile, median, nothing cached", "latency", 0, 2_000, "median_us", 1),
        Work(f"the same with {size:,} cached", "latency", size, 2_000, "median_us", 1),
        Work(f"peak memory after a first pass, {size:,}", "memory", size, 0, "bytes", size),
    ]


def measured(command: list[str], work: Work) -> float:
    """Return one figure of a program, for each unit of work."""
    arguments = [*command, work.mode, str(work.size), str(work.other)]
    ran = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=600)
    return float(json.loads(ran.stdout)[work.figure]) / work.per


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="the built program of controller-runtime")
    parser.add_argument("--size", type=int, default=100_000, help="the number of objects where there are many")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    ours = [sys.executable, "-m", "benchmarks.peers._headway"]
    print(f"load before: {load()}")
    print("| work | Headway | controller-runtime | ratio |\n| --- | --- | --- | --- |", flush=True)
    for work in works(given.size):
        pairs = [(measured(ours, work), measured([str(given.program)], work)) for _ in range(given.rounds)]
        mine, other = median(each for each, _ in pairs), median(each for _, each in pairs)
        unit = "B" if work.figure == "bytes" else "µs"
        print(f"| {work.text} | {mine:,.2f} {unit} | {other:,.2f} {unit} | {mine / other:.2f} |", flush=True)
    print(f"load after: {load()}")


if __name__ == "__main__":
    main()

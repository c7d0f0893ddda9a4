"""Measure Headway and its peers in turn, and print their tables: ``python -m benchmarks.peers CONTROLLERS SERVER``.

The first table compares controllers with the program on controller-runtime, the second one servers with the program on
grpc-go (`_network.py`). The two sides alternate, and a figure is the median of its rounds. Each measurement of a
controller is a process of its own. All rows but `latency` and `memory` compare processor time, because a Go program
spreads its work over all cores. A row says how much Headway takes for each unit of what the peer takes: below 1 is
ahead.
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
from benchmarks.peers._network import rows

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


def controllers(program: Path, size: int, rounds: int) -> None:
    """Print the table of controllers, with ``size`` objects where there are many."""
    ours = [sys.executable, "-m", "benchmarks.peers._headway"]
    _header("controller-runtime")
    for work in works(size):
        pairs = [(measured(ours, work), measured([str(program)], work)) for _ in range(rounds)]
        mine, other = median(each for each, _ in pairs), median(each for _, each in pairs)
        _line(work.text, mine, other, "B" if work.figure == "bytes" else "µs")


def network(program: Path, size: int, rounds: int) -> None:
    """Print the table of servers, with ``size`` resources where there are many."""
    _header("grpc-go")
    for row in rows(program, max(size // 10, 1), size, rounds):
        if row.grpc_go < 1000:
            _line(row.text, row.headway, row.grpc_go, "µs")
        else:
            _line(row.text, row.headway / 1000, row.grpc_go / 1000, "ms")


def _header(peer: str) -> None:
    print(f"| work | Headway | {peer} | ratio |\n| --- | --- | --- | --- |", flush=True)


def _line(text: str, mine: float, other: float, unit: str) -> None:
    print(f"| {text} | {mine:,.2f} {unit} | {other:,.2f} {unit} | {mine / other:.2f} |", flush=True)


def main() -> None:
    """Print the tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("controllers", type=Path, help="the built program on controller-runtime")
    parser.add_argument("server", type=Path, help="the built program on grpc-go")
    parser.add_argument("--size", type=int, default=100_000, help="the number of objects where there are many")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", choices=["controllers", "network"], help="print only this table")
    given = parser.parse_args()
    print(f"load before: {load()}")
    if given.only != "network":
        controllers(given.controllers, given.size, given.rounds)
        print()
    if given.only != "controllers":
        network(given.server, given.size, given.rounds)
    print(f"load after: {load()}")


if __name__ == "__main__":
    main()

"""Measure Headway and its peers in turn, and print their tables: ``python -m benchmarks.peers PROGRAMS``.

PROGRAMS is the folder of the built programs of the peers. The tables are in the form of docs/guides/how-fast.md, in
microseconds and bytes. A sentence below them says when and where they were measured:

- `controllers`: controllers, with the program on controller-runtime. Each side is measured by default and with one
  option changed, and the ratio is that of the default of Headway to the better of the peer's two figures.
- `network`: servers, with the program on grpc-go (`_network.py`).
- `etcd`: clients of etcd, with the program on Go's client (`_etcd.py`).

The sides alternate, and a figure is the median of its rounds. Each measurement of a controller or of a client is a
process of its own. All rows but those of latency and memory compare processor time, because a Go program spreads its
work over all cores. A row says how much Headway takes for each unit of what the peer takes: below 1 is ahead.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks._harness import NotHere, load, measured_on, version
from benchmarks.peers import _etcd, _network
from benchmarks.peers._headway import NO_FREEZE


class Work(NamedTuple):
    """What is measured: a mode of the programs with its two numbers, and which of their figures is compared."""

    text: str
    mode: str
    size: int
    other: int
    figure: str
    per: int = 1


def works(size: int) -> list[Work]:
    """Return what is measured, with ``size`` objects where there are many."""
    few = max(size // 10, 1)
    return [
        Work(f"open until the first reconcile, {size:,} objects", "prime", size, 0, "cpu_us", size),
        Work("the same with 2 indexes", "prime", size, 2, "cpu_us", size),
        Work("open until all are reconciled", "first", size, 0, "cpu_us", size),
        Work(f"creation, reconcile and status, {few:,}, 1 writer", "throughput", few, 1, "cpu_us", few),
        Work(f"5 reads, 2 unchanged applies and a status, {few:,}", "work", few, 0, "cpu_us", few),
        Work(f"the same, {size:,}", "work", size, 0, "cpu_us", size),
        Work(f"write and its reconcile, {size:,} cached", "latency", size, 0, "each_us"),
        Work("the same after 20 ms of silence", "latency", size, 20, "each_us"),
        Work("write until its reconcile begins, median", "latency", size, 0, "median_us"),
        Work("the same after 1 ms", "latency", size, 1, "median_us"),
        Work("the same after 20 ms", "latency", size, 20, "median_us"),
        Work("live heap after the first pass, bytes", "live", size, 0, "bytes", size),
        Work("peak memory, bytes", "peak", size, 0, "bytes", size),
    ]


def controllers(program: Path, size: int, rounds: int) -> None:
    """Print the table of controllers, with ``size`` objects where there are many."""
    ours = [sys.executable, "-m", "benchmarks.peers._headway"]
    sides = (ours, [*ours, NO_FREEZE], [str(program)], [str(program), "-priority-queue=false"])
    _header("Headway", "`gc_freeze=False`", "controller-runtime", "without priority queue")
    # Several rows may be figures of one measurement.
    known: dict[tuple[str, int, int], Sequence[Sequence[dict[str, float]]]] = {}
    for work in works(size):
        given = work.mode, work.size, work.other
        if given not in known:
            known[given] = [[_ran([*side, *map(str, given)]) for side in sides] for _ in range(rounds)]
        figures = [
            median(each[work.figure] / work.per for each in of_side) for of_side in zip(*known[given], strict=True)
        ]
        _line(work.text, figures, figures[0] / min(figures[2:]))


def network(program: Path, size: int, rounds: int) -> None:
    """Print the table of servers, with ``size`` resources where there are many."""
    _header("Headway", "grpc-go")
    for row in _network.rows(program, max(size // 10, 1), size, rounds):
        _line(row.text, [row.headway, row.grpc_go], row.headway / row.grpc_go)


def etcd(program: Path, size: int, rounds: int) -> None:
    """Print the table of clients of etcd."""
    _header("Headway", "Go's client")
    for row in _etcd.rows(program, max(size // 10, 1), rounds):
        _line(row.text, [row.headway, row.etcd_go], row.headway / row.etcd_go)


class Table(NamedTuple):
    """A table, the built program that it needs, the number of its rounds, and the Go module that it is about."""

    printed: Callable[[Path, int, int], None]
    program: str
    rounds: int
    module: str


TABLES = {
    "controllers": Table(controllers, "controller-runtime-peer", 3, "sigs.k8s.io/controller-runtime"),
    "network": Table(network, "grpc-go-peer", 5, "google.golang.org/grpc"),
    "etcd": Table(etcd, "etcd-go-peer", 5, "go.etcd.io/etcd/client/v3"),
}


def _ran(command: Sequence[str]) -> dict[str, float]:
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def _header(*columns: str) -> None:
    names = ["work", *columns, "ratio"]
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|", flush=True)


def _line(text: str, figures: Sequence[float], ratio: float) -> None:
    shown = [f"{each:,.{0 if each >= 1000 else 2}f}" for each in figures]
    print(f"| {' | '.join([text, *shown, f'{ratio:.2f}'])} |", flush=True)


def main() -> None:
    """Print the tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, help="the folder of the built programs")
    parser.add_argument("--size", type=int, default=100_000, help="the number of objects where there are many")
    parser.add_argument(
        "--rounds", type=int, help="the number of rounds, instead of 3 for controllers and 5 for the others"
    )
    parser.add_argument("--only", choices=TABLES, help="print only this table")
    given = parser.parse_args()
    print(f"load before: {load()}\n")
    tables = [table for name, table in TABLES.items() if given.only in (None, name)]
    for table in tables:
        try:
            table.printed(given.programs / table.program, given.size, given.rounds or table.rounds)
        except NotHere as missing:
            print(f"not measured: {missing}")
        print()
    go = subprocess.run(["go", "env", "GOVERSION"], check=True, capture_output=True, text=True).stdout.strip()
    versions = [version(table.module) for table in tables]
    print(f"{measured_on(go.replace('go', 'Go '), *versions)}\n\nload after: {load()}")


if __name__ == "__main__":
    main()

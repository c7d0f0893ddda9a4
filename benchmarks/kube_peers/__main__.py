"""Run the same operator by Headway, with controller-runtime and with kopf, and print how they compare.

``python -m benchmarks.kube_peers GO_PROGRAM KOPF_PYTHON`` prints four tables, in the form of docs/guides/how-fast.md
and docs/coming-from.md. All operators run on one API server, one after the other in each round:

- `changes`: lines, and the calls and the time of a change with few Websites; medians of the rounds.
- `starts`: a start with a tenth of the Websites, once, until nothing is left to do.
- `memory`: a start with many Websites, once.
- `faults`: what each does under faults, once. Here they connect through a proxy.

Calls are those in the API server's audit log, without those for Leases and Events.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks._harness import load, measured_on, version
from benchmarks.kube_peers import _faults, _numbers
from benchmarks.kube_peers._cluster import Cluster, open_cluster
from benchmarks.kube_peers._numbers import Figures
from benchmarks.kube_peers._operators import Side, lines_of, sides

LINES = "lines of code"


class Row(NamedTuple):
    """A row of the first two tables: its text, and the figures that its cells have."""

    text: str
    figures: Sequence[str]


def change_rows() -> list[Row]:
    """Return the rows about few Websites."""
    calls = [
        Row(f"{what}: writes, reads, reconciles", [f"{what}: {each}" for each in ("writes", "reads", "reconciles")])
        for what in ("creation", "change of the image", "replicas become ready")
    ]
    return [
        *calls,
        Row("change until its Deployment has it, median, ms", ["median_ms"]),
        Row("the same, 99th percentile, ms", ["p99_ms"]),
        Row("processor time of a change, ms", ["cpu_ms"]),
    ]


def start_rows(some: int) -> list[Row]:
    """Return the rows about some thousand Websites."""
    return [
        Row(f"start with {some:,} Websites until nothing is left to do, s", ["quiet_s"]),
        Row("processor time until then, s", ["cpu_s"]),
        Row("writes until then", ["writes"]),
        Row("then a change until its Deployment has it, median, ms", ["many_ms"]),
    ]


def memory_rows(many: int) -> list[Row]:
    """Return the rows about many Websites."""
    return [
        Row(f"start with {many:,} Websites, after 90 s: resident memory, MB", ["rss_mb"]),
        Row("the same: proportional memory, MB", ["pss_mb"]),
    ]


def cell(figures: Sequence[float]) -> str:
    """Return a cell with some figures."""
    return ", ".join(
        "not in 60" if each == inf else f"{each:,.{0 if each >= 100 or each == int(each) else 1}f}" for each in figures
    )


def medians(rounds: Sequence[Figures]) -> Figures:
    """Return the median of each figure."""
    return {name: median(each[name] for each in rounds) for name in rounds[0]}


def print_header(first: str, compared: Sequence[Side]) -> None:
    """Print the head of a table."""
    print(f"| {first} | {' | '.join(each.name for each in compared)} |\n|---{'|---' * len(compared)}|", flush=True)


def print_rows(rows: Sequence[Row], measured: Sequence[Figures]) -> None:
    """Print rows of the first two tables."""
    for row in rows:
        cells = [cell([each[name] for name in row.figures]) for each in measured]
        print(f"| {row.text} | {' | '.join(cells)} |", flush=True)


def changes(cluster: Cluster, compared: Sequence[Side], given: argparse.Namespace) -> None:
    """Print the table of lines and of changes with few Websites."""
    print_header("work", compared)
    print(f"| {LINES} | {' | '.join(str(lines_of(each.files)) for each in compared)} |", flush=True)
    rounds = [[_numbers.change(cluster, side, given.changes) for side in compared] for _ in range(given.rounds)]
    print_rows(change_rows(), [medians(each) for each in zip(*rounds, strict=True)])


def starts(cluster: Cluster, compared: Sequence[Side], given: argparse.Namespace) -> None:
    """Print the table of a start with some Websites."""
    print_header("with many Websites", compared)
    some = max(given.size // 10, 1)
    print_rows(start_rows(some), [_numbers.start(cluster, side, some) for side in compared])


def memory(cluster: Cluster, compared: Sequence[Side], given: argparse.Namespace) -> None:
    """Print the table of memory with many Websites."""
    print_header("with many Websites", compared)
    print_rows(memory_rows(given.size), [_numbers.memory(cluster, side, given.size) for side in compared])


def faults(cluster: Cluster, compared: Sequence[Side], _: argparse.Namespace) -> None:
    """Print the table of faults."""
    print_header("fault", compared)
    for text, fault in _faults.FAULTS.items():
        print(f"| {text} | {' | '.join(_faults.seen(cluster, each, fault) for each in compared)} |", flush=True)


TABLES = {"changes": changes, "starts": starts, "memory": memory, "faults": faults}


def main() -> None:
    """Print the tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("go_program", type=Path, help="the operator on controller-runtime")
    parser.add_argument("kopf_python", type=Path, help="a Python with kopf and kubernetes")
    parser.add_argument("--size", type=int, default=10_000, help="the number of Websites where there are many")
    parser.add_argument("--changes", type=int, default=100, help="the number of changes in a round")
    parser.add_argument("--rounds", type=int, default=3, help="the number of rounds with few Websites")
    parser.add_argument("--only", choices=TABLES, help="print only this table")
    given = parser.parse_args()
    compared = sides(given.go_program.absolute(), given.kopf_python.absolute())
    print(f"load before: {load()}\n")
    with tempfile.TemporaryDirectory() as folder, open_cluster(Path(folder).resolve()) as cluster:
        for name, table in TABLES.items():
            if given.only in (None, name):
                table(cluster, compared, given)
                print()
    go = subprocess.run(["go", "env", "GOVERSION"], check=True, capture_output=True, text=True).stdout.strip()
    asking = (
        "import importlib.metadata as all; print(all.version('kopf'), 'with its client', all.version('kubernetes'))"
    )
    kopf = subprocess.run([given.kopf_python, "-c", asking], check=True, capture_output=True, text=True).stdout.strip()
    versions = [
        version("sigs.k8s.io/controller-runtime"),
        f"kopf {kopf}",
        f"an API server of {version('k8s.io/kubernetes')}",
    ]
    print(f"{measured_on(go.replace('go', 'Go '), *versions)}\n\nload after: {load()}")


if __name__ == "__main__":
    main()

"""`make mutants`: apply each change of the catalogue to a copy of the source, and see the tests kill it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant, mutated

ROOT = Path(__file__).parents[2]
_LIMIT = 300.0
"""Seconds for one mutant; one that hangs the tests is killed by that."""
_FIRST_FAILED = re.compile(r"^(?:FAILED|ERROR) tests/(?:.*/)?(\S+\.py)(?:::([^\n]*?))?(?: - .*)?$", re.MULTILINE)


class Run(NamedTuple):
    """How pytest ended over some tests.

    Attributes:
        status: its exit status; None: it had no end.
        failed: the first test that failed, as pytest names it.
    """

    status: int | None
    failed: str
    seconds: float


class Verdict(NamedTuple):
    """What became of a mutant. ``by``: the test that killed it; empty when it has survived."""

    mutant: Mutant
    by: str
    seconds: float


def run(tests: str, only: str, source: Path) -> Run:
    """Run these tests with this source, up to the first that fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not deep", f"tests/{tests}"]
    command += ["-k", only] if only else []
    began = time.monotonic()
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            # A mutant's bytecode would be taken for that of the next one, of the same size and second.
            env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
            timeout=_LIMIT,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Run(None, f"{tests} has no end", time.monotonic() - began)
    return Run(ended.returncode, first_failed(ended.stdout) or tests, time.monotonic() - began)


def first_failed(said: str) -> str:
    """The first test of pytest's summary that failed, without its folder; empty: none."""
    found = _FIRST_FAILED.search(said)
    return "" if found is None else "::".join(part for part in found.groups() if part)


def kill(mutant: Mutant, source: Path) -> Verdict:
    """Run the mutant's tests with it; it is in the copy only meanwhile."""
    file = source / "headway" / mutant.file
    before = file.read_text()
    file.write_text(mutated(mutant, before))
    try:
        ended = run(mutant.tests, mutant.only, source)
    finally:
        file.write_text(before)
    # 1 is "tests failed", 2 "interrupted" as by an import that fails; everything else says nothing about it.
    return Verdict(mutant, ended.failed if ended.status in (1, 2, None) else "", ended.seconds)


def table(verdicts: list[Verdict]) -> str:
    """The verdicts as a table of text, and the kill rate."""
    rows = [(each.mutant.name, each.by or "SURVIVED", f"{each.seconds:.1f}") for each in verdicts]
    rows = [("mutant", "killed by", "seconds"), *rows]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = [f"{name:<{first}}  {by:<{second}}  {seconds:>7}" for name, by, seconds in rows]
    killed = sum(1 for each in verdicts if each.by)
    rate = f"{killed} of {len(verdicts)} mutants killed: {killed / len(verdicts):.0%}"
    return "\n".join([*lines, "", rate])


def main(names: list[str]) -> int:
    """Run those whose names have one of these words in them, or all; exit status 1 when one survives."""
    chosen = [mutant for mutant in MUTANTS if not names or any(name in mutant.name for name in names)]
    if not chosen:
        print(f"no mutant's name has any of these words in it: {' '.join(names)}")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        shutil.copytree(ROOT / "engine" / "headway", source / "headway", ignore=shutil.ignore_patterns("__pycache__"))
        costs: dict[tuple[str, str], float] = {}
        for tests, only in sorted({(mutant.tests, mutant.only) for mutant in chosen}):
            without = run(tests, only, source)
            if without.status != 0:
                print(f"tests/{tests} fails without any mutant: {without.failed}")
                return 1
            costs[tests, only] = without.seconds
            print(f"{without.seconds:5.1f} s  tests/{tests}, which passes without a mutant", flush=True)
        verdicts = [_told(kill(mutant, source)) for mutant in in_order_of_cost(chosen, costs)]
    print(f"\n{table(verdicts)}")
    return 0 if all(each.by for each in verdicts) else 1


def in_order_of_cost(mutants: list[Mutant], costs: Mapping[tuple[str, str], float]) -> list[Mutant]:
    """Those first whose tests take least."""
    return sorted(mutants, key=lambda mutant: costs[mutant.tests, mutant.only])


def _told(verdict: Verdict) -> Verdict:
    became = f"killed by {verdict.by}" if verdict.by else "SURVIVED"
    print(f"{verdict.seconds:5.1f} s  {verdict.mutant.name}: {became}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

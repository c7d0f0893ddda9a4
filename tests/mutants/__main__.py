"""`make mutants`: apply each change of the catalogue to a copy of the source, and check that its tests fail."""

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
"""The seconds that tests may take with a mutant. A mutant with which they take longer counts as killed."""
_SEEDS = (1, 2, 3)
"""The seeds of Hypothesis, until one of them kills. No machine finds every mutant in the few examples of one."""
_FIRST_FAILED = re.compile(r"^(?:FAILED|ERROR) tests/(?:.*/)?(\S+\.py)(?:::([^\n]*?))?(?: - .*)?$", re.MULTILINE)


class Run(NamedTuple):
    """The result of a run of pytest.

    Attributes:
        status: the exit status; None if the run did not end in time.
        failed: the first test that failed, as pytest names it.
    """

    status: int | None
    failed: str
    seconds: float

    @property
    def is_failure(self) -> bool:
        """True if it is the tests that failed."""
        # 1 means that tests failed, and 2 that an import failed. Any other status proves nothing about the mutant.
        return self.status in (1, 2, None)


class Verdict(NamedTuple):
    """The result of a mutant. ``by`` is the test that killed it, or empty if it survived."""

    mutant: Mutant
    by: str
    seconds: float


def copied_source(folder: Path) -> Path:
    """Copy the source into a folder, and return what PYTHONPATH has to be for the copy to be imported."""
    source = folder / "source"
    shutil.copytree(ROOT / "engine" / "headway", source / "headway", ignore=shutil.ignore_patterns("__pycache__"))
    return source


def run(tests: str, only: str, source: Path, seed: int = _SEEDS[0]) -> Run:
    """Run these tests with this source until the first failure."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not deep or wide"]
    command += [f"tests/{tests}", f"--hypothesis-seed={seed}"]
    command += ["-k", only] if only else []
    began = time.monotonic()
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            # Bytecode must not be written: it would be reused for the next mutant, with the same size and timestamp.
            env={
                **os.environ,
                "PYTHONPATH": str(source),
                "PYTHONDONTWRITEBYTECODE": "1",
                "HYPOTHESIS_PROFILE": "seeded",
            },
            timeout=_LIMIT,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Run(None, f"{tests} has no end", time.monotonic() - began)
    if ended.returncode not in (0, 1, 2):
        print(f"pytest ended with status {ended.returncode}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}", flush=True)
    return Run(ended.returncode, first_failed(ended.stdout) or tests, time.monotonic() - began)


def first_failed(output: str) -> str:
    """Return the first failure in pytest's summary without its folder, or an empty string."""
    found = _FIRST_FAILED.search(output)
    return "" if found is None else "::".join(part for part in found.groups() if part)


def kill(mutant: Mutant, source: Path) -> Verdict:
    """Apply a mutant to the copy of the source, run its tests, and undo it."""
    file = source / "headway" / mutant.file
    before = file.read_text()
    file.write_text(mutated(mutant, before))
    began = time.monotonic()
    try:
        for seed in _SEEDS:
            ended = run(mutant.tests, mutant.only, source, seed)
            if ended.is_failure:
                break
    finally:
        file.write_text(before)
    return Verdict(mutant, ended.failed if ended.is_failure else "", time.monotonic() - began)


def table(verdicts: list[Verdict]) -> str:
    """Return the verdicts as a text table, with the kill rate."""
    rows = [(each.mutant.name, each.by or "SURVIVED", f"{each.seconds:.1f}") for each in verdicts]
    rows = [("mutant", "killed by", "seconds"), *rows]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = [f"{name:<{first}}  {by:<{second}}  {seconds:>7}" for name, by, seconds in rows]
    killed = sum(1 for each in verdicts if each.by)
    rate = f"{killed} of {len(verdicts)} mutants killed: {killed / len(verdicts):.0%}"
    return "\n".join([*lines, "", rate])


def main(names: list[str]) -> int:
    """Run the mutants with one of these words in their names or files, or all. Return 1 if a mutant survives."""
    chosen = [each for each in MUTANTS if not names or any(name in f"{each.name} {each.file}" for name in names)]
    if not chosen:
        print(f"no mutant has any of these words in its name or file: {' '.join(names)}")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        source = copied_source(Path(folder))
        costs: dict[tuple[str, str], float] = {}
        for tests, only in sorted({(mutant.tests, mutant.only) for mutant in chosen}):
            without = run(tests, only, source)
            if without.status != 0:
                print(f"tests/{tests} fails without any mutant: {without.failed}")
                return 1
            costs[tests, only] = without.seconds
            print(f"{without.seconds:5.1f} s  tests/{tests}, which passes without a mutant", flush=True)
        verdicts = [_printed(kill(mutant, source)) for mutant in in_order_of_cost(chosen, costs)]
    print(f"\n{table(verdicts)}")
    return 0 if all(each.by for each in verdicts) else 1


def in_order_of_cost(mutants: list[Mutant], costs: Mapping[tuple[str, str], float]) -> list[Mutant]:
    """Return the mutants sorted by the time that their tests take, the fastest first."""
    return sorted(mutants, key=lambda mutant: costs[mutant.tests, mutant.only])


def _printed(verdict: Verdict) -> Verdict:
    became = f"killed by {verdict.by}" if verdict.by else "SURVIVED"
    print(f"{verdict.seconds:5.1f} s  {verdict.mutant.name}: {became}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`make mutants`: apply each change of the catalogue to a copy of the source, and see the tests kill it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
_LIMIT = 300.0
"""Seconds for one mutant; one that hangs the tests is killed by that."""


def mutated(mutant: Mutant, source: str) -> str:
    """The source with the mutant in it. Raises ValueError when what it changes isn't there exactly once."""
    found = source.count(mutant.old)
    if found != 1:
        raise ValueError(f"{mutant.name}: {mutant.old!r} is {found} times in {mutant.file}, not once")
    return source.replace(mutant.old, mutant.new)


def run(tests: str, source: Path) -> int | None:
    """How pytest ends over these tests with this source; None: it doesn't."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not deep", f"tests/{tests}"]
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(source)},
            timeout=_LIMIT,
            capture_output=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return ended.returncode


def kill(mutant: Mutant, source: Path) -> bool:
    """Whether the tests notice the mutant, which is in the copy only meanwhile."""
    file = source / "headway" / mutant.file
    before = file.read_text()
    file.write_text(mutated(mutant, before))
    try:
        # 1 is "tests failed", 2 "interrupted" as by an import that fails; everything else says nothing about it.
        return run(mutant.tests, source) in (1, 2, None)
    finally:
        file.write_text(before)


def main(names: list[str]) -> int:
    """Run those whose names have one of these words in them, or all; exit status 1 when one survives."""
    chosen = [mutant for mutant in MUTANTS if not names or any(name in mutant.name for name in names)]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        shutil.copytree(ROOT / "engine" / "headway", source / "headway", ignore=shutil.ignore_patterns("__pycache__"))
        for tests in sorted({mutant.tests for mutant in chosen}):
            if run(tests, source) != 0:
                print(f"tests/{tests} fails without any mutant")
                return 1
        survivors = []
        for mutant in chosen:
            began = time.monotonic()
            killed = kill(mutant, source)
            print(
                f"{'killed' if killed else 'SURVIVED':<9} {time.monotonic() - began:5.1f} s  {mutant.name}", flush=True
            )
            if not killed:
                survivors.append(mutant)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A table of the machine of a whole run against each mutant of a run, by the seed of its examples.

python -m tests.mutants.seeds [--seeds 1,2,3] [WORD ...]

Each cell is one run of the machine at its default bounds, with other examples for each seed. The first row is the
source without a mutant, which must pass.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutant import Mutant, mutated
from tests.mutants.runs import MACHINE, RUN_MUTANTS

ROOT = Path(__file__).parents[2]
LIMIT = 600.0
"""The time, in seconds, after which a run that hangs counts as failed."""
_CLEAN = "no mutant"


def main(arguments: Sequence[str]) -> int:
    """Print the table. Return 0 if every mutant is killed by every seed, and 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.seeds")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args(arguments)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    chosen = [each for each in RUN_MUTANTS if not options.words or any(word in each.name for word in options.words)]
    width = max(len(each.name) for each in RUN_MUTANTS)
    print(f"{'mutant':<{width}}  " + "  ".join(f"seed {seed:<4}" for seed in seeds), flush=True)
    good = True
    for mutant in (None, *chosen):
        name = _CLEAN if mutant is None else mutant.name
        print(f"{name:<{width}}  ", end="", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            source = _copy(mutant, Path(folder))
            for seed in seeds:
                killed, seconds = _run(source, seed)
                good = good and killed == (mutant is not None)
                print(f"{'killed' if killed else 'passed'} {seconds:>3.0f}", end="  ", flush=True)
        print(flush=True)
    return 0 if good else 1


def _copy(mutant: Mutant | None, folder: Path) -> Path:
    """Copy the source with its bytecode, which stays valid for every file but the mutated one."""
    shutil.copytree(ROOT / "engine" / "headway", folder / "headway")
    if mutant is not None:
        file = folder / "headway" / mutant.file
        file.write_text(mutated(mutant, file.read_text()))
        # A file of the same size, written in the same second, would be taken for the one of the bytecode.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()
    return folder


def _run(source: Path, seed: int) -> tuple[bool, float]:
    """Run the machine. Return True if it failed, and its seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not deep"]
    began = time.monotonic()
    try:
        ended = subprocess.run(
            [*command, f"tests/{MACHINE}", f"--hypothesis-seed={seed}"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(source), "HYPOTHESIS_PROFILE": "seeded"},
            timeout=LIMIT,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True, time.monotonic() - began
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with status {ended.returncode}:\n{ended.stdout}\n{ended.stderr}")
    return ended.returncode == 1, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

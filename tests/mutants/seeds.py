"""A table of a machine against each mutant that it must kill: by how many seeds it does.

python -m tests.mutants.seeds [--machine run|world] [--seeds 20] [--first SEED] [--jobs 2] [WORD ...]

Each seed is one run of the machine at its default bounds, with other examples. No example that was chosen by hand
counts. The first row is the source without a mutant, which must pass by every seed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.mutants.mutant import Mutant, mutated
from tests.mutants.runs import MACHINE, RUN_MUTANTS
from tests.mutants.worlds import WORLD, WORLD_MUTANTS

ROOT = Path(__file__).parents[2]
LIMIT = 600.0
"""The time, in seconds, after which a run that hangs counts as failed."""
MACHINES = {
    "run": (f"{MACHINE}::TestRun", [each for each in RUN_MUTANTS if each.tests == MACHINE]),
    "world": (f"{WORLD}::TestWorld", [each for each in WORLD_MUTANTS if each.tests == WORLD]),
}
"""Each machine and the mutants that it must kill. The tests of the others are chosen by hand."""
MOST_MISSED = 1 / 20
"""The share of seeds by which a mutant may survive."""
_CLEAN = "no mutant"


def main(arguments: Sequence[str]) -> int:
    """Print the table. Return 0 if enough seeds kill each mutant and the source passes by all, and 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.seeds")
    parser.add_argument("--machine", choices=MACHINES, default="run")
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed; 0 for a fresh one")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args(arguments)
    first = options.first or random.SystemRandom().randrange(1, 10_000_000)
    seeds = range(first, first + options.seeds)
    machine, mutants = MACHINES[options.machine]
    chosen = [each for each in mutants if not options.words or any(word in each.name for word in options.words)]
    width = max(len(each.name) for each in mutants)
    print(f"{len(seeds)} seeds from {first} on", flush=True)
    good = True
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant in (None, *chosen):
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                source = _copy(mutant, Path(folder))
                killed = list(pool.map(partial(_run, machine, source), seeds))
            missed = [seed for seed, each in zip(seeds, killed, strict=True) if each == (mutant is None)]
            good = good and len(missed) <= (0 if mutant is None else len(seeds) * MOST_MISSED)
            name, not_by = _CLEAN if mutant is None else mutant.name, f", not by {missed}" if missed else ""
            seconds = (time.monotonic() - began) * options.jobs / len(seeds)
            print(f"{name:<{width}}  killed by {sum(killed)}{not_by}, {seconds:.0f} s each", flush=True)
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


def _run(machine: str, source: Path, seed: int) -> bool:
    """Run a machine. Return True if it failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not deep"]
    try:
        ended = subprocess.run(
            [*command, f"tests/{machine}", f"--hypothesis-seed={seed}"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(source), "HYPOTHESIS_PROFILE": "seeded"},
            timeout=LIMIT,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with status {ended.returncode}:\n{ended.stdout}\n{ended.stderr}")
    return ended.returncode == 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`make prove`, `make world` and `make runs`: run the state machines in rounds until the time is up.

python -m tests.stateful SECONDS [SEED [FILE]]

Each round has another seed. Without one, or with an empty one, the program takes a fresh seed each time and prints it.
A pass by a seed that its authors have chosen proves little.

The program counts the steps of the world, because a round without such steps proves nothing. Only some files have a
world. The rounds of the others are counted alone.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
_STEPS = re.compile(r"^(\d+) steps run without a violation", re.MULTILINE)
_WITH_WORLD = ("", "test_world.py")
"""The files of a round in which the world takes steps."""

_ROUND = 1800.0
"""The seconds after which a round counts as hanging."""


def run_round(seed: int, file: str) -> tuple[int, str]:
    """Run one file, or all files if the name is empty. Return pytest's exit status and output."""
    tests = [sys.executable, "-m", "pytest", "-m", "not deep", f"tests/stateful/{file}"]
    # A single machine cannot be divided between processes.
    tests += [] if file else ["-n", "2", "--dist", "worksteal"]
    # Hypothesis shrinks a failure for up to five minutes.
    bounds = ["--timeout", "1500", "-o", "stacks_after=0"]
    try:
        ended = subprocess.run(
            [*tests, *bounds, f"--hypothesis-seed={seed}"],
            cwd=ROOT,
            env={**os.environ, "HYPOTHESIS_PROFILE": os.environ.get("HYPOTHESIS_PROFILE", "round")},
            timeout=_ROUND,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return 1, f"no end after {_ROUND:.0f} s\n{(error.stdout or b'').decode()}"
    return ended.returncode, ended.stdout + ended.stderr


def main(arguments: list[str]) -> int:
    """Run at least one round, and more until the time is up. At the first failure, print its output and return 1."""
    seconds, given, file = [*arguments, "", ""][:3]
    seed = int(given) if given else random.SystemRandom().randrange(1, 10_000_000)
    print(f"rounds of {file or 'all state machines'} by seeds from {seed} on", flush=True)
    began, steps, rounds = time.monotonic(), 0, 0
    while not rounds or time.monotonic() - began < float(seconds):
        status, said = run_round(seed + rounds, file)
        if status:
            print(f"{said}\nround {rounds + 1} has failed: HYPOTHESIS_PROFILE=round, --hypothesis-seed={seed + rounds}")
            return 1
        counted = sum(map(int, _STEPS.findall(said)))
        if not counted and file in _WITH_WORLD:
            print(f"{said}\nno step of the world was counted")
            return 1
        rounds, steps = rounds + 1, steps + counted
        so_far = f", {steps} steps of the world so far" if file in _WITH_WORLD else ""
        print(f"round {rounds}: {time.monotonic() - began:.0f} s{so_far}", flush=True)
    done = f"{steps} steps run" if file in _WITH_WORLD else f"{file} run"
    print(f"{done} without a violation in {rounds} rounds, by seeds from {seed} on")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

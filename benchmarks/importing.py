"""`import`: how long ``import headway`` takes.

Measured: the wall time of the statement in a fresh interpreter, by that interpreter's own clock, its start left out.
Bytecode is written by a first import that isn't counted, and the files are in the page cache; site-packages and the
environment are those of the running interpreter.

Against: ``import trio``, measured the same way, the two in turn.

The size is how many imports one round is the median of. No message and no channel buffer play a part.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks._harness import Row, Scenario, interleaved

_PROGRAM = """
import time
begin = time.perf_counter()
import {module}
print(time.perf_counter() - begin)
"""


def measure(size: int, rounds: int) -> Row:
    """Import ``size`` times a round."""
    _imported("headway")
    _imported("trio")
    ours, against = interleaved(lambda: _median("headway", size), lambda: _median("trio", size), rounds)
    return Row("import", ours * 1e6, against * 1e6, "us", 3.0)


def _median(module: str, times: int) -> float:
    return statistics.median(_imported(module) for _ in range(times))


def _imported(module: str) -> float:
    """Seconds that a fresh interpreter takes for the import."""
    command = [sys.executable, "-c", _PROGRAM.format(module=module)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


SCENARIO = Scenario("import", 3.0, measure, size=1, rounds=15)

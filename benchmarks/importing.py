"""`import`: how long ``import headway`` takes.

Measured: the wall time of the statement in a fresh interpreter, by that interpreter's own clock, its start left out.
Bytecode is written by a first import that isn't counted, into a folder of the run's own and whatever the environment
says of bytecode, and the files are in the page cache; site-packages and the rest of the environment are those of the
running interpreter.

Against: ``import trio``, measured the same way, the two in turn.

The size is how many imports one round is the median of. No message and no channel buffer play a part.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks._harness import Row, Scenario, interleaved

_PROGRAM = """
import time
begin = time.perf_counter()
import {module}
print(time.perf_counter() - begin)
"""


def measure(size: int, rounds: int) -> Row:
    """Import ``size`` times a round."""
    with tempfile.TemporaryDirectory() as bytecode:
        for module in ("headway", "trio"):
            imported(module, bytecode)
        ours, against = interleaved(
            lambda: _median("headway", bytecode, size), lambda: _median("trio", bytecode, size), rounds
        )
    return Row("import", ours * 1e6, against * 1e6, "us", 3.0)


def _median(module: str, bytecode: str, times: int) -> float:
    return statistics.median(imported(module, bytecode) for _ in range(times))


def imported(module: str, bytecode: str) -> float:
    """Seconds that a fresh interpreter takes for the import."""
    command = [sys.executable, "-c", _PROGRAM.format(module=module)]
    # Without this an installed package has the bytecode that its installer wrote, and one in development has none.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


SCENARIO = Scenario("import", 3.0, measure, size=1, rounds=15, quick=1)

"""`import`: the time that ``import headway`` takes.

Measured: the wall time of the statement in a fresh interpreter, by the interpreter's own clock, without its startup. A
first import, which is not counted, writes the bytecode into a directory of this run, even if the environment disables
bytecode, and brings the files into the page cache. The imports use the site-packages and the environment of the running
interpreter.

Against: ``import trio``, measured in the same way, alternately.

The size is the number of imports per round, and a round's figure is their median. No message and no channel buffer is
involved.
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
    """Import ``size`` times per round."""
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
    """Return the seconds that the import takes in a fresh interpreter."""
    command = [sys.executable, "-c", _PROGRAM.format(module=module)]
    # Otherwise an installed package would use the bytecode from its installer, and a development checkout would have
    # none.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


SCENARIO = Scenario("import", 3.0, measure, size=1, rounds=15, quick=1)

"""`import`, `import_engine`: what a program imports; `command_…`: whole commands of the command line.

Measured by `import`: the processor time of the statement with which the README's program imports what it declares, in
a fresh interpreter, without its startup. ``import headway`` alone loads almost nothing, because each name is loaded at
its first use, so the statement names them. `import_engine` also imports `open_engine`, which loads everything that an
engine in memory needs.

Against: ``import trio``, measured in the same way, alternately.

Measured by `command_version` and `command_get`: the processor time of the process of ``headway --version``, and of
``headway get`` of one resource, from a server that runs beside it.

Against: the processes of ``python -c pass``, and of ``python -c "import trio"``.

Before anything is counted, each side runs once. That writes the bytecode into a directory of this run, even if the
environment disables bytecode, and brings the files into the page cache. All use the site-packages and the environment
of the running interpreter.

The size is the number of runs per round, and a round's figure is their median. No message and no channel buffer is
involved.
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks._harness import Row, Scenario, interleaved

_PROGRAM = """
import time
begin = time.process_time()
{statement}
print(time.process_time() - begin)
"""

_DECLARED = "from headway import App, Request, Runtime, field, mappers, message, watch"
_HEADWAY = ["-m", "headway.cli"]
_THING = "type: bench.v1.Thing\nname: one\ndata: {text: stored}\n"


def imports(name: str, bound: float, statement: str) -> Scenario:
    """Return the scenario of a statement, against ``import trio``."""

    def measure(size: int, rounds: int) -> Row:
        def median(each: str) -> float:
            return statistics.median(imported(each, bytecode) for _ in range(size))

        with tempfile.TemporaryDirectory() as bytecode:
            for each in (statement, "import trio"):
                imported(each, bytecode)
            ours, against = interleaved(lambda: median(statement), lambda: median("import trio"), rounds)
        return Row(name, ours * 1e6, against * 1e6, "us", bound)

    return Scenario(name, bound, measure, size=1, rounds=15, quick=1)


def commands(name: str, bound: float, arguments: list[str], against: str) -> Scenario:
    """Return the scenario of a command, against a program."""

    def measure(size: int, rounds: int) -> Row:
        def median(each: list[str]) -> float:
            return statistics.median(processor_time(each, bytecode) for _ in range(size))

        with tempfile.TemporaryDirectory() as bytecode, _serving() as address:
            ours, theirs = [*_HEADWAY, "--server", address, *arguments], ["-c", against]
            for each in (ours, theirs):
                processor_time(each, bytecode)
            measured = interleaved(lambda: median(ours), lambda: median(theirs), rounds)
        return Row(name, measured[0] * 1e6, measured[1] * 1e6, "us", bound)

    return Scenario(name, bound, measure, size=1, rounds=15, quick=1)


def imported(statement: str, bytecode: str) -> float:
    """Return the seconds that the statement takes in a fresh interpreter."""
    return float(_run(["-c", _PROGRAM.format(statement=statement)], bytecode))


def processor_time(arguments: list[str], bytecode: str) -> float:
    """Return the processor time in seconds of an interpreter with these arguments, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(arguments, bytecode)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _run(arguments: list[str], bytecode: str) -> str:
    # Otherwise an installed package would use the bytecode from its installer, and a development checkout would have
    # none.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@contextmanager
def _serving() -> Iterator[str]:
    """Run a server of the command line, and yield its address."""
    command = [sys.executable, *_HEADWAY, "serve", "benchmarks.processes._app:app", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.match(r"listening on (\S+)", server.stdout.readline())
            assert found is not None
            apply = [sys.executable, *_HEADWAY, "--server", found[1], "apply", "-f", "-"]
            subprocess.run(apply, input=_THING, check=True, stdout=subprocess.DEVNULL, text=True)
            yield found[1]
        finally:
            server.terminate()


ROWS = (
    imports("import", 2.0, _DECLARED),
    imports("import_engine", 2.8, f"{_DECLARED}, open_engine"),
    commands("command_version", 5.0, ["--version"], "pass"),
    commands("command_get", 2.5, ["get", "thing", "one"], "import trio"),
)

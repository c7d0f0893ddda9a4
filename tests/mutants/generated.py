"""`make mutants`: change the pure modules in every small way that their syntax trees allow, and run their tests.

Each mutant runs in a fork of a process that has already imported and collected the tests, with the changed function's
code put into the function that exists. So a mutant costs the tests that run until the first one fails, and no more.
"""

from __future__ import annotations

import argparse
import ast
import gc
import math
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple, NoReturn

import pytest

from tests.mutants.__main__ import copied_source, run
from tests.mutants.equivalent import EQUIVALENT, Equivalent
from tests.mutants.operators import Change, changes

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "engine" / "headway"

_QUEUE = (
    "queue/test_machine.py",
    "queue/test_priorities.py",
    "queue/test_reporting_back.py",
    "queue/test_backoff.py",
    "queue/test_find.py",
    "queue/test_min_interval.py",
    "queue/test_ranked.py",
    "stateful/test_queue.py",
)

MODULES = {
    "informers/_stream.py": ("informers/test_stream.py", "informers/test_stream_states.py"),
    "cache/_type_store.py": (
        "cache/test_type_store.py",
        "cache/test_type_store_snapshots.py",
        "cache/test_type_store_positions.py",
        "stateful/test_type_store.py",
    ),
    "cache/_index_table.py": (
        "cache/test_indexes.py",
        "cache/test_index_updates.py",
        "cache/test_index_costs.py",
        "cache/test_ready_indexes.py",
        "cache/test_reader.py",
        "cache/test_isolation.py",
        "controller/test_functions_refused.py",
    ),
    "cache/_indexes.py": (
        "cache/test_indexes.py",
        "cache/test_index_updates.py",
        "cache/test_index_costs.py",
        "cache/test_ready_indexes.py",
        "cache/test_reader.py",
        "cache/test_isolation.py",
        "controller/test_functions_refused.py",
    ),
    "mapper/_map_queue.py": ("mapper/test_map_queue.py",),
    "mapper/_items.py": ("mapper/test_map_queue.py",),
    "queue/_entries.py": _QUEUE,
    "queue/_machine.py": _QUEUE,
    "queue/_queries.py": _QUEUE,
    "queue/_ranked.py": ("queue/test_ranked.py", "stateful/test_ranked_queue.py"),
    "storage/_log.py": (
        "storage/test_log.py",
        "storage/test_log_cursors.py",
        "storage/test_cuts.py",
        "storage/test_conformance.py memory",
    ),
}
"""The modules without I/O whose rules the contract rests on, and the tests that are to notice every change of them.

They run in this order, so the quickest come first. A word after a file selects the tests with that word in their names.
"""

_LEAST_CPU, _LONGEST = 3.0, 600.0
"""A mutant is killed after so many seconds of processor time, or four times what its tests take without it, and a
mutant that waits forever after this many seconds."""

_MOST_MEMORY = 2 << 30
"""The address space of a mutant, in bytes. An endless loop may fill a list."""


class Mutant(NamedTuple):
    """A change of a module."""

    module: str
    change: Change
    tree: ast.Module

    def is_equivalent(self) -> bool:
        """Return True if it was argued that no test can notice the change."""
        return Equivalent(self.module, self.change.function, self.change.before, self.change.after) in EQUIVALENT

    def __str__(self) -> str:
        lines = [f"engine/headway/{self.module}:{self.change.line} in {self.change.function}"]
        lines += [f"  - {line}" for line in self.change.before.splitlines()]
        lines += [f"  + {line}" for line in self.change.after.splitlines()]
        return "\n".join(lines)


class Run(NamedTuple):
    """How some tests ended: the first that failed, or None, and the seconds of processor time."""

    failed: str | None
    cpu: float


def mutants(modules: list[str]) -> list[Mutant]:
    """Return every mutant of these modules."""
    trees = {module: ast.parse((PACKAGE / module).read_text()) for module in modules}
    return [Mutant(module, change, tree) for module, tree in trees.items() for change in changes(tree)]


class Forks:
    """A plugin that runs the collected tests once for each mutant, each time in a fork."""

    def __init__(self, chosen: list[Mutant], source: Path) -> None:
        self.chosen = chosen
        self.source = source
        self.survivors: list[Mutant] = []
        self.tested = 0
        self.error = ""
        self._items: dict[str, list[pytest.Item]] = {}
        self._functions: dict[str, list[FunctionType]] = {}
        # How often a test has killed a mutant of a function. It probably kills the next one as well.
        self._kills: Counter[tuple[str, str, str]] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Turn off Hypothesis's search for a smaller failing example, which takes longer than everything else."""
        # pytest warns of plugins that are imported before it begins.
        from hypothesis import Phase, settings

        settings.register_profile(
            "mutants", settings(), max_examples=20, phases=[Phase.explicit, Phase.generate], database=None
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests for each mutant."""
        modules = sorted({mutant.module for mutant in self.chosen})
        gc.unfreeze()
        functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
        for module in modules:
            self._items[module] = [item for tests in MODULES[module] for item in session.items if _is_of(item, tests)]
            self._functions[module] = [each for each in functions if each.__code__.co_filename == str(PACKAGE / module)]
        gc.freeze()
        for module in modules:
            self._run_module(module)
            if self.error:
                break
        return True

    def _run_module(self, module: str) -> None:
        began = time.monotonic()
        # Without a change, but with each function's code replaced in the same way.
        code = compile((PACKAGE / module).read_text(), str(PACKAGE / module), "exec")
        without = self._run(module, "", code, math.inf)
        if without.failed is not None:
            self.error = f"{without.failed} fails without a mutant"
            return
        limit = max(_LEAST_CPU, 4 * without.cpu)
        mine = [mutant for mutant in self.chosen if mutant.module == module]
        equivalent = [mutant for mutant in mine if mutant.is_equivalent()]
        left = [mutant for mutant in mine if not mutant.is_equivalent() and not self._is_killed(mutant, limit)]
        left = [mutant for mutant in left if not is_killed_alone(mutant, self.source)]
        for mutant in left:
            print(f"\nSURVIVED {mutant}\n")
        survivors = [*equivalent, *left]
        print(f"{rate(module, len(mine), survivors)}, {time.monotonic() - began:.0f} s", flush=True)
        self.survivors += survivors
        self.tested += len(mine)

    def _is_killed(self, mutant: Mutant, limit: float) -> bool:
        module, function = mutant.module, mutant.change.function
        with mutant.change.made():
            code = compile(mutant.tree, str(PACKAGE / module), "exec")
        failed = self._run(module, function, code, limit).failed
        if failed is not None:
            self._kills[module, function, failed] += 1
        return failed is not None

    def _run(self, module: str, function: str, code: CodeType, limit: float) -> Run:
        """Run a module's tests with this code, in a fork, up to the first that fails."""
        items = sorted(self._items[module], key=lambda item: -self._kills[module, function, item.nodeid])
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            _as_child(items, self._functions[module], dict(_codes(code)), limit, write)
        os.close(write)
        waiting = os.pidfd_open(child)
        try:
            if not select.select([waiting], [], [], _LONGEST if limit < math.inf else None)[0]:
                os.kill(child, signal.SIGKILL)
            running = os.read(read, 1 << 20).decode().splitlines()
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            _, status, usage = os.wait4(child, 0)
            os.close(waiting)
            os.close(read)
        if not running:
            raise RuntimeError(f"no test of {module} has begun: its code cannot be replaced")
        return Run(None if status == 0 else running[-1], usage.ru_utime + usage.ru_stime)


def _is_of(item: pytest.Item, tests: str) -> bool:
    file, _, word = tests.partition(" ")
    return item.path == ROOT / "tests" / file and word in item.name


def _as_child(
    items: list[pytest.Item],
    functions: list[FunctionType],
    codes: dict[tuple[str, int], CodeType],
    limit: float,
    write: int,
) -> NoReturn:
    status = 1
    try:
        if limit < math.inf:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit)))
            resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        for function in functions:
            code = codes.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            # A lambda that the tests' modules have made stays as it is if the change has removed it or its variables.
            if code is not None and code.co_freevars == function.__code__.co_freevars:
                function.__code__ = code
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        for item, following in zip(items, [*items[1:], None], strict=True):
            os.write(write, f"{item.nodeid}\n".encode())
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if item.session.testsfailed:
                break
        else:
            status = 0
    except BaseException:  # noqa: BLE001  # the process ends here, whatever was raised
        traceback.print_exc()
    finally:
        # Nothing of pytest's end may run twice.
        os._exit(status)


def _codes(code: CodeType) -> list[tuple[tuple[str, int], CodeType]]:
    """Return every function's code in this code, by its name and line."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [((each.co_qualname, each.co_firstlineno), each) for each in inner] + [
        found for each in inner for found in _codes(each)
    ]


def is_killed_alone(mutant: Mutant, source: Path) -> bool:
    """Run a module's tests with a mutant in a process of its own.

    In a fork, what the tests' modules made while they were imported, such as an index, was made without the mutant.
    """
    file = source / "headway" / mutant.module
    before = file.read_text()
    with mutant.change.made():
        file.write_text(ast.unparse(mutant.tree))
    try:
        return any(run(*tests.partition(" ")[::2], source).is_failure for tests in MODULES[mutant.module])
    finally:
        file.write_text(before)


def rate(module: str, tested: int, survivors: list[Mutant]) -> str:
    """Return how many mutants of a module were killed."""
    equivalent = sum(1 for each in survivors if each.is_equivalent())
    left = len(survivors) - equivalent
    killed = tested - len(survivors)
    share = killed / (tested - equivalent) if tested > equivalent else 1.0
    return f"{module}: {killed} of {tested} killed, {equivalent} equivalent, {left} survived: {share:.1%}"


def main(arguments: list[str]) -> int:
    """Run the mutants of the modules that have one of these words in them, or of all; exit status 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.generated", description=__doc__)
    parser.add_argument("words", nargs="*", help="words in the names of modules; none: all modules")
    parser.add_argument("--sample", type=int, help="only so many mutants, by chance")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    given = parser.parse_args(arguments)
    modules = [module for module in MODULES if not given.words or any(word in module for word in given.words)]
    chosen = mutants(modules)
    if given.sample is not None and given.sample < len(chosen):
        chosen = random.Random(given.seed).sample(chosen, given.sample)
    if not chosen:
        print(f"no module has any of these words in its name: {' '.join(given.words)}")
        return 2
    tests = sorted(
        {str(ROOT / "tests" / each.partition(" ")[0]) for mutant in chosen for each in MODULES[mutant.module]}
    )
    with tempfile.TemporaryDirectory() as folder:
        forks = Forks(chosen, copied_source(Path(folder)))
        options = ["-q", "-s", "--tb=no", "-p", "no:cacheprovider", "-o", "stacks_after=0", "-m", "not deep"]
        status = pytest.main([*options, f"--basetemp={folder}/tests", *tests], plugins=[forks])
    if forks.error or status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(forks.error or f"pytest has ended with {status!r}")
        return 1
    print(f"\n{rate('all', forks.tested, forks.survivors)}")
    return 0 if all(mutant.is_equivalent() for mutant in forks.survivors) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

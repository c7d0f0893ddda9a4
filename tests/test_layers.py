"""The structure of the package: the order of imports, the pure modules, and the length of files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import headway

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "engine" / "headway"
MOST_LINES = 500

FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_gen" not in path.relative_to(PACKAGE).parts)

PURE = [
    "_imported_later.py",
    "access/_counted.py",
    "access/_limiter.py",
    "access/_limits.py",
    "access/_policy.py",
    "access/_tokens.py",
    "base/_arguments.py",
    "base/_buckets.py",
    "base/_declarations.py",
    "base/_joined.py",
    "base/_text.py",
    "cache/_index_table.py",
    "cache/_indexes.py",
    "cache/_isolation.py",
    "cache/_projection.py",
    "cache/_reader.py",
    "cache/_reading.py",
    "informers/_stream.py",
    "cache/_type_store.py",
    "cache/_view.py",
    "controller/_write_limit.py",
    "documents/_nodes.py",
    "errors.py",
    "events/*.py",
    "graphs/_drawing.py",
    "graphs/_graph.py",
    "graphs/_layers.py",
    "graphs/_placed.py",
    "graphs/_svg.py",
    "http/_address.py",
    "http/_bounds.py",
    "http/_refusal.py",
    "http/_schemas.py",
    "journal/_entries.py",
    "journal/_journal.py",
    "journal/_writes.py",
    "kubernetes/_crd.py",
    "kubernetes/_crd_changes.py",
    "kubernetes/_json.py",
    "kubernetes/_json_kinds.py",
    "kubernetes/_schema.py",
    "mapper/*.py",
    "notify/_sources.py",
    "notify/_status.py",
    "observe/_states.py",
    "page/_overview.py",
    "page/_priming.py",
    "page/_ring.py",
    "page/_sessions.py",
    "peering/_failures.py",
    "peering/_token.py",
    "peering/_types.py",
    "peering/stream/*.py",
    "protobuf/*.py",
    "queue/_backoff.py",
    "queue/_entries.py",
    "queue/_machine.py",
    "queue/_values.py",
    "quotas/_limits.py",
    "quotas/_rule.py",
    "quotas/_type.py",
    "reconcile/_request.py",
    "resource/*.py",
    "rpc/_addresses.py",
    "rpc/_admission.py",
    "rpc/_limits.py",
    "rpc/_wire.py",
    "rpc/http2/_frames.py",
    "fights/_turns.py",
    "run/_own_writes.py",
    "run/_self_triggers.py",
    "run/_status.py",
    "service/_bounds.py",
    "steps/_record.py",
    "subscribing/_wire.py",
    "storage/_filter.py",
    "storage/_leases.py",
    "storage/_log.py",
    "storage/_metadata_index.py",
    "storage/_metadata_indexes.py",
    "storage/_operations.py",
    "storage/_resuming.py",
    "storage/_rules.py",
    "storage/_sorted_keys.py",
    "storage/_tables.py",
    "storage/_timeline.py",
    "storage/etcd/layout/*.py",
    "storage/postgres/_schema.py",
    "subscription/_items.py",
    "subscription/_topic_log.py",
    "testing/history/_facts.py",
    "testing/history/_history.py",
    "testing/history/_truth.py",
    "testing/history/_watches.py",
    "testing/kubernetes/_fields.py",
    "testing/kubernetes/_kinds.py",
    "testing/kubernetes/_refused.py",
    "testing/kubernetes/_values.py",
    "testing/simulation/_fault_base.py",
    "testing/simulation/_trace.py",
    "testing/simulation/faults.py",
    "testing/simulation/oracles/*.py",
    "testing/simulation/plans/_order.py",
    "testing/simulation/plans/_further_plans.py",
    "testing/simulation/plans/_shrink.py",
    "testing/simulation/stories/_causes.py",
    "testing/simulation/stories/_excerpt.py",
    "testing/simulation/stories/_page.py",
    "testing/simulation/stories/_report.py",
    "why/answers/*.py",
]

FRIENDS = {
    # Backups and checks work on the file of a SQLite store, whose details no other package needs.
    ("headway.storage.upkeep._maintain", "headway.storage.sqlite"),
    # The model of an API server fails as the client of a real one does.
    ("headway.testing.kubernetes._server", "headway.kubernetes"),
    # The simulation runs the adapter on that model, and reads objects and leases as the adapter does.
    ("headway.testing.simulation.world._cluster", "headway.kubernetes"),
    ("headway.testing.simulation.world._cluster_link", "headway.kubernetes"),
}
"""Modules that may import the private modules of another package."""

ACYCLIC = [
    "access",
    "base",
    "builtin",
    "cache",
    "cli",
    "client",
    "controller",
    "documents",
    "engine",
    "events",
    "http",
    "journal",
    "kubernetes",
    "manifest",
    "mapper",
    "notify",
    "observe",
    "page",
    "pauses",
    "peering",
    "protobuf",
    "queue",
    "reconcile",
    "rpc/client",
    "rpc/server",
    "run",
    "service",
    "sharding",
    "steps",
    "storage",
    "subscription",
    "testing",
]
"""The packages whose modules must not import each other in a circle. The other ones will follow."""


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imported(path: Path) -> Iterator[str]:
    """Return the modules that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def imported_modules(path: Path, known: set[str]) -> Iterator[str]:
    """Return the known modules that a file imports anywhere, including imports for type checkers only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                if submodule in known:
                    yield submodule
                elif node.module in known:
                    yield node.module


@cache
def roots(path: Path) -> set[str]:
    return {module.partition(".")[0] for module in imported(path)}


def test_imports_keep_to_the_order_of_the_rooms() -> None:
    """Every import-linter contract in pyproject.toml is kept."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_asyncio_stays_in_rpc() -> None:
    """No file outside of the rpc package and the generated code imports asyncio."""
    outside = [path for path in FILES if path.relative_to(PACKAGE).parts[0] != "rpc"]
    assert outside
    # Only a file that has the word is parsed.
    mentioning = [path for path in outside if "asyncio" in path.read_text()]
    assert mentioning
    assert [name(path) for path in mentioning if roots(path) & {"asyncio", "trio_asyncio"}] == []


@pytest.mark.parametrize("pattern", PURE)
def test_pure_modules_import_no_trio(pattern: str) -> None:
    """State machines and data types neither wait nor read a clock, so tests can drive them at full speed."""
    files = sorted(PACKAGE.glob(pattern))
    assert files, f"{pattern} matches no file: correct the pattern"
    assert [name(path) for path in files if roots(path) & {"trio", "asyncio", "time", "random", "threading"}] == []


@pytest.mark.parametrize("room", ACYCLIC)
def test_modules_of_a_room_import_each_other_in_no_circle(room: str) -> None:
    """Imports inside functions and for type checkers count, too, so that modules can be read one after the other."""
    paths = {module_name(path): path for path in sorted((PACKAGE / room).rglob("*.py"))}
    assert paths
    try:
        TopologicalSorter({each: set(imported_modules(path, {*paths})) for each, path in paths.items()}).prepare()
    except CycleError as error:
        circle = " imports ".join(reversed(error.args[1]))
        raise AssertionError(
            f"{circle}: move the shared code into a module below both, or pass it as an argument"
        ) from None


def test_private_modules_are_imported_within_their_package_alone() -> None:
    """Other packages use the names that a package's `__init__.py` exports. So its modules can change freely."""
    outside = [
        f"{module_name(path)} imports {module}"
        for path in FILES
        for module in imported(path)
        if (private := re.match(r"(headway(?:\.[a-z]\w*)+)\._", module)) is not None
        and not f"{module_name(path)}.".startswith(f"{private[1]}.")
        # A package chooses what to export of the packages in it.
        and not (path.name == "__init__.py" and private[1].startswith(f"{module_name(path)}."))
        and (module_name(path), private[1]) not in FRIENDS
    ]
    assert outside == []


def test_no_file_exceeds_its_line_limit() -> None:
    """A file above the limit has more than one job: split it by topic."""
    lines = {name(path): len(path.read_text().splitlines()) for path in FILES}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_every_public_name_has_a_docstring() -> None:
    """Each public name of `headway` has its own docstring, except messages, which the schema documents."""
    public = {each: getattr(headway, each) for each in dir(headway) if not each.startswith("_")}
    ours = {each: value for each, value in public.items() if getattr(value, "__module__", "").startswith("headway.")}
    assert len(ours) > 30
    silent = [
        each
        for each, value in ours.items()
        if not (value.__doc__ or "").strip() or value.__doc__.startswith(f"{each}(")
    ]
    assert [each for each in silent if not ours[each].__module__.startswith("headway._gen")] == []


def test_engine_imports_an_add_on_only_when_it_needs_it() -> None:
    names = "access http manifest notify observe page peering tracing why"
    add_ons = {f"headway.{each}" for each in names.split()}
    program = f"import sys, headway.engine; print(sorted({add_ons!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_import_of_a_name_loads_nothing_that_many_programs_never_use() -> None:
    """A program that declares loads no code for the network, clients, stores, manifests, commands, tests or metrics."""
    needless = {
        *("asyncio", "trio_asyncio", "grpclib.protocol", "grpclib.server", "grpclib.client", "h2", "hpack"),
        *("hyperframe", "multidict", "sqlite3", "yaml", "tree_sitter", "click", "structlog", "prometheus_client"),
        *("hypercorn", "hypothesis", "pytest", "multiprocessing", "concurrent.futures", "dateutil"),
        *("headway.client", "headway.api", "headway.informers", "headway.graphs", "headway.storage", "headway.rpc"),
        *("headway.protobuf._descriptors", "headway._gen.headway.observe.v1", "headway.subscription._items"),
    }
    found = loaded("from headway import App, Request, Runtime, field, mappers, message, watch")
    assert found & needless == set()
    assert len([each for each in found if each.partition(".")[0] == "headway"]) <= 140


def test_import_of_the_package_alone_loads_no_other_one() -> None:
    """The command line could not answer fast otherwise. Each name is imported at its first use."""
    found = loaded("import headway")
    assert {each for each in found if each.startswith("headway")} == {"headway", "headway._imported_later"}
    assert not {"trio", "betterproto2", "dataclasses"} & found


def test_names_that_are_imported_later_are_those_of_type_checkers() -> None:
    """`import *` and `dir` have the same ones, and each is found."""
    [checked] = [each for each in ast.parse((PACKAGE / "__init__.py").read_text()).body if isinstance(each, ast.If)]
    imports = [each for each in checked.body if isinstance(each, ast.ImportFrom)]
    names = {alias.asname: str(each.module).partition(".")[2] for each in imports for alias in each.names}
    later = {name: module for module, names in headway._LATER.items() for name in names.split()}
    assert names == later
    assert names.keys() <= set(dir(headway))
    star: dict[str, object] = {}
    exec("from headway import *", star)
    assert star.keys() - {"__builtins__"} == names.keys()


def loaded(program: str) -> set[str]:
    """Return the modules that a program loads."""
    code = f"import sys\n{program}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())

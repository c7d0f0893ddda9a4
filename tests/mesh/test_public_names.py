"""The mesh is a program of a user: it uses public names of Headway and of the catalog, and declared packages."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.catalog.test_public_names import problems

ROOT = Path(__file__).parents[2] / "examples/mesh"
# Not the generated messages of xDS, and the programs that make them.
MADE = [ROOT / "mesh/xds/generated", ROOT / "mesh/xds/schema"]
MODULES = sorted(each for each in ROOT.glob("mesh/**/*.py") if not any(map(each.is_relative_to, MADE)))
IMPORTED_AS = {"google-re2": "re2", "headway-catalog": "catalog"}


def imports(source: str) -> list[str]:
    """Return the modules and names that a source imports, with dots."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def private(source: str) -> list[str]:
    return [name for name in imports(source) if re.search(r"(^|\.)_(?!_)", name)]


@pytest.mark.parametrize("module", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_module_uses_public_names(module: Path) -> None:
    assert list(problems(module.read_text())) == []
    assert private(module.read_text()) == []


@pytest.mark.parametrize(
    "source", ["from catalog.ports import _LARGEST", "import catalog._x", "from catalog import _x"]
)
def test_private_name_of_the_catalog_would_be_found(source: str) -> None:
    assert len(private(source)) == 1


def test_other_packages_are_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.match(r"[A-Za-z0-9_-]+", each)[0] for each in declared]  # type: ignore[index]  # each begins with one
    allowed = {IMPORTED_AS.get(name, name) for name in names} | {"mesh", "trio"}
    used = {name.split(".")[0] for module in MODULES for name in imports(module.read_text())}
    assert used - allowed - sys.stdlib_module_names == set()
    assert set(IMPORTED_AS.values()) <= used

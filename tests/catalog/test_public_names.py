"""The catalog is a program of a user: it uses public names of Headway, and packages that its pyproject.toml names."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "examples/catalog"
MODULES = sorted(ROOT.glob("catalog/**/*.py"))
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The import names of distributions that have another name.
IMPORTED_AS = {"dnspython": "dns", "google-re2": "re2"}


def problems(source: str) -> Iterator[str]:
    """Yield each use of a name of Headway that is not public."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield f"line {node.lineno}: a relative import"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "headway":
            yield from (
                f"line {node.lineno}: {node.module}.{alias.name}"
                for alias in node.names
                if not is_public(f"{node.module}.{alias.name}")
            )
        elif isinstance(node, ast.Import):
            yield from (
                f"line {node.lineno}: {alias.name}"
                for alias in node.names
                if alias.name.split(".")[0] == "headway" and not is_public(alias.name)
            )
        elif isinstance(node, ast.Attribute) and re.match(r"_(?!_|replace\Z)", node.attr):
            # The method of a named tuple is public in spite of its name.
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "other")):
                yield f"line {node.lineno}: the private attribute {node.attr}"
        elif isinstance(node, ast.Attribute) and (path := dotted(node)).startswith("headway.") and not is_public(path):
            yield f"line {node.lineno}: {path}"


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""


def is_public(path: str) -> bool:
    """Return True for a name that an `__init__.py` of Headway, or a public module, offers."""
    parts = path.split(".")
    if any(part.startswith("_") for part in parts):
        return False
    found = importlib.import_module("headway")
    for number, part in enumerate(parts[1:], 1):
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(parts[: number + 1]))
            except ImportError:
                return False
        inner = getattr(found, part)
        # A module inside a package's own folder is private unless the package offers it.
        if number > 1 and hasattr(inner, "__path__") is False and getattr(inner, "__file__", None):
            return False
        found = inner
    return True


@pytest.mark.parametrize("module", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_module_uses_public_names_of_headway(module: Path) -> None:
    assert list(problems(module.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "from headway.resource._ids import ResourceId",
        "from headway._gen.headway.resource import v1",
        "from headway.resource import no_such_name",
        "from headway import no_such_name",
        "import headway._gen",
        "import headway\nheadway.resource._types",
        "import headway\nheadway.no_such_name",
        "from . import types",
        "resource._message",
    ],
)
def test_private_name_would_be_found(source: str) -> None:
    assert len(list(problems(source))) == 1


def test_other_packages_are_declared() -> None:
    """Trio comes with Headway."""
    wanted = list(DEPENDENCIES["dependencies"])
    for extra in DEPENDENCIES.get("optional-dependencies", {}).values():
        wanted += extra
    names = [re.match(r"[A-Za-z0-9_-]+", each)[0] for each in wanted]  # type: ignore[index]  # each begins with a name
    allowed = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names} | {"catalog", "trio"}
    used = set()
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Import):
                used |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                used.add((node.module or "").split(".")[0])
    assert used - allowed - sys.stdlib_module_names == set()

"""The pages of the API reference: one for each public module, with every public name of it once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ENGINE = Path(__file__).parents[1] / "engine"

# Parts that no program needs. They are for Headway itself, and may change in every version. The conformance checks are
# listed by `headway store conformance`.
INSIDE = (
    *("base", "builtin", "cli", "documents", "service", "testing/conformance"),
    # Rooms within a part: what programs need of them is on the page of the part.
    *("peering/links", "peering/stream", "rpc/client", "rpc/http2", "rpc/server", "storage/etcd/layout", "why/answers"),
    *(f"testing/simulation/{room}" for room in ("oracles", "plans", "stories", "world")),
)


class Module(NamedTuple):
    """A public module: its name, its docstring, and its public names that no earlier module has."""

    name: str
    docstring: str
    names: tuple[str, ...]

    @property
    def page(self) -> str:
        """The path of its page in the site."""
        return f"reference/{self.name}.md"

    def text(self) -> str:
        """Return the page in Markdown."""
        parts = [f"# {self.name}", self.docstring, *(f"::: {self.name}.{name}" for name in self.names)]
        return "\n\n".join(parts) + "\n"


def modules() -> list[Module]:
    """Return the public modules, `headway` first. A name is on the page of the first module that exports it."""
    found: list[Module] = []
    seen: set[tuple[str, str]] = set()
    files = [path for path in (ENGINE / "headway").rglob("*.py") if _is_public(path)]
    # First `headway`, then the modules that are namespaces, then the packages.
    for path in sorted(files, key=lambda each: (_is_package(each), each.parent != ENGINE / "headway", each)):
        name = _module_name(path)
        exports = {each: _origin(name, each) for each in _exports(name)}
        fresh = tuple(each for each, origin in exports.items() if origin not in seen)
        seen.update(exports.values())
        if fresh:
            found.append(Module(name, ast.get_docstring(_tree(name)) or "", fresh))
    return found


def _is_public(path: Path) -> bool:
    names = _module_name(path).split(".")[1:]
    inside = any("/".join(names).startswith(each) for each in INSIDE)
    return not inside and not any(each.startswith("_") for each in names)


def _is_package(path: Path) -> bool:
    return path.name == "__init__.py" and path.parent != ENGINE / "headway"


def _module_name(path: Path) -> str:
    parts = path.relative_to(ENGINE).with_suffix("").parts
    return ".".join(each for each in parts if each != "__init__")


@cache
def _tree(module: str) -> ast.Module:
    path = ENGINE.joinpath(*module.split("."))
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())


@cache
def _exports(module: str) -> dict[str, str]:
    """Return the public names of a module, each with the module that it comes from: another one, or this one."""
    found: dict[str, str] = {}
    for node in _statements(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            # `import X as X` is how a module exports a name.
            found.update({each.name: node.module for each in node.names if each.asname == each.name})
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = module
    # A module that is exported has a page of its own.
    return {
        name: source for name, source in found.items() if not (name.startswith("_") or _is_module(f"{source}.{name}"))
    }


def _is_module(name: str) -> bool:
    path = ENGINE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in tree.body:
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            # Names that are imported on first use are exported, too.
            yield from node.body


def _origin(module: str, name: str) -> tuple[str, str]:
    """Return the module that defines an exported name, with the name."""
    source = _exports(module).get(name, module)
    if source == module or not source.startswith("headway"):
        return source, name
    return _origin(source, name)

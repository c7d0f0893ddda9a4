"""The site of the documentation: its navigation, its reference, and the page of equivalents."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

import headway
from headway.cli import main
from headway.controller import GivenControllerOptions
from website import ranking, reference

ROOT = Path(__file__).parents[1]
EQUIVALENTS = ROOT / "docs" / "coming-from.md"


def pages_of(nav: Any) -> list[str]:
    """Return the pages in a navigation."""
    if isinstance(nav, str):
        return [nav]
    return [page for each in (nav.values() if isinstance(nav, dict) else nav) for page in pages_of(each)]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """Each page once. The home page is the README."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    pages = sorted(page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md"))

    assert sorted(pages_of(config["nav"])) == sorted(["index.md", *pages])


def test_the_reference_has_each_public_name_once() -> None:
    """All names of `headway` are on its page. An object that two modules export is on the page of the first."""
    modules = {each.name: each for each in reference.modules()}
    public = {
        name for name in dir(headway) if not name.startswith("_") and not isinstance(getattr(headway, name), ModuleType)
    }
    assert set(modules["headway"].names) == public
    assert "::: headway.open_engine\n" in modules["headway"].text()
    assert "owner" in modules["headway.mappers"].names
    assert "owner" not in modules["headway.mapper"].names
    assert "Machine" in modules["headway.testing.simulation"].names
    assert not any(name.split(".")[1:2] == ["cli"] or "._" in name for name in modules)


def test_search_finds_guides_before_internals() -> None:
    """A name of a package counts no more than a word of a guide, and a name of `headway` more than that."""
    guide, decision, example = map(
        ranking.boost, ("guides/why.md", "decisions/engine.md", "examples/fleet/children.py.md")
    )
    own, package = map(ranking.boost, ("reference/headway.md", "reference/headway.page.md"))
    assert guide > decision > example
    assert guide == package * ranking.TITLE < own * ranking.TITLE
    hooks = (ROOT / "website" / "hooks.py").read_text()
    assert "ranking.boost(page.file.src_uri)" in hooks


def test_every_name_of_the_reference_exists() -> None:
    """The reference reads the sources, and the names are those that a program can import."""
    for module in reference.modules():
        found = importlib.import_module(module.name)
        assert [name for name in module.names if not hasattr(found, name)] == []


def _texts() -> list[str]:
    """Return the code in the right column of the tables, and all code elsewhere on the page."""
    parts: list[str] = []
    for line in EQUIVALENTS.read_text().splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        parts += re.findall(r"`([^`]+)`", cells[2] if line.startswith("|") else line)
    return parts


def _resolved(path: str) -> object:
    found: Any = headway
    for number, name in enumerate(path.split(".")[1:], start=2):
        try:
            found = getattr(found, name)
        except AttributeError:
            found = importlib.import_module(".".join(path.split(".")[:number]))
    return found


RUNTIME = {"cache": headway.CacheReader, "client": headway.Client, "strong": headway.reconcile.StrongReads}
"""The attributes of a reconcile context that are made with it."""


def test_every_name_on_the_page_of_equivalents_exists() -> None:
    """These are names of the package, methods of a reconcile context or an app, arguments, and commands."""
    names = commands = options = 0
    for text in _texts():
        for path in re.findall(r"\bheadway(?:\.\w+)+", text):
            assert _resolved(path) is not None
            names += 1
        for owner, method in re.findall(r"\brt\.(\w+)(?:\.(\w+))?", text):
            found = RUNTIME[owner] if owner in RUNTIME else getattr(headway.Runtime, owner)
            assert not method or hasattr(found, method), text
        for method in re.findall(r"\bapp\.(\w+)\(?", text):
            assert hasattr(headway.App, method), text
        for option in re.findall(r"^(\w+)=", text):
            assert option in {*GivenControllerOptions.__annotations__, "manages", "priority", "when", "owner"}, text
            options += 1
        if command := re.match(r"headway ([a-z]+)(?: ([a-z]+)$)?", text):
            found_command: Any = main.get_command(None, command[1])  # type: ignore[arg-type]  # it needs no context
            assert found_command is not None, text
            assert not command[2] or command[2] in found_command.commands, text
            commands += 1
    assert min(names, commands, options) > 5

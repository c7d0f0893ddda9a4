"""Commands whose APP is a module that raises at its import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal

RAISED = 'import headway\n\n\ndef settings() -> str:\n    raise RuntimeError("no settings")\n\n\nsettings()\n'
UNDECLARED = 'import headway\n\napp = headway.App("staff")\napp.type("staff", "v1", "Team", int)\n'
FRAME = '  File "{}", line {}, in {}'


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that writes the module `failing_app`, which commands find in the working directory."""

    def written(text: str) -> Path:
        file = tmp_path / "failing_app.py"
        file.write_text(text)
        return file

    monkeypatch.setattr(sys, "path", [*sys.path])
    return written


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "failing_app:app", "--listen", "127.0.0.1:0"],
        ["work", "failing_app:app"],
        ["graph", "failing_app:app"],
        ["schema", "diff", "failing_app:app"],
        ["schema", "show", "--app", "failing_app:app"],
        ["store", "migrate", "failing_app:app", "--store", "sqlite:a.db"],
        ["store", "conformance", "failing_app:store"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
async def test_frames_of_the_program_and_one_sentence_are_printed(
    terminal: Terminal, failing: Callable[[str], Path], command: list[str]
) -> None:
    """Frames of Headway, Click and importlib are left out."""
    file = failing(RAISED)
    done = await terminal(*command)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        FRAME.format(file, 8, "<module>"),
        "    settings()",
        FRAME.format(file, 5, "settings"),
        '    raise RuntimeError("no settings")',
        "RuntimeError: no settings",
        "Error: importing failing_app failed with RuntimeError: see the lines above",
    ]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        (UNDECLARED, "line 4, in <module>", "DeclarationError"),
        ("import no_such_module\n", "line 1, in <module>", "ModuleNotFoundError"),
        ("app = (\n", "line 1", "SyntaxError"),
    ],
    ids=["declaration", "missing module", "syntax"],
)
async def test_every_error_of_a_module_shows_its_line(
    terminal: Terminal, failing: Callable[[str], Path], text: str, first: str, last: str
) -> None:
    file = failing(text)
    done = await terminal("graph", "failing_app:app")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert str(file) in lines[0]
    assert first in lines[0]
    assert lines[-1] == f"Error: importing failing_app failed with {last}: see the lines above"

"""The steps of the tutorial, run as its reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Started, address_of, starting

ROOT = Path(__file__).parent.parent
TUTORIAL = (ROOT / "docs/guides/tutorial.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
(MANIFESTS,) = re.findall(r"^```yaml\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
COMMANDS = [
    (command, shown)
    for block in re.findall(r"^```console\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]
SERVE = "headway serve directory:app --store sqlite:directory.db"


def expected(shown: str) -> str:
    """Return a pattern for the output that the tutorial shows. ``…`` is anything. Counts and times may differ."""
    pattern = ".*?".join(map(re.escape, shown.split("…")))
    return re.sub(r"[\d\\.]+(?=\\ (?:runs|steps|s)\b)", r"[\\d.]+", pattern)


def test_each_step_stands_on_the_steps_before_it() -> None:
    """The blocks up to each step are a program, whose last declaration is the controller."""
    names: dict[str, Any] = {}
    for number in range(1, len(PYTHON)):
        names = {"__name__": f"directory_{number}"}
        exec(compile("\n".join(PYTHON[:number]), "directory.py", "exec", dont_inherit=True), names)
    assert list(names["app"].controllers) == ["endpoints"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Started]:
    with starting(tmp_path) as begin:
        yield begin


@pytest.mark.wide
@pytest.mark.timeout(200)
def test_commands_of_the_tutorial_print_what_it_shows(tmp_path: Path, start: Started) -> None:
    """They run in their order, with the server of step 6 in the background."""
    (tmp_path / "directory.py").write_text("\n".join(PYTHON))
    (tmp_path / "web.yaml").write_text(MANIFESTS)
    # The programs of this environment.
    bin = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "engine")}
    environment.pop("PYTEST_CURRENT_TEST", None)
    ran = 0
    for command, shown in COMMANDS:
        if command == SERVE:
            server = start(*command.split()[1:], "--listen", "127.0.0.1:0")
            environment["HEADWAY_SERVER"] = address_of(server)
            assert re.fullmatch(r"listening on [\d.:]+\n", shown)
            ran += 1
            continue
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        assert re.fullmatch(expected(shown), done.stdout, re.DOTALL), f"{command}\n{done.stdout}"
        ran += 1
    assert ran == len(COMMANDS) == 11

"""`headway new`: the project that it writes runs, passes its proof, and does what its README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, address_of, starting
from tests.cli.terminal import Terminal

BIN = Path(sys.executable).parent


def run(folder: Path, *command: str, **environment: str) -> str:
    """Run a command in a folder as a user would, with this environment's programs. Return its output."""
    given = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "engine"), **environment}
    done = subprocess.run(
        command, cwd=folder, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=170,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def readme_commands(folder: Path) -> list[str]:
    """Return the commands of the project's README, in their order."""
    return re.findall(r"^    (.*)\n", (folder / "README.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Staff", "NAME 'Staff' must be snake_case, at least two characters"),
        ("a", "NAME 'a' must be snake_case"),
        ("import", "and no word of Python, such as 'staff'"),
        ("json", "NAME 'json' is the name of an installed module, which the project would hide; try 'my_json'"),
        ("event", "NAME 'event' is a group of types that Headway has reserved; try 'my_event'"),
        ("../staff", "NAME '../staff' must be snake_case"),
    ],
)
async def test_unusable_name_is_refused(terminal: Terminal, tmp_path: Path, name: str, message: str) -> None:
    done = await terminal("new", name)
    assert done.returncode == 2
    assert message in done.stderr
    assert not os.listdir(tmp_path)


async def test_nothing_is_written_over(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "staff").mkdir()
    (tmp_path / "staff/staff.py").write_text("mine")
    done = await terminal("new", "staff")
    assert (done.returncode, done.stderr) == (
        1,
        "Error: staff already exists here; choose another name, or remove it\n",
    )
    assert (os.listdir(tmp_path / "staff"), (tmp_path / "staff/staff.py").read_text()) == (["staff.py"], "mine")


@pytest.mark.wide
@pytest.mark.timeout(200)
async def test_commands_of_its_readme_work(terminal: Terminal, tmp_path: Path) -> None:
    """They run in their order, with the server in the background."""
    await terminal("new", "staff")
    folder, outputs = tmp_path / "staff", {}
    with starting(folder) as start:
        address = "127.0.0.1:1"
        for command in readme_commands(folder):
            if command.startswith("headway serve "):
                address = address_of(start(*command.split()[1:], "--listen", "127.0.0.1:0"))
            else:
                outputs[command] = run(folder, *command.split(), HEADWAY_SERVER=address)
    assert "1 passed" in outputs["python -m pytest"]
    assert "core-grace" in outputs["headway list account"]
    assert outputs["headway why team core"].startswith("staff.v1.Team core")

"""One fault of a store has one exit code, whichever command meets it. docs/guides/command-line.md has the table."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from headway.storage import backup_store
from tests.cli.terminal import Terminal
from tests.storage.sqlite_kit import filled

COMMANDS = {
    "serve": ("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0", "--store", "URL"),
    "check": ("store", "check", "URL"),
    "copy": ("store", "copy", "URL", "sqlite:new.db"),
    "migrate": ("store", "migrate", "tests.cli.versioned:app", "--store", "URL"),
    "show": ("schema", "show", "--store", "URL"),
    "diff": ("schema", "diff", "tests.cli.served:app", "--store", "URL"),
    "backup": ("backup", "URL", "new.backup"),
    "restore": ("restore", "whole.backup", "URL", "--replace"),
}

# For each fault of a store: its URL, the exit code, and the commands for which this is no fault, or which report it.
# None leaves out a command that would not end.
FAULTS: dict[str, tuple[str, int, dict[str, int | None]]] = {
    "a URL of no store": ("staff.db", 2, {}),
    "a URL without a path": ("sqlite:", 2, {}),
    "a URL with an invalid host": ("etcd://127.0.0.1:none/staff", 2, {}),
    "no store": ("sqlite:none.db", 2, {"serve": None, "restore": 0}),
    "a file of another program": ("sqlite:diary.db", 5, {}),
    "a damaged store": ("sqlite:torn.db", 5, {"check": 7, "restore": 0}),
    "a directory": ("sqlite:folder", 5, {}),
    "a backup": ("sqlite:whole.backup", 5, {"check": 0, "show": 0, "diff": 0, "backup": 0, "restore": 2}),
    "a path that cannot be looked at": (f"sqlite:{'x' * 300}", 5, {}),
    "no server of the store": ("etcd://127.0.0.1:1/staff", 5, {"backup": 2, "restore": 2}),
}

# The default run has each fault with two commands, and each command with two faults or more.
CASES = [
    pytest.param(fault, command, marks=[pytest.mark.wide] * ((first - second) % len(COMMANDS) not in (0, 1)))
    for (first, fault), (second, command) in itertools.product(enumerate(FAULTS), enumerate(COMMANDS))
    if FAULTS[fault][2].get(command, 0) is not None
]


async def test_unknown_command_has_a_suggestion(terminal: Terminal) -> None:
    """Or the names of all commands, if none is close. It is wrong usage."""
    for given, said in (("aply", "; did you mean 'apply'?"), ("xyz", "; known: apply, backup, ")):
        done = await terminal(given)
        assert (done.returncode, f"Error: command {given!r} not found{said}" in done.stderr) == (2, True)


@pytest.mark.parametrize(("fault", "command"), CASES)
async def test_fault_of_a_store_has_one_exit_code(terminal: Terminal, tmp_path: Path, fault: str, command: str) -> None:
    """A script can tell wrong usage from a store that may be usable later. No fault is a traceback."""
    await filled(tmp_path / "staff.db")
    await backup_store(f"sqlite:{tmp_path}/staff.db", tmp_path / "whole.backup")
    whole = (tmp_path / "staff.db").read_bytes()
    (tmp_path / "torn.db").write_bytes(whole[:4096] + b"\xaa" * 4096 * 4 + whole[4096 * 5 :])
    (tmp_path / "diary.db").write_text("Dear diary, " * 100)
    (tmp_path / "folder").mkdir()
    url, code, others = FAULTS[fault]
    expected = others.get(command, code)
    done = await terminal(*(url if word == "URL" else word for word in COMMANDS[command]))
    assert done.returncode == expected, done.stderr
    if expected in (2, 5):
        assert "Error: " in done.stderr

"""The commands of the guide's failover, as they stand in the guide, with a real primary and its replica."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.helpers.etcd_server import free_ports
from tests.helpers.postgres_server import PostgresServer, need_postgres
from tests.test_docs import ROOT, program_of

pytestmark = pytest.mark.postgres

SECTION = (ROOT / "docs/guides/postgres.md").read_text().partition("## Two engines, one leader, a failover\n")[2]
BLOCKS = re.findall(r"^```console\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
PORTS = ("5501", "5502", "7070", "7071")
SOON = 20.0
TEAM = {"type": "staff.v1.Team", "name": "core", "data": {"members": ["ada", "grace"]}}


def commands_of(block: str) -> list[tuple[str, str]]:
    """Return the commands of a block, and what each prints. A quoted text may have several lines."""
    found: list[tuple[str, str]] = []
    for each in re.findall(r"^\$ (.*\n(?:(?!\$ ).*\n)*)", block, re.MULTILINE):
        lines = each.splitlines(keepends=True)
        ends = next(at for at in range(1, len(lines) + 1) if is_whole("".join(lines[:at])))
        found.append(("".join(lines[:ends]).strip(), "".join(lines[ends:])))
    return found


def is_whole(command: str) -> bool:
    """Return True if every quotation in a command has its end."""
    try:
        return bool(shlex.split(command, comments=True))
    except ValueError:
        return False


def leases_in(table: str) -> list[tuple[str, str]]:
    """Return the name and the holder of each lease in a table: all else depends on the time."""
    return [(row[0], row[1]) for row in map(str.split, table.splitlines()[1:])]


def term_in(table: str) -> int:
    """Return the term of the only lease in a table."""
    _, row = table.splitlines()
    return int(row.split()[-1])


class Shell:
    """The shell of a reader, in a folder with the program of the quickstart.

    Args:
        folder: the folder, which the server's user may write.
        server: a server that is not there: how to run PostgreSQL's programs as a user other than root.
    """

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self._folder = folder
        self._log = folder / "log"
        self._ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        (folder / "bin").mkdir()
        for name in ("initdb", "pg_ctl", "pg_basebackup"):
            program = folder / "bin" / name
            program.write_text(f'#!/bin/sh\nexec {shlex.join(server.program(name))} "$@"\n')
            program.chmod(0o755)
        path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash"],
                cwd=folder,
                env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "engine")},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                bufsize=0,
            )

    def run(self, command: str) -> str:
        """Run a command, and return what it prints, without that of the commands in the background."""
        for usual, free in self._ports.items():
            command = command.replace(usual, free)
        output, code = self._folder / "output", self._folder / "code"
        code.unlink(missing_ok=True)
        printing = "" if command.endswith("&") else f" > {output}"
        assert self._process.stdin is not None
        self._process.stdin.write(f"{{ {command}\n}}{printing}\necho $? > {code}.new; mv {code}.new {code}\n".encode())
        ends = time.monotonic() + SOON
        while not code.exists():
            assert self._process.poll() is None, f"{command}: {self._log.read_text()}"
            assert time.monotonic() < ends, f"{command}: {self._log.read_text()}"
            time.sleep(0.02)
        assert int(code.read_text()) == 0, f"{command}: {self._log.read_text()}"
        return output.read_text() if printing else ""

    def run_all(self, block: str) -> str:
        """Run the commands of a block until each has printed what the guide shows. Return what the last one prints."""
        printed = ""
        for command, shown in commands_of(block):
            printed = self.run(command)
            ends = time.monotonic() + SOON
            while not self._is_shown(command, shown, printed):
                assert time.monotonic() < ends, f"{command}: {printed}\n{self._log.read_text()}"
                time.sleep(0.05)
                printed = printed if command.endswith("&") else self.run(command)
        return printed

    def _is_shown(self, command: str, shown: str, printed: str) -> bool:
        if not shown:
            return True
        if command.endswith("&"):
            for usual, free in self._ports.items():
                shown = shown.replace(usual, free)
            return shown in self._log.read_text()
        return leases_in(printed) == leases_in(shown)

    def close(self) -> None:
        """End all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        for data in ("one", "two"):
            if (self._folder / data / "postmaster.pid").exists():
                stop = [str(self._folder / "bin/pg_ctl"), "-D", data, "-m", "immediate", "stop"]
                subprocess.run(stop, cwd=self._folder, capture_output=True, timeout=SOON, check=True)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    server = PostgresServer(need_postgres(), tmp_path)
    # Its own folder, in which its user may write.
    folder = server.data.parent / "guide"
    folder.mkdir()
    owner = folder.parent.stat()
    os.chown(folder, owner.st_uid, owner.st_gid)
    (folder / "staff.py").write_text(program_of("docs/quickstart.md"))
    (folder / "core.yaml").write_text(yaml.safe_dump(TEAM))
    made = Shell(folder, server)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(120)
def test_guides_engines_survive_a_failover_and_the_loss_of_their_leader(shell: Shell) -> None:
    """Each command does what the guide shows, and nothing that was acknowledged is lost."""
    servers, engines, failover, takeover = BLOCKS
    shell.run_all(servers)
    first = term_in(shell.run_all(engines))
    assert "created" in shell.run("headway apply -f core.yaml")
    assert term_in(shell.run_all(failover)) == first
    assert '"grace"' in shell.run("headway get team core -o json")
    assert term_in(shell.run_all(takeover)) > first
    # By the new leader, on the server that was promoted.
    shell.run("sed -i s/grace/joan/ core.yaml && headway apply -f core.yaml")
    ends = time.monotonic() + SOON
    while '"joan"' not in (accounts := shell.run("headway list account -o json")) or '"grace"' in accounts:
        assert time.monotonic() < ends, accounts
        time.sleep(0.05)

"""A child that is forked while an engine is open keeps neither its store, nor its ports, nor its connections."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trio

import headway
from tests.helpers.staff import Staff

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")

SECONDS = 40
REFUSED = "was open when this process was forked, and cannot be used here"


class Forked:
    """A program that has forked a child, which waits to be killed.

    Attributes:
        addresses: the program's addresses: gRPC, a Unix socket, and HTTP.
        said: what the child has said about the store, and, if the program "ends", what the program has said.
    """

    def __init__(self, process: subprocess.Popen[str], lines: int) -> None:
        assert process.stdout is not None
        self.process = process
        said = [process.stdout.readline().strip() for _ in range(lines)]
        (own,) = (each for each in said if each.startswith("127.0.0.1:"))
        said.remove(own)
        self.said = said
        *self.addresses, child = own.split()
        self.child = int(child)


@contextmanager
def forked(path: Path, then: str) -> Iterator[Forked]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.helpers.forking_program", str(path), then]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            program = Forked(process, 3 if then == "ends" else 2)
            try:
                yield program
            finally:
                os.kill(program.child, signal.SIGKILL)
        finally:
            process.kill()


def sockets(pid: int) -> set[str]:
    """Return the addresses of the TCP and Unix sockets of a process, without sockets that have none."""
    known = {}
    for kind, inode, address in (("tcp", 9, 1), ("tcp6", 9, 1), ("unix", 6, 7)):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            if len(words) > max(inode, address):
                known[f"socket:[{words[inode]}]"] = words[address]
    found = (os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir())
    return {known[each] for each in found if each in known}


@pytest.mark.wide
def test_program_can_open_everything_again_while_its_child_runs(tmp_path: Path) -> None:
    """Its store, its ports and its Unix socket. The child has no socket of it, and may not use the store."""
    with forked(tmp_path / "a.db", "ends") as program:
        assert "reopened" in program.said
        assert any(REFUSED in each for each in program.said)
        assert len(sockets(program.process.pid)) >= 3
        assert sockets(program.child) == set()


@pytest.mark.wide
async def test_everything_is_free_when_the_program_is_killed_while_its_child_runs(tmp_path: Path) -> None:
    """Its peers see the end of their connections, and another process can take its place."""
    path = tmp_path / "a.db"
    with forked(path, "stays") as program:
        assert REFUSED in program.said[0]
        assert sockets(program.child) == set()
        grpc, unix, http = program.addresses
        connections = [await trio.open_tcp_stream("127.0.0.1", int(each.split(":")[1])) for each in (grpc, http)]
        program.process.kill()
        program.process.wait()
        with trio.fail_after(SECONDS):
            for each in connections:
                async with each:
                    with suppress(trio.BrokenResourceError):
                        while await each.receive_some():
                            pass
        staff = Staff()
        async with headway.open_engine(
            f"sqlite:{path}", staff.app, network=headway.Network([grpc, unix], http=http, insecure=True)
        ) as engine:
            assert (await engine.client.get(staff.team, "core")) is not None
            await engine.client.apply(staff.team.new("new"))
        os.kill(program.child, 0)

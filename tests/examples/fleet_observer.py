"""
The processes that really run, found without the engine and the fleet's locks: by /proc, and by answers on ports.

A process belongs to a fleet if its environment has the mark of the fleet's folder.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

MARK = "FLEET_TEST"
"""The environment variable of every process that names its folder."""


class Seen(NamedTuple):
    """A living process."""

    pid: int
    start_time: str
    uid: str
    """The uid of the Instance whose lock it has open."""


def living(folder: Path) -> list[Seen]:
    """Return the processes of a fleet. Zombies have no environment, so they do not count."""
    mark = f"{MARK}={folder}".encode()
    found = []
    for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
        with suppress(OSError):  # it has ended, or belongs to another user
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(Seen(pid, _start_time(pid), _uid(pid)))
    return found


def _start_time(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _uid(pid: int) -> str:
    files: set[str] = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed just now, as the connection of a finished answer is
            files.add(os.readlink(path))
    if not files:
        raise ProcessLookupError(pid)
    (lock,) = (file for file in files if file.endswith(".lock"))
    return Path(lock).stem


def kill(process: Seen) -> None:
    """Kill a process with SIGKILL, and wait until it has ended."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        with suppress(OSError):
            if _start_time(process.pid) == process.start_time:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                select.select([descriptor], [], [], 10)
    finally:
        os.close(descriptor)


@contextmanager
def all_killed(folder: Path) -> Iterator[None]:
    """Kill every process of the fleet at the end of the block. Its engine must end in the block."""
    try:
        yield
    finally:
        while left := living(folder):
            for process in left:
                kill(process)


def answering(address: str) -> int:
    """Return the pid that answers at a `host:port`."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        return int(connection.recv(100))

"""
What really runs, seen by somebody who knows neither the engine nor the fleet's locks: /proc, and who answers on a port.

A process of a fleet is one whose environment has the mark of the fleet's folder.
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
"""The environment variable of every process, that names its folder."""


class Seen(NamedTuple):
    """A living process."""

    pid: int
    start_time: str
    uid: str
    """Of the Instance whose lock it has open."""


def living(folder: Path) -> list[Seen]:
    """The processes of a fleet. A zombie has no environment, and is none."""
    mark = f"{MARK}={folder}".encode()
    found = []
    for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
        with suppress(OSError):  # gone meanwhile, or another user's
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(Seen(pid, _start_time(pid), _uid(pid)))
    return found


def _start_time(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _uid(pid: int) -> str:
    files = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    (lock,) = (file for file in files if file.endswith(".lock"))
    return Path(lock).stem


def kill(process: Seen) -> None:
    """`kill -9`, and wait until it has ended."""
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
    """Nothing of the fleet lives after this block. Its engine must have ended in it."""
    try:
        yield
    finally:
        while left := living(folder):
            for process in left:
                kill(process)


def answering(address: str) -> int:
    """The pid that answers at a `host:port`."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        return int(connection.recv(100))

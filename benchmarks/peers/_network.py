"""What calls over the network cost a server, Headway's beside a plain one on grpc-go: the rows, and their processes.

Both servers are processes on loopback TCP with the same resources, and the same client of Go calls them in turn. A
figure is the processor time of the server's process for each call, with the kernel's work for it, and the median of its
rounds. The client tells the time: from the end of its warm-up calls to the answer of its last one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

CALLS = 3_000
"""The unary calls of a measurement."""


class Server(NamedTuple):
    """A server that runs."""

    address: str
    pid: int


class Pair(NamedTuple):
    """Headway's server and that of grpc-go, with the same resources."""

    headway: Server
    grpc_go: Server


class Row(NamedTuple):
    """The processor time of each server for a call, in microseconds."""

    text: str
    headway: float
    grpc_go: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The calls of one measurement.

    Attributes:
        warm: The number of calls before the ones that are measured.
    """

    text: str
    work: str
    calls: int
    warm: int
    connections: int = 1
    in_flight: int = 1


def works(size: int, calls: int) -> list[Work]:
    """Return what is measured of servers with ``size`` resources."""
    busy, few, warm = "on 4 connections, 16 at once", max(calls // 300, 1), max(calls // 10, 1)
    return [
        Work(text="Read, one at a time", work="read", calls=calls, warm=warm),
        Work(text=f"Read {busy}", work="read", calls=calls, warm=warm, connections=4, in_flight=16),
        Work(text="Write with a version, one at a time", work="update", calls=calls, warm=warm),
        Work(text=f"Write with a version {busy}", work="update", calls=calls, warm=warm, connections=4, in_flight=16),
        Work(text=f"List of {size:,}", work="list", calls=few, warm=1),
        Work(text=f"snapshot of {size:,}", work="snapshot", calls=few, warm=1),
    ]


def large_works(size: int) -> list[Work]:
    """Return what is measured of servers with ``size`` resources that have just started, in this order."""
    return [
        Work(text=f"snapshot of {size:,}, the first after the start", work="snapshot", calls=1, warm=0),
        Work(text=f"snapshot of {size:,}, later", work="snapshot", calls=2, warm=0),
    ]


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    """Start a server and wait until it prints its address. It ends when its standard input does."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Server(process.stdout.readline().strip(), process.pid)
            process.stdin.close()
            process.wait(30)
        finally:
            process.kill()


@contextmanager
def open_pair(program: Path, size: int) -> Iterator[Pair]:
    """Start both servers with ``size`` resources."""
    with ExitStack() as stack:
        ours = [sys.executable, "-m", "benchmarks.peers._served", str(size)]
        headway = stack.enter_context(started(ours))
        yield Pair(headway, stack.enter_context(started([str(program), "serve", str(size)])))


def measured(program: Path, server: Server, size: int, work: Work) -> float:
    """Return the microseconds of a server's processor time for each call.

    Raises:
        RuntimeError: a call failed, or its answer was not the whole one. The message is the client's.
    """
    command = [str(program), "load", f"-address={server.address}", f"-pid={server.pid}", f"-size={size}"]
    command += [f"-work={work.work}", f"-calls={work.calls}", f"-warm={work.warm}"]
    command += [f"-connections={work.connections}", f"-in-flight={work.in_flight}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    if ran.returncode:
        raise RuntimeError(f"{work.text}: {ran.stderr.strip()}")
    return float(json.loads(ran.stdout)["server_us"])


def rows(program: Path, size: int, large: int, rounds: int, calls: int = CALLS) -> Iterator[Row]:
    """Measure all rows.

    Args:
        program: The built program of ``grpc_go``.
        size: The number of resources of the servers, but for the last rows.
        large: That of the servers of the last rows, which start anew for each round.
    """
    with open_pair(program, size) as pair:
        for work in works(size, calls):
            yield _row(work, [_both(program, pair, size, work) for _ in range(rounds)])
    found: list[list[tuple[float, float]]] = []
    for _ in range(rounds):
        with open_pair(program, large) as pair:
            found.append([_both(program, pair, large, work) for work in large_works(large)])
    for work, pairs in zip(large_works(large), zip(*found, strict=True), strict=True):
        yield _row(work, pairs)


def _both(program: Path, pair: Pair, size: int, work: Work) -> tuple[float, float]:
    return measured(program, pair.headway, size, work), measured(program, pair.grpc_go, size, work)


def _row(work: Work, pairs: list[tuple[float, float]] | tuple[tuple[float, float], ...]) -> Row:
    return Row(work.text, median(mine for mine, _ in pairs), median(other for _, other in pairs))

"""What a write to a real etcd costs the process of its client: the rows, and Headway's side as a program of its own.

The peer is a program with Go's own client, `etcd_go`, which asks of etcd what a store of Headway must ask for the same
guarantees: it compares and puts the same keys, with values of the same size, and one watch delivers every change. It
has no service: its values are made beforehand, and what the watch delivers is counted, not decoded. The two take turns
at one durable member, each time under a new prefix and in a new process.

``python -m benchmarks.peers._etcd URL WRITES WRITERS`` prints one JSON object, like the program of the peer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import trio

import headway
from benchmarks._etcd import etcd_member, new_url
from benchmarks._message import Note, built, note, texts
from headway.events import ignore
from headway.protobuf import encode

WRITERS = (1, 64)


class Row(NamedTuple):
    """The processor time of the client's process for a write, in microseconds."""

    text: str
    headway: float
    etcd_go: float


def rows(program: Path, writes: int, rounds: int) -> Iterator[Row]:
    """Measure all rows.

    Args:
        program: The built program of ``etcd_go``.
        writes: The number of writes with many writers. A single one makes a tenth of them.
    """
    with etcd_member() as endpoint:
        for writers in WRITERS:
            count = writes if writers > 1 else max(writes // 10, 1)
            pairs = [
                (_ours(endpoint, count, writers), _theirs(program, endpoint, count, writers)) for _ in range(rounds)
            ]
            yield Row(text_of(writers), median(mine for mine, _ in pairs), median(other for _, other in pairs))


def text_of(writers: int) -> str:
    """Return the first cell of a row."""
    return f"creation by {writers} writer{'s' * (writers > 1)}"


def _ours(endpoint: str, writes: int, writers: int) -> float:
    command = [sys.executable, "-m", "benchmarks.peers._etcd", new_url(endpoint), str(writes), str(writers)]
    return _measured(command)


def _theirs(program: Path, endpoint: str, writes: int, writers: int) -> float:
    app = headway.App("bench")
    stored = encode(built(app.type("bench", "v1", "Managed", Note), texts(0), encode(note(0))))
    prefix = f"/bench/{uuid.uuid4().hex}/"
    return _measured([str(program), endpoint, prefix, str(writes), str(writers), str(len(stored))])


def _measured(command: list[str]) -> float:
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return float(json.loads(ran.stdout)["cpu_us"])


async def created(url: str, writes: int, writers: int) -> dict[str, float]:
    """Create resources in an engine without controllers, and return the microseconds of each."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    new = [type.new(texts(at).name, note(at), metadata={"group": texts(at).group}) for at in range(writes)]
    async with headway.open_engine(url, app, report=ignore) as engine:

        async def write(writer: int) -> None:
            for each in new[writer::writers]:
                await engine.client.write(each)

        await engine.wait_idle()
        cpu, wall = time.process_time(), time.perf_counter()
        async with trio.open_nursery() as nursery:
            for writer in range(writers):
                nursery.start_soon(write, writer)
        each = 1e6 / writes
        return {"cpu_us": (time.process_time() - cpu) * each, "wall_us": (time.perf_counter() - wall) * each}


if __name__ == "__main__":
    print(json.dumps(trio.run(created, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))

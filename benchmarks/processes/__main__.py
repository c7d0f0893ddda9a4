"""``python -m benchmarks.processes [ROUNDS]``: reads and watch events a second of one process and of two, as a table.

The clients and etcd run on the same machine. On two cores they take what the servers leave, so the rates of two
processes are lower than on a machine with cores to spare. The processor time of the servers for each read and event is
what carries over.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import trio

import headway
from benchmarks.processes._app import THING, Thing, app
from tests.helpers.etcd_server import EtcdMember, find_etcd, free_ports

SECONDS = 4.0
ROUNDS = 3
READERS = 32
WATCHERS = 500
EVENTS = 600
WRITERS = 32
_TICKS = os.sysconf("SC_CLK_TCK")


class Row(NamedTuple):
    """One measurement: the rate a second, and microseconds of processor time for each read or event.

    Attributes:
        batch: the number of events that arrive at once.
    """

    rate: float
    server: float
    etcd: float
    client: float
    batch: float = 1.0


def cpu(*processes: int) -> float:
    """Return the processor time of processes in seconds."""
    used = 0.0
    for each in processes:
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) / _TICKS
    return used


@contextmanager
def serving(store: str, processes: int) -> Iterator[tuple[str, list[int]]]:
    """Run a server, and yield its address and the ids of the processes that serve."""
    command = [sys.executable, "-m", "headway.cli", "serve", "benchmarks.processes._app:app", "--store", store]
    command += ["--listen", "127.0.0.1:0", "--processes", str(processes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            found = re.match(r"listening on (\S+)", line)
            assert found is not None, line
            serve = [server.pid]
            if processes > 1:
                # The supervisor starts them from threads of its own.
                lists = Path(f"/proc/{server.pid}/task").glob("*/children")
                serve = [int(each) for found_in in lists for each in found_in.read_text().split()]
                assert len(serve) == processes, serve
            yield found[1], serve
        finally:
            server.terminate()


def load(*arguments: object) -> subprocess.Popen[str]:
    """Start the client."""
    command = [sys.executable, "-m", "benchmarks.processes._load", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def write(address: str, names: list[str]) -> None:
    """Create resources with these names, by several writers at once."""
    async with headway.connect(address, app) as client, trio.open_nursery() as nursery:

        async def some(part: list[str]) -> None:
            for each in part:
                await client.write(THING.new(each, Thing(text=each)))

        for number in range(WRITERS):
            nursery.start_soon(some, names[number::WRITERS])


def measured_reads(address: str, serve: list[int], etcd: int) -> Row:
    """Measure reads."""
    client = load("reads", address, READERS, 1.0, "one")
    client.communicate()
    before = cpu(*serve), cpu(etcd)
    client = load("reads", address, READERS, SECONDS, "one")
    out, _ = client.communicate()
    count, used = int(out.split()[0]), float(out.split()[1])
    after = cpu(*serve), cpu(etcd)
    each = 1e6 / count
    return Row(count / SECONDS, (after[0] - before[0]) * each, (after[1] - before[1]) * each, used * each)


def measured_events(address: str, serve: list[int], etcd: int, watchers: int, stored: int) -> Row:
    """Measure the events of watchers while resources are created."""
    client = load("watches", address, watchers, stored, EVENTS)
    assert client.stdout is not None
    assert client.stdout.readline() == "watching\n"
    before, began = (cpu(*serve), cpu(etcd)), time.monotonic()
    trio.run(write, address, [f"{stored}-{number}" for number in range(EVENTS)])
    out = client.stdout.readline()
    took = time.monotonic() - began
    client.wait()
    count, used, batch = int(out.split()[0]), float(out.split()[1]), float(out.split()[2])
    assert count == watchers * EVENTS, count
    each = 1e6 / count
    return Row(count / took, (cpu(*serve) - before[0]) * each, (cpu(etcd) - before[1]) * each, used * each, batch)


def main(rounds: int) -> None:
    """Measure, and print the table."""
    binary = find_etcd()
    if binary is None:
        sys.exit("no etcd: run `make etcd`")
    rows: dict[tuple[str, int], list[Row]] = {}
    with tempfile.TemporaryDirectory() as folder:
        port, peer_port = free_ports(2)
        member = EtcdMember(binary, "only", Path(folder), port=port, peer_port=peer_port)
        member.start()
        member.wait_healthy()
        try:
            for number in range(rounds):
                for processes in (1, 2) if number % 2 == 0 else (2, 1):
                    store = f"etcd://{member.endpoint}/{number}-{processes}"
                    with serving(store, processes) as (address, serve):
                        trio.run(write, address, ["one"])
                        row = measured_reads(address, serve, member.process)
                        rows.setdefault((f"reads, {READERS} clients", processes), []).append(row)
                        print(processes, "processes", *(f"{each:.1f}" for each in row), file=sys.stderr)
                        for stored, watchers in enumerate((WATCHERS, 1)):
                            what = f"events, {watchers} watcher{'s' * (watchers > 1)}"
                            row = measured_events(address, serve, member.process, watchers, 1 + stored * EVENTS)
                            rows.setdefault((what, processes), []).append(row)
                            print(processes, what, *(f"{each:.1f}" for each in row), file=sys.stderr)
        finally:
            member.kill()
    print(f"{'':22} processes   a second   µs of servers   µs of etcd   µs of clients, each   events at once")
    for (what, processes), found in sorted(rows.items()):
        rate, server, etcd, client, batch = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{what:22} {processes:9} {rate:10,.0f} {server:15.1f} {etcd:12.1f} {client:15.1f} {batch:22.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)

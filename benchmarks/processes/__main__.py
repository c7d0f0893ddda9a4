"""``python -m benchmarks.processes [ROUNDS]``: what one process and two can serve in a second, as a table.

The clients and etcd run on the same machine, and take what the servers leave, so the rates that are reached here say
little. The table has the rates at which the busiest of the servers fills a core: what clients and etcd cost does not
count, and each process is taken to have a core of its own. Below them, it has the processor time of all servers.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import trio

import headway
from benchmarks._harness import measured_on, version
from benchmarks.processes._app import THING, Thing, app
from tests.helpers.etcd_server import EtcdMember, find_etcd, free_ports

SECONDS = 4.0
ROUNDS = 6
READERS = 32
WATCHERS = 500
EVENTS = 600
WRITERS = 32
_TICKS = os.sysconf("SC_CLK_TCK")


class Row(NamedTuple):
    """One measurement: microseconds of processor time for each read, event or write.

    Attributes:
        servers: the time of all processes that serve.
        busiest: the time of that which had most to do.
    """

    servers: float
    busiest: float

    @property
    def rate(self) -> float:
        """The number a second that fills a core of the busiest process."""
        return 1e6 / self.busiest


READS = f"reads, {READERS} clients"
FANOUT = f"events, {WATCHERS} watchers of all that {WRITERS} writers create"
WRITES = "writes, 1 watcher"


class Clock:
    """The processor time of some processes since it was made."""

    def __init__(self, processes: list[int]) -> None:
        self._before = {each: cpu(each) for each in processes}

    def end(self, count: int) -> Row:
        """Return what each of ``count`` units took."""
        used = [(cpu(each) - before) * 1e6 / count for each, before in self._before.items()]
        return Row(sum(used), max(used))


def cpu(process: int) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


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


def measured_reads(address: str, serve: list[int]) -> Row:
    """Measure reads."""
    client = load("reads", address, READERS, 1.0, "one")
    client.communicate()
    clock = Clock(serve)
    client = load("reads", address, READERS, SECONDS, "one")
    out, _ = client.communicate()
    return clock.end(int(out.split()[0]))


def measured_events(address: str, serve: list[int], watchers: int, stored: int) -> Row:
    """Measure the events of watchers while resources are created."""
    client = load("watches", address, watchers, stored, EVENTS)
    assert client.stdout is not None
    assert client.stdout.readline() == "watching\n"
    clock = Clock(serve)
    trio.run(write, address, [f"{stored}-{number}" for number in range(EVENTS)])
    count = int(client.stdout.readline().split()[0])
    client.wait()
    assert count == watchers * EVENTS, count
    return clock.end(count)


def main(rounds: int) -> None:
    """Measure, and print the table."""
    binary = find_etcd()
    if binary is None:
        sys.exit("no etcd: run `make etcd`")
    rows: dict[str, dict[int, list[Row]]] = {each: {1: [], 2: []} for each in (READS, FANOUT, WRITES)}
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
                        rows[READS][processes].append(measured_reads(address, serve))
                        rows[FANOUT][processes].append(measured_events(address, serve, WATCHERS, 1))
                        rows[WRITES][processes].append(measured_events(address, serve, 1, 1 + EVENTS))
        finally:
            member.kill()
    print("| a second | 1 process | 2 processes |\n|---|---|---|")
    for text, found in rows.items():
        one, two = (statistics.median(row.rate for row in found[processes]) for processes in (1, 2))
        print(f"| {text} | {one:,.0f} | {two:,.0f} |")
    print("\nprocessor time of all servers for each:")
    for text, found in rows.items():
        one, two = (statistics.median(row.servers for row in found[processes]) for processes in (1, 2))
        print(f"{text}: {one:,.1f} µs, {two:,.1f} µs")
    print(f"\nMedians of {rounds} rounds. {measured_on(version('go.etcd.io/etcd/server/v3'))}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)

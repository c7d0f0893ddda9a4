"""``python -m benchmarks.scale [units|check]``: the unit costs of docs/guides/how-fast.md, and its check.

`units` measures each cost of an engine on a real etcd with one durable member: the processor time of a commit, of a
reconcile with its status, of an event to a watcher over loopback TCP, of selecting the watchers with a scope, and of
following another engine's commits; and the resident memory of a resource and of a watcher.
Below the units are the figures of the guide's example.
`check` measures the units, predicts a larger case from them, measures that case, and prints both.

The engine, its watchers and etcd are processes of their own. Times are those of their processors, by
``/proc/PID/stat``; each is measured over some hundred commits.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks._etcd import etcd_member, new_url
from benchmarks._harness import load, measured_on, version
from benchmarks._scale_process import GROUPS

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")
_PATIENCE = 300.0


class Units(NamedTuple):
    """The unit costs: seconds of processor time, and bytes. `MEANINGS` says what each is.

    Attributes:
        cached: a resource in the mirror and in the cache of a controller. It has no row in the guide.
    """

    commit: float
    etcd: float
    follow: float
    reconcile: float
    event: float
    select: float
    progress: float
    resource: float
    cached: float
    watcher: float
    wire: float
    progress_wire: float


MEANINGS = {
    "commit": "a write by the engine's client, alone in its transaction",
    "etcd": "the same write in etcd",
    "follow": "a commit of another engine",
    "reconcile": "a change that is reconciled, with a status",
    "event": "an event sent to one watcher",
    "select": "a commit outside a watcher's part",
    "progress": "a second of one watcher",
    "resource": "a resource with 120 bytes of payload",
    "watcher": "a watcher, and its snapshot of 200 resources",
    "wire": "an event on the network",
    "progress_wire": "a second of one watcher on the network",
}
"""The rows of the guide's table of units."""

_BYTES = ("resource", "cached", "watcher", "wire", "progress_wire")


class Process:
    """A process that prints a first line, and then answers lines."""

    def __init__(self, *arguments: str, module: str = "benchmarks._scale_process") -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        self.first = self._answer()

    def ask(self, line: str) -> str:
        """Send a line and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the measurement has ended with status {self._process.wait(_PATIENCE)}")
        return line.strip()

    def cpu(self) -> float:
        """Return the seconds of processor time that it has used."""
        return cpu_of(self.pid)

    def rss(self) -> float:
        """Return its resident memory in bytes."""
        return float(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait(_PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def cpu_of(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(used[11]) + int(used[12])) / _TICK


@contextmanager
def process(*arguments: str, module: str = "benchmarks._scale_process") -> Iterator[Process]:
    """Run a process for the length of the block."""
    running = Process(*arguments, module=module)
    try:
        yield running
    finally:
        running.end()


class Case(NamedTuple):
    """What one engine costs: seconds of processor time for each commit, bytes, events received, seconds."""

    commit: float
    etcd: float
    follow: float
    store: float
    watchers: float
    events: int
    wire: int
    seconds: float


def measured(
    etcd: tuple[str, int],
    *,
    resources: int,
    commits: int,
    rate: float = 0.0,
    watchers: int = 0,
    scoped: bool = False,
    controller: bool = False,
    follower: bool = False,
) -> Case:
    """Run one engine, with a second one that only follows if `follower` is true."""
    endpoint, pid = etcd
    url = new_url(endpoint)
    with process("engine", url, str(int(controller))) as engine:
        empty = engine.rss()
        engine.ask(f"fill {resources}")
        store = engine.rss() - empty
        if follower:
            with process("engine", url, "0") as other:
                return _run(engine, other, pid, commits, rate, store)
        if watchers:
            before = engine.rss()
            with process("watch", engine.first, str(watchers), str(int(scoped))) as clients:
                held = engine.rss() - before
                return _run(engine, None, pid, commits, rate, store, clients, held, watchers, scoped=scoped)
        return _run(engine, None, pid, commits, rate, store)


def _run(
    engine: Process,
    other: Process | None,
    etcd: int,
    commits: int,
    rate: float,
    store: float,
    clients: Process | None = None,
    held: float = 0.0,
    watchers: int = 0,
    *,
    scoped: bool = False,
) -> Case:
    cpu, etcd_cpu, other_cpu, begin = engine.cpu(), cpu_of(etcd), other.cpu() if other else 0.0, time.perf_counter()
    engine.ask(f"{'hot' if clients and not scoped else 'write'} {commits} {rate}")
    events, wire = 0, 0
    if clients is not None:
        wanted = commits * (watchers // GROUPS if scoped else watchers)
        deadline = time.monotonic() + _PATIENCE
        while events < wanted:
            events, wire = map(int, clients.ask("count").split())
            if time.monotonic() > deadline:
                raise RuntimeError(f"{events} of {wanted} events have arrived")
            time.sleep(0.05)
    seconds = time.perf_counter() - begin
    return Case(
        (engine.cpu() - cpu) / commits,
        (cpu_of(etcd) - etcd_cpu) / commits,
        (other.cpu() - other_cpu) / commits if other else 0.0,
        store,
        held,
        events,
        wire,
        seconds,
    )


def units(etcd: tuple[str, int], resources: int, watchers: int, commits: int) -> Units:
    """Measure each unit."""

    def of_watchers(*, scoped: bool, commits: int, rate: float = 0.0) -> Case:
        return measured(etcd, resources=resources, commits=commits, rate=rate, watchers=watchers, scoped=scoped)

    alone = measured(etcd, resources=resources, commits=commits, follower=True)
    working = measured(etcd, resources=resources, commits=commits, controller=True)
    whole, fast = of_watchers(scoped=False, commits=commits), of_watchers(scoped=True, commits=commits)
    slow = of_watchers(scoped=True, commits=20, rate=2.0)
    event, wire = (whole.commit - alone.commit) / watchers, whole.wire / whole.events
    # A commit costs a watcher with a scope the same in both, and the seconds between commits cost it the difference.
    of_fast, of_slow = ((each.commit - alone.commit) / watchers for each in (fast, slow))
    between_fast, between_slow = fast.seconds / commits, slow.seconds / 20
    progress = (of_slow - of_fast) / (between_slow - between_fast)
    return Units(
        commit=alone.commit,
        etcd=alone.etcd,
        follow=alone.follow,
        reconcile=working.commit - alone.commit,
        event=event,
        select=of_fast - event / GROUPS - progress * between_fast,
        progress=progress,
        resource=alone.store / resources,
        cached=working.store / resources,
        watcher=fast.watchers / watchers,
        wire=wire,
        progress_wire=(slow.wire - slow.events * wire) / (watchers * slow.seconds),
    )


def main() -> None:
    """Print the units, and with `check` the prediction and the measurement of the larger case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("units", "check"))
    parser.add_argument("--resources", type=int, default=20_000, help="resources where the units are measured")
    parser.add_argument("--watchers", type=int, default=200, help="watchers where the units are measured")
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--rate", type=float, default=40.0, help="commits a second in the larger case")
    given = parser.parse_args()
    print(f"load before: {load()}")
    with etcd_member() as endpoint:
        etcd = endpoint, etcd_pid(endpoint)
        found = units(etcd, given.resources, given.watchers, given.commits)
        print("| unit | what it is | measured |\n|---|---|---|")
        for name, meaning in MEANINGS.items():
            value = found._asdict()[name]
            amount, unit = (value, "B") if name in _BYTES else (value * 1e6, "µs")
            print(f"| `{name}` | {meaning} | {amount:,.{0 if amount >= 100 else 1}f} {unit} |", flush=True)
        sizes = f"{given.resources:,} resources, {given.watchers:,} watchers"
        print(f"\n{measured_on(version('go.etcd.io/etcd/server/v3'), sizes)}\n\n{example(found)}\n")
        if given.what == "check":
            check(etcd, found, 5 * given.resources, 5 * given.watchers, given.commits, given.rate)
    print(f"load after: {load()}")


def example(unit: Units) -> str:
    """Return what an engine of the guide's example needs, by the guide's formulas.

    Ten engines share 1,000,000 resources that change once an hour, each with a status, and 10,000 watchers of a
    hundredth each.
    """
    resources, watchers, commits, share, engines = 1_000_000, 1_000, 2 * 1_000_000 / 3600, 0.01, 10
    select = watchers * unit.select
    of_commit = unit.commit / engines + unit.follow * (1 - 1 / engines) + unit.reconcile / 2 / engines
    of_commit += select + watchers * share * unit.event
    progress = watchers * unit.progress
    memory = resources * unit.resource + watchers * unit.watcher + 60e6
    network = watchers * (commits * share * unit.wire + unit.progress_wire)
    return (
        f"The example: {commits * of_commit + progress:.1f} s of processor time a second, {commits * select:.1f} s of "
        f"them for selection, {network / 1e6:.1f} MB of network, {memory / 1e9:.1f} GB of memory; an engine is full at "
        f"{(1 - progress) / of_commit:.0f} commits a second."
    )


def check(etcd: tuple[str, int], unit: Units, resources: int, watchers: int, commits: int, rate: float) -> None:
    """Predict a case from the units, measure it, and print both."""
    case = measured(etcd, resources=resources, commits=commits, rate=rate, watchers=watchers, scoped=True)
    each = commits / case.seconds
    of_commit = unit.commit + watchers * (unit.select + unit.event / GROUPS)
    rows = {
        "processor of the engine, a second": (
            each * of_commit + watchers * unit.progress,
            each * case.commit,
            1e3,
            "ms",
        ),
        "memory of the resources": (resources * unit.resource, case.store, 1e-6, "MB"),
        "memory of the watchers": (watchers * unit.watcher, case.watchers, 1e-6, "MB"),
        "network, a second": (
            watchers * (each * unit.wire / GROUPS + unit.progress_wire),
            case.wire / case.seconds,
            1e-3,
            "kB",
        ),
    }
    print(f"{resources:,} resources, {watchers:,} watchers of a hundredth each, {each:.0f} commits a second")
    for name, (predicted, found, scale, text) in rows.items():
        print(f"{name:<34} predicted {predicted * scale:>9,.1f} {text}  measured {found * scale:>9,.1f} {text}")


def etcd_pid(endpoint: str) -> int:
    """Return the process of the member with this endpoint."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if f"--listen-client-urls=http://{endpoint}".encode() in command:
                return int(folder.name)
    raise RuntimeError(f"no process listens at {endpoint}")


if __name__ == "__main__":
    main()

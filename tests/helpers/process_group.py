"""Real processes of `headway serve --processes`, which a test kills, asks and ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import trio

from tests.helpers.etcd_server import EtcdServer
from tests.http.kit import NO_CERTIFICATES

SECONDS = 40
NAMES = ["web-1", "web-2"]


class Group(NamedTuple):
    """A supervisor that has announced that all of its processes serve.

    Attributes:
        pages: the address of metrics and health.
        said: its output so far.
    """

    supervisor: subprocess.Popen[str]
    address: str
    pages: str
    store: str
    said: str

    def descriptions(self) -> dict[int, dict[str, Any]]:
        """Return the description that the supervisor has given to each process, by their ids."""
        found = {}
        for each in children(self.supervisor.pid):
            with suppress(OSError):
                said = re.search(rb"HEADWAY_SIBLING=(\{.*?\})\0", Path(f"/proc/{each}/environ").read_bytes())
                if said is not None:
                    found[each] = json.loads(said[1])
        return found

    def processes(self) -> dict[str, int]:
        """Return the ids of the processes, by their names."""
        return {f"{described['name']}-{described['number']}": each for each, described in self.descriptions().items()}

    def kill(self, name: str) -> int:
        """Kill a process as `kill -9` does, wait until it has ended, and return its id."""
        process = self.processes()[name]
        os.kill(process, signal.SIGKILL)
        wait_ended(process)
        return process

    async def page(self, path: str) -> str:
        """Return the text of a page of metrics and health."""
        async with httpx.AsyncClient(base_url=f"http://{self.pages}", verify=NO_CERTIFICATES) as http:
            return (await http.get(path)).text

    async def restarts(self, name: str) -> int:
        """Return how often a process was started again."""
        found = re.search(rf'headway_process_restarts_total{{process="{name}"}} (\d+)', await self.page("/metrics"))
        assert found is not None
        return int(found[1])

    async def until_page(self, path: str, *wanted: str) -> None:
        """Wait until a page has these lines."""
        with trio.fail_after(SECONDS):
            while not {*wanted} <= {*(await self.page(path)).splitlines()}:  # noqa: ASYNC110  # it has no event
                await trio.sleep(0.02)


def children(process: int) -> list[int]:
    """Return the ids of the processes that a process has started."""
    found = []
    for each in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(one) for one in each.read_text().split()]
    return found


def runs(process: int) -> bool:
    """Return True if a process exists, and has not ended without being waited for."""
    try:
        states = [
            each.read_text().rpartition(")")[2].split()[0] for each in Path(f"/proc/{process}/task").glob("*/stat")
        ]
    except OSError:
        return False
    # The first thread may have ended while others still have the files open.
    return any(each not in "ZX" for each in states)


def wait_ended(*processes: int) -> None:
    """Wait until these processes have ended."""
    deadline = time.monotonic() + SECONDS
    while any(map(runs, processes)):
        assert time.monotonic() < deadline, processes
        time.sleep(0.01)


def store_of(etcd: EtcdServer) -> str:
    """Return the URL of a new store."""
    return f"etcd://{etcd.endpoint}{etcd.new_prefix()}"


def started(start: Callable[..., subprocess.Popen[str]], store: str, app: str, *options: str) -> Group:
    """Start two processes for an app, and wait until both serve."""
    supervisor = start(
        "serve",
        app,
        "--store",
        store,
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
        "--processes",
        "2",
        "--process",
        "web",
        *options,
    )
    assert supervisor.stdout is not None
    said = ""
    while "running 2 processes: web-1 and web-2" not in said:
        line = supervisor.stdout.readline()
        assert line or supervisor.stderr is None, said + supervisor.stderr.read()
        said += line
    found = re.search(r"listening on (\S+)\n(?s:.*?)http://(\S+?)/metrics", said)
    assert found is not None, said
    return Group(supervisor, found[1], found[2], store, said)

"""`headway serve` as a process: its end, its log, and closed or blocked standard streams."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway.client import LeaseClient
from headway.rpc import open_channel
from headway.storage import check_store
from tests.cli import served, spinning, stopping
from tests.cli.conftest import HEADWAY, ROOT, Started, address_of
from tests.cli.terminal import Terminal, address
from tests.helpers.etcd_server import EtcdServer

SERVE = ("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0")
SECONDS = 40


@pytest.mark.wide
def test_reconcile_that_blocks_the_shutdown_is_reported_with_its_line(start: Started) -> None:
    """Trio cannot handle the signal, but the process ends."""
    process = start("serve", "tests.cli.spinning:app", "--listen", "127.0.0.1:0", "--hard-exit", "0.1")
    trio.run(_write, address_of(process), spinning.app, spinning.THING.new("one"))
    assert process.stdout is not None
    assert process.stdout.readline() == "spinning\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 70, errors
    assert "worker 0 of spin/things has not ended within" in errors
    lines = Path(spinning.__file__).read_text().splitlines()
    spins = range(lines.index("        while True:") + 1, len(lines) + 1)
    assert any(f'{spinning.__file__}", line {line}, in things' in errors for line in spins), errors
    assert errors.count("has not ended within") == 1, "a task that only waits for its turn was blamed"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGTERM, signal.SIGTERM),
        pytest.param(signal.SIGINT, signal.SIGTERM, marks=pytest.mark.wide),
        pytest.param(signal.SIGINT, signal.SIGINT, marks=pytest.mark.wide),
    ],
)
def test_second_signal_does_not_cut_the_shutdown_short(
    start: Started, tmp_path: Path, first: signal.Signals, second: signal.Signals
) -> None:
    """A wrapper and a service manager may each send one."""
    process = start("serve", "tests.cli.stopping:app", "--listen", "127.0.0.1:0")
    trio.run(_write, address_of(process), stopping.app, stopping.THING.new("one"))
    process.send_signal(first)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(second)
    # The signal is handled before the callback can see the file: it is pending before the next turn of the loop.
    (tmp_path / "go").touch()
    out, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert out == "stopped\n"


LINGERING = """\
import threading, time
from tests.cli.served import app

threading.Thread(target=time.sleep, args=(3600,), name="poller").start()
"""


@pytest.mark.wide
@pytest.mark.parametrize("command", ["serve", "work"])
def test_thread_of_the_app_does_not_keep_the_process_however_many_signals_come(
    start: Started, tmp_path: Path, command: str
) -> None:
    """Python waits for such a thread after the engine has ended. `ThreadPoolExecutor` has threads that it waits for."""
    (tmp_path / "lingering.py").write_text(LINGERING)
    options = ["serve", "lingering:app", "--listen", "127.0.0.1:0"]
    if command == "work":
        options = ["--server", "127.0.0.1:1", "work", "lingering:app"]
    process = start(*options, "--hard-exit", "2")
    assert process.stdout is not None
    assert process.stdout.readline()
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 70, errors
    assert "thread poller has not ended within" in errors


async def _write(where: str, app: headway.App, resource: headway.Resource[Any]) -> None:
    with trio.fail_after(SECONDS):
        async with headway.connect(where, app) as client:
            await client.write(resource)


@pytest.fixture
def lost() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Return a list of processes that are killed when the test ends."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait(SECONDS)


def _accepts(path: Path) -> bool:
    """Return True if a server accepts connections at a socket. The file exists a little earlier."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.mark.wide
@pytest.mark.parametrize("lose", ["closed", "reader gone"])
def test_server_works_without_standard_output(lost: list[subprocess.Popen[bytes]], tmp_path: Path, lose: str) -> None:
    """The parent has closed it or has ended. The log is dropped, and reaches no other file."""
    where, shell = f"unix:{tmp_path}/server", ["sh", "-c", 'exec "$@" >&- <&-', "sh"]
    command = [*HEADWAY, "serve", "tests.cli.served:app", "--listen", where, "--verbose", "--store", "sqlite:a.db"]
    options: dict[str, Any] = {
        "cwd": tmp_path,
        "env": os.environ | {"PYTHONPATH": str(ROOT)},
        "stderr": subprocess.PIPE,
    }
    if lose == "closed":
        process = subprocess.Popen([*shell, *command], **options)
    else:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, **options)
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
    lost.append(process)
    while not _accepts(tmp_path / "server"):
        assert process.poll() is None, process.stderr and process.stderr.read()
    for name in ("core", "edge"):
        trio.run(_write, where, served.app, served.TEAM.new(name))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, b"")
    assert trio.run(check_store, f"sqlite:{tmp_path}/a.db") == []


async def test_process_holds_leases_under_its_name(terminal: Terminal, etcd: EtcdServer) -> None:
    """This is a store that several processes may open."""
    store = f"etcd://{etcd.endpoint}{etcd.new_prefix()}"
    serving = terminal.start(*SERVE, "--store", store, "--process", "web-1")
    async with open_channel(await address(serving)) as channel:
        leases: Sequence[Any] = ()
        with trio.fail_after(SECONDS):
            while not any(each.name == "staff/teams" for each in leases):
                leases = await LeaseClient(channel).list()
        assert {each.holder for each in leases} == {"web-1"}

"""`headway serve --processes`: real processes on one port, their deaths, their end, and one answer for all."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway import events
from headway.cli._sibling import Sibling
from tests.cli import served, spinning
from tests.cli.conftest import Started, starting
from tests.cli.terminal import Terminal
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.process_group import NAMES, SECONDS, Group, children, runs, started, store_of, wait_ended


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return the directory for the temporary files of the commands. Paths of sockets must be short."""
    with tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp") as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", found)
        yield Path(found)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, folder: Path) -> Iterator[Group]:
    """Start two processes for the tests that leave them running."""
    assert folder.exists()
    with starting(tmp_path_factory.mktemp("group")) as start:
        yield started(start, store_of(etcd), "tests.cli.served:app")


@pytest.fixture
def group(start: Started, etcd: EtcdServer, folder: Path) -> Group:  # noqa: ARG001
    """Start two processes for one test, which ends them."""
    return started(start, store_of(etcd), "tests.cli.served:app", "--verbose", "--http", "127.0.0.1:0")


# --- what is refused ----------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "sqlite:a.db"], "the store in sqlite:a.db belongs to one process. Give --store etcd://... or"),
        ([], "the store in memory belongs to one process"),
        (["--store", "etcd://127.0.0.1:1/a", "--listen", "unix:socket"], "several processes cannot listen on unix:so"),
        (["--store", "etcd://127.0.0.1:1/a", "--process", "w" * 63], "must be a name of up to 63 letters"),
    ],
)
async def test_store_or_address_of_one_process_is_refused(
    terminal: Terminal, options: Sequence[str], said: str
) -> None:
    done = await terminal("serve", "tests.cli.served:app", "--processes", "2", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


async def test_forwarder_has_one_process(terminal: Terminal) -> None:
    done = await terminal("serve", "--forward", "127.0.0.1:1", "--processes", "2")
    assert done.returncode == 2
    assert "--processes requires an APP" in done.stderr


def test_each_process_has_a_journal_and_a_socket_of_its_own() -> None:
    sibling = Sibling(2, "web", 3, [], "/folder", -1, -1)
    assert (sibling.process, sibling.own) == ("web-2", "/folder/2")
    assert sibling.others == {"web-1": "/folder/1", "web-3": "/folder/3"}
    assert sibling.journal("a/journal.jsonl") == "a/journal.2.jsonl"
    assert sibling.journal(None) is None


@pytest.mark.wide
def test_process_that_is_killed_before_it_serves_ends_the_command(start: Started) -> None:
    """It cannot say so itself. Here it waits for an etcd that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = "etcd://{}:{}/a".format(*silent.getsockname())
        supervisor = start("serve", "tests.cli.served:app", "--processes", "2", "--store", store)
        connection, _ = silent.accept()
        [child] = children(supervisor.pid)
        os.kill(child, signal.SIGKILL)
        _, errors = supervisor.communicate(timeout=SECONDS)
        connection.close()
    assert supervisor.returncode == 1
    assert re.fullmatch(r"Error: process \S+-1 was ended by SIGKILL before it served\n", errors), errors


# --- two processes on one port ------------------------------------------------


@pytest.mark.wide
async def test_one_answer_for_all_processes(lasting: Group, terminal: Terminal) -> None:
    """Status, reasons, metrics, health and log lines name the process, whichever is asked."""
    assert sorted(lasting.processes()) == NAMES
    async with headway.connect(lasting.address, served.app) as client:
        core = await client.apply(served.TEAM.new("core", served.Team()))
    asked = Terminal(lasting.address, terminal.nursery)

    async def all_answer(*names: str) -> None:
        """Ask until six answers in a row are complete. Each connection reaches any of the processes."""
        answered = 0
        with trio.fail_after(SECONDS):
            while answered < 6:
                why = json.loads((await asked("why", "team", "core", "-o", "json")).stdout)
                known = [each["process"] for each in why["controllers"]] == [*names]
                assert known or "worker" in names or why["unreachable"], "an incomplete answer does not say so"
                answered = answered + 1 if known else 0

    await all_answer(*NAMES)
    async with headway.open_workers(lasting.address, served.app, process="worker"):
        await all_answer(*NAMES, "worker")
    done = await asked("why", "team", core.id.name)
    assert all(f"Controller staff/teams manages it, in process {name}." in done.stdout for name in NAMES)
    await lasting.until_page("/readyz", "web-1: ok", "web-2: ok")
    await lasting.until_page("/healthz", "web-1: ok", "web-2: ok")
    await lasting.until_page("/metrics", *(f'headway_process_up{{process="{name}"}} 1' for name in NAMES))
    done = await terminal("top", lasting.pages, "--interval", "0.1", "-o", "json")
    processes = {each["process"] for each in json.loads(done.stdout)}
    assert processes == {*NAMES}


@pytest.mark.wide
async def test_watches_resume_at_the_other_process_after_a_kill(lasting: Group) -> None:
    """Each process is killed once, so every stream is moved at least once. Nothing is lost, and no snapshot is sent."""
    heard: list[object] = []
    async with trio.open_nursery() as nursery:
        caches = []

        async def cached(*, task_status: trio.TaskStatus[None]) -> None:
            opened = headway.open_cache(lasting.address, served.app, watches=[served.ACCOUNT], report=heard.append)
            async with opened as cache:
                caches.append(cache)
                task_status.started()
                await trio.sleep_forever()

        with trio.fail_after(SECONDS):
            for _ in range(8):
                await nursery.start(cached)
            heard.clear()
            for number, name in enumerate(NAMES):
                restarts = await lasting.restarts(name)
                before = lasting.kill(name)
                async with headway.connect(lasting.address, served.app) as client:
                    await _written(client, f"during-{number}")
                wanted = served.ACCOUNT.id(f"during-{number}")
                while not all(each.get(served.ACCOUNT, wanted) for each in caches):  # noqa: ASYNC110  # it has no event
                    await trio.sleep(0.02)
                await lasting.until_page("/readyz", "web-1: ok", "web-2: ok")
                assert await lasting.restarts(name) == restarts + 1
                assert lasting.processes()[name] != before
        opened = [event for event in heard if isinstance(event, events.StreamOpened)]
        assert len(opened) >= len(caches)
        assert all(event.resume_after is not None for event in opened)
        nursery.cancel_scope.cancel()


async def _written(client: Any, name: str) -> None:
    """Write an account. A connection may still lead to the process that was killed."""
    while True:
        try:
            await client.apply(served.ACCOUNT.new(name, served.Account(login=name)))
        except headway.errors.RemoteError:
            await trio.sleep(0.02)
        else:
            return


# --- the end ------------------------------------------------------------------


@pytest.mark.wide
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.deep)])
def test_signal_ends_all_processes_gracefully(group: Group, number: signal.Signals) -> None:
    """The command exits as a single server does. No process and no file is left."""
    processes = group.processes().values()
    [own, _] = [Path(each["folder"]) for each in group.descriptions().values()]
    assert own.exists()
    said = group.said
    while not all(f"process={name}" in said for name in NAMES):
        # Each line of the log names its process.
        assert group.supervisor.stdout is not None
        said += group.supervisor.stdout.readline()
    # The sessions of the live page are in the memory of one process.
    assert said.count("HTTP at http://") == 1
    group.supervisor.send_signal(number)
    _, errors = group.supervisor.communicate(timeout=SECONDS)
    assert (group.supervisor.returncode, errors) == (0, "")
    assert not any(map(runs, processes))
    assert not own.exists()


@pytest.mark.wide
def test_killed_supervisor_leaves_no_process(group: Group) -> None:
    """Not even one that is stopped, and so could not notice anything. The port is free at once."""
    first, second = group.processes().values()
    os.kill(first, signal.SIGSTOP)
    group.supervisor.kill()
    wait_ended(first, second)
    host, port = group.address.split(":")
    with socket.create_server((host, int(port))):
        pass


@pytest.mark.wide
async def test_process_that_cannot_end_is_killed_and_reported(start: Started, etcd: EtcdServer) -> None:
    """The other one ends as always. The command exits as a single server with such a reconcile does."""
    group = started(start, store_of(etcd), "tests.cli.spinning:app", "--hard-exit", "6")
    processes = group.processes().values()
    with trio.fail_after(SECONDS):
        # If the process that reconciles has also taken the write, it may spin before it answers.
        with suppress(headway.errors.OutcomeUnknown):
            async with headway.connect(group.address, spinning.app, timeout=5) as client:
                await client.write(spinning.THING.new("one"))
    assert group.supervisor.stdout is not None
    assert await trio.to_thread.run_sync(group.supervisor.stdout.readline) == "spinning\n"
    # The other process waits two seconds for the connection of the one that spins.
    group.supervisor.send_signal(signal.SIGTERM)
    _, errors = await trio.to_thread.run_sync(group.supervisor.communicate, None, SECONDS)
    assert group.supervisor.returncode == 70
    assert errors.count("has not ended within") == 1, errors
    assert not any(map(runs, processes))

"""The fleet example as a user sees it: killed processes, commands that fail, invalid manifests and Ctrl-C."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest
import trio

import headway
from examples.fleet import apps, endpoints, instances
from examples.fleet.declared import APP, ENDPOINTS, App, app
from examples.fleet.instances import HEALTH_INTERVAL, Keeper
from tests.examples.fleet_kit import wait_ended
from tests.examples.fleet_observer import MARK, all_killed, answering, kill, living
from tests.examples.fleet_run import PATIENCE, Folder

CONTROLLERS = (apps.apps, endpoints.endpoints)  # declared by their modules
MARGIN = 0.5
BACK_WITHIN = 2.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    with all_killed(folder.path):
        yield folder


# --- Killed processes -----------------------------------------------------


@pytest.mark.wide
async def test_killed_process_is_replaced_and_its_address_unlisted(folder: Folder) -> None:
    """After kill -9 a health check unlists the address. Within 2 s it is listed again, with a new process."""
    folder.declare(replicas=2, web=folder.web())
    begun = time.monotonic()
    async with folder.run() as run:
        both = await run.line("endpoints", folder.name("web"), ", ")
        started = time.monotonic() - begun
        addresses = run.lines[both - 1].split(": ")[1].split(", ")
        by_pid = {answering(address): address for address in addresses}
        killed, other = living(folder.path)
        address = by_pid[killed.pid]
        kill(killed)
        at = time.monotonic()
        gone = await run.line("endpoints", f": {by_pid[other.pid]}", after=both)
        assert address not in run.lines[gone - 1]
        # The start of the whole fleet, a second's work, shows how slow a busy machine is.
        assert time.monotonic() - at < max(HEALTH_INTERVAL + MARGIN, started)
        await run.line("endpoints", address, after=gone)
        assert time.monotonic() - at < max(BACK_WITHIN, 2 * started)
        assert answering(address) not in (killed.pid, other.pid)
        assert answering(by_pid[other.pid]) == other.pid


@pytest.mark.wide
async def test_processes_of_a_killed_engine_are_adopted_by_the_next_run(folder: Folder) -> None:
    """Each process was started once and keeps running. Ctrl-C then stops all of them."""
    folder.declare(replicas=2, web=folder.web())
    async with folder.run() as run:
        await run.line("endpoints", folder.name("web"), ", ")
        before = living(folder.path)
        await run.line("engine ", f"process {run.process.pid}")
        assert await run.end(signal.SIGKILL) == -signal.SIGKILL
        assert sorted(living(folder.path)) == sorted(before)
        async with folder.run() as again:
            await again.line("APP", "WANTED", "INSTANCE")
            await again.line(f"process {before[0].pid}")
            await again.line(f"process {before[1].pid}")
            assert sorted(living(folder.path)) == sorted(before)
            assert len(folder.starts.read_text().splitlines()) == 2
            assert await again.end(signal.SIGINT) == 130
            assert living(folder.path) == []


@pytest.mark.wide
async def test_process_without_an_instance_is_stopped(folder: Folder) -> None:
    """After the store was removed, the next run starts the fleet again, and stops the processes of the run before."""
    folder.declare(replicas=2, web=folder.web())
    async with folder.run() as run:
        await run.line("endpoints", folder.name("web"), ", ")
        await run.end(signal.SIGKILL)
    former = living(folder.path)
    for file in folder.path.glob("fleet.db*"):
        file.unlink()
    async with folder.run() as again:
        await again.line("endpoints", folder.name("web"), ", ")
        for process in former:
            await wait_ended(process.pid)
        assert len(living(folder.path)) == 2


@pytest.mark.parametrize("adopted", [False, True])
async def test_exit_of_a_process_is_noticed_at_once(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, adopted: bool
) -> None:
    """The health check runs once an hour here. A killed process is replaced at once, adopted or not."""
    monkeypatch.setattr(instances, "HEALTH_INTERVAL", 3600.0)
    wanted = APP.new(folder.name("web"), App(command=folder.web(), replicas=1, environment={MARK: str(folder.path)}))
    if adopted:
        async with engine_of(folder) as client:
            await client.apply(wanted)
            await addresses_of(client, 1)
    async with engine_of(folder) as client:
        await client.apply(wanted)
        await addresses_of(client, 1)
        (process,) = living(folder.path)
        listed: list[int] = []
        with trio.fail_after(PATIENCE):
            async with client.watch(ENDPOINTS) as changes:
                async for change in changes:
                    if isinstance(change, headway.client.SnapshotEnd):
                        kill(process)
                    elif isinstance(change, headway.client.Upserted):
                        listed.append(len(change.resource.data.addresses))
                    if len(listed) == 3:
                        break
        assert listed == [1, 0, 1]


@asynccontextmanager
async def engine_of(folder: Folder) -> AsyncIterator[headway.Client]:
    """Open an engine in this process, which ends without stopping its processes."""
    with mock.patch.dict(app.controllers):
        Keeper(folder.path / "processes").declare()
        async with headway.open_engine(f"sqlite:{folder.path / 'fleet.db'}", app, report=lambda _: None) as engine:
            yield engine.client


async def addresses_of(client: headway.Client, count: int) -> None:
    """Wait until the only app has this number of addresses."""
    with trio.fail_after(PATIENCE):
        async with client.watch(ENDPOINTS) as changes:
            async for change in changes:
                if isinstance(change, headway.client.Upserted) and len(change.resource.data.addresses) == count:
                    return


# --- Bad commands ---------------------------------------------------------


@pytest.mark.wide
async def test_app_that_crashes_at_once_backs_off_and_does_not_affect_others(folder: Folder) -> None:
    """The delays between its starts grow. The other app's process stays listed and is never replaced."""
    crashes = folder.path / "crashes"
    # The time when the kernel created the process. On a busy machine it may run much later.
    made = f"cut -d ' ' -f 22 /proc/$$/stat >> {crashes}"
    folder.declare(web=folder.web(), crashing=["sh", "-c", f"{made}; exit 3"])
    async with folder.run() as run:
        healthy = await run.line("endpoints", folder.name("web"), "127.0.0.1")
        # The crashing process may be alive for a moment, too.
        pid = answering(run.lines[healthy - 1].rpartition(" ")[2])
        (web,) = (process for process in living(folder.path) if process.pid == pid)
        position = 0
        for _start in range(4):  # each launch has its own pid, and so its own line
            position = await run.line("instance", folder.name("crashing"), "process ", after=position)
        with trio.fail_after(PATIENCE):
            # The line is printed at the launch. The command notes its own start a moment later.
            while len(crashes.read_text().split()) < 4:
                await trio.lowlevel.checkpoint()
        ticks = os.sysconf("SC_CLK_TCK")
        _, second, third, fourth = (int(start) / ticks for start in crashes.read_text().split()[:4])
        # The first restart is immediate. After that, each pause is twice as long as the one before.
        assert third - second > 0.4
        assert fourth - third > 0.9
        assert web in living(folder.path)
        assert not [line for line in run.lines[healthy:] if line.startswith(f"endpoints {folder.name('web')}")]


# --- Ends -----------------------------------------------------------------


@pytest.mark.wide
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_stopped_engine_stops_its_processes(folder: Folder, number: signal.Signals) -> None:
    """After SIGINT or SIGTERM the engine ends within seconds and says so. No process is left."""
    folder.declare(replicas=2, web=folder.web())
    begun = time.monotonic()
    async with folder.run() as run:
        await run.line("endpoints", folder.name("web"), ", ")
        started, at = time.monotonic() - begun, time.monotonic()
        assert await run.end(number) == 130
        assert time.monotonic() - at < max(5, 2 * started)
        assert living(folder.path) == []
        assert "Traceback" not in run.text
        assert run.lines[-1].startswith("stopped")


@pytest.mark.wide
async def test_run_prints_its_progress_and_a_table(folder: Folder) -> None:
    """The output has the priming of each type, a line for each change, and a table. No process is left."""
    folder.declare(replicas=2, web=folder.web())
    async with folder.run() as run:
        for controller, types in {
            "apps": ("App", "Instance"),
            "instances": ("Instance",),
            "endpoints": ("Endpoints", "App", "Instance"),
        }.items():
            for type in types:
                primed = await run.line(f"primed    fleet/{controller}: {type},")
                assert primed <= await run.line(f"running   fleet/{controller}:")
        for process in ("0:", "1:"):
            wanted = await run.line("instance", process, "wanted, on port")
            await run.line("instance", process, ", healthy", after=wanted)
        await run.line("endpoints", folder.name("web"), ", ")
        table = await run.line("APP", "WANTED", "INSTANCE", "PORT", "STATE", "ENDPOINTS")
        await run.end(signal.SIGTERM)
        assert run.lines[table].split()[:2] == [folder.name("web"), "2"]
        assert living(folder.path) == []


@pytest.mark.wide
async def test_bounded_run_of_a_fleet_as_declared_exits_with_0(folder: Folder) -> None:
    """The run ends by itself. A fleet without processes is as declared, however slow the machine is."""
    folder.declare(replicas=0, web=folder.web())
    async with folder.run("--for", "1") as run:
        assert await run.end() == 0
        assert living(folder.path) == []


# --- Refused starts -------------------------------------------------------


async def test_missing_manifest_is_reported(folder: Folder) -> None:
    """The message has the path and no traceback. The exit code is not 0."""
    async with folder.run() as run:
        assert await run.end() == 2
        assert str(folder.manifest) in run.text
        assert "Traceback" not in run.text


@pytest.mark.wide
async def test_second_engine_on_a_folder_is_refused(folder: Folder) -> None:
    """The second engine names the first, exits with a code that is not 0, and stops none of its processes."""
    folder.declare(replicas=2, web=folder.web())
    async with folder.run() as first:
        await first.line("endpoints", folder.name("web"), ", ")
        running = sorted(living(folder.path))
        async with folder.run() as run:
            assert await run.end() == 2
            assert str(first.process.pid) in run.text
            assert "Traceback" not in run.text
            assert sorted(living(folder.path)) == running

"""An engine that is killed between any two writes or process changes loses no process and starts none twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.examples.fleet_engine import STARTS
from tests.examples.fleet_kit import ROOT
from tests.examples.fleet_observer import Seen, all_killed, answering, living

PATIENCE = 30.0

# One step of each call that changes the store or a process, before or after the call, spread over the phases of the
# scenario. The deep test below has all steps.
SAMPLE = [
    "spawn launch returned:3",
]
WIDE_SAMPLE = [
    "Write Instance sent:2",
    "stop called:1",
    "spawn launcher started:2",
    "WriteStatus Instance sent:1",
    "forget returned:3",
    "Raise acknowledged:2",
    "Write App acknowledged:1",
    "Write Instance acknowledged:4",
    "Write Endpoints acknowledged:5",
    "Delete Instance sent:1",
    "stop returned:2",
    "Delete App acknowledged:1",
    "Delete Endpoints sent:1",
]


async def run_engine(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run an engine in a process of its own until it ends."""
    with trio.fail_after(PATIENCE):
        return await trio.run_process(command(folder, *arguments), cwd=ROOT, capture_stdout=True, check=False)


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.examples.fleet_engine", str(folder), *arguments]


async def crash(folder: Path, *arguments: str) -> bool:
    """Run an engine and return True if it killed itself. An engine that does not reach its step ends normally."""
    ended = await run_engine(folder, *arguments)
    assert ended.returncode == -signal.SIGKILL or (ended.returncode == 0 and ended.stdout)
    return ended.returncode != 0


async def check_next_engine(folder: Path) -> None:
    """Start an engine after a crash. Compare its state with the processes before it, and with those that really run."""
    before = living(folder)
    async with trio.open_nursery() as nursery:
        start = partial(trio.run_process, command(folder, "--adopt"), cwd=ROOT, stdout=subprocess.PIPE, check=False)
        engine: trio.Process = await nursery.start(start)
        assert engine.stdout is not None
        said = b""
        with trio.fail_after(PATIENCE):
            while not said.endswith(b"\n"):
                part = await engine.stdout.receive_some()
                assert part, "the next engine has ended without printing its state"
                said += part
        check(folder, before, json.loads(said))
        engine.kill()


def check(folder: Path, before: list[Seen], state: dict[str, Any]) -> None:
    instances = {each["uid"]: each for each in state["instances"]}
    running = {process.uid: process for process in living(folder)}

    # Every Instance has exactly one living process, and no other process lives.
    assert sorted(process.uid for process in living(folder)) == sorted(instances)
    assert Counter(each["app"] for each in instances.values()) == Counter(state["replicas"])

    # A process that ran before the crash and is still declared was adopted: it is the same process.
    for process in before:
        assert process.uid not in instances or running[process.uid] == process
    # No instance was ever started twice.
    starts = Counter(line.split()[0] for line in lines(folder / STARTS))
    assert set(starts.values()) <= {1}
    assert set(instances) <= set(starts)

    # Endpoints list exactly the healthy instances, and the right process answers at each address.
    assert all(each["healthy"] for each in instances.values())
    for app, addresses in state["endpoints"].items():
        own = {
            f"127.0.0.1:{each['port']}": running[each["uid"]].pid for each in instances.values() if each["app"] == app
        }
        assert {address: answering(address) for address in addresses} == own
    assert set(state["endpoints"]) == set(state["replicas"])

    # A deleted Instance leaves no file.
    assert {path.stem for path in (folder / "processes").glob("*")} == set(instances)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def fleet_folder(tmp_path: Path, name: object = "") -> Path:
    """Create an empty folder. Ports are chosen by its name, which no other run on this machine has."""
    folder = tmp_path / f"fleet-{os.getpid()}{name}"
    folder.mkdir()
    return folder


async def all_steps(folder: Path) -> list[str]:
    """Return the steps of a run without a crash."""
    with all_killed(folder):
        ended = await run_engine(folder)
        steps: list[str] = json.loads(ended.stdout)
        return steps


@pytest.mark.wide
async def test_sampled_steps_exist(tmp_path: Path) -> None:
    """A run without a crash passes every step of the samples."""
    steps = await all_steps(fleet_folder(tmp_path))
    assert {*SAMPLE, *WIDE_SAMPLE} <= set(steps)


@pytest.mark.parametrize("step", [*SAMPLE, *(pytest.param(each, marks=pytest.mark.wide) for each in WIDE_SAMPLE)])
async def test_engine_killed_at_a_step_is_replaced_by_the_next(tmp_path: Path, step: str) -> None:
    """The next engine adopts running processes, starts missing ones once, stops the others, and its status is right."""
    folder = fleet_folder(tmp_path)
    with all_killed(folder):
        await crash(folder, "--crash-at", step)
        await check_next_engine(folder)


@pytest.mark.deep
@pytest.mark.timeout(1800)
async def test_engine_killed_at_any_step_is_replaced_by_the_next(tmp_path: Path) -> None:
    """Each step of a run without a crash is tried."""
    failed = []
    for number, step in enumerate(await all_steps(fleet_folder(tmp_path))):
        folder = fleet_folder(tmp_path, f"-{number}")
        with all_killed(folder):
            try:
                await crash(folder, "--crash-at", step)
                await check_next_engine(folder)
            except Exception as error:  # noqa: BLE001  # every step is tried, and all failures are reported together
                error.add_note(f"killed at {step}")
                failed.append(error)
    if failed:
        raise ExceptionGroup("killed at some steps", failed)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("step", ["spawn launcher started:2", "Write Instance acknowledged:6", "stop called:1"])
async def test_engines_killed_during_their_takeover_are_replaced(tmp_path: Path, step: str) -> None:
    """After a crash, each next engine is killed one step later than the one before, until one completes."""
    folder = fleet_folder(tmp_path)
    with all_killed(folder):
        await crash(folder, "--crash-at", step)
        number = 1
        while await crash(folder, "--adopt", "--crash-at", str(number)):
            number += 1
        assert number > len(["Raise sent", "Raise acknowledged"]) * 3
        await check_next_engine(folder)

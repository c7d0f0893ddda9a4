"""The demonstration: it runs, shows what it should, and gives no wrong answer while its processes are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import trio

from catalog.demo.fleet import Fleet, running
from catalog.demo.lookup import Found, look_up
from catalog.demo.processes import Process
from tests.catalog.demo.judge import BOUND, Judge

ROOT = Path(__file__).parents[3]
NAME = "web.service.consul"
# With this seed, services die for longer than `BOUND` while the registrar is away, within the first 20 seconds.
SEED = int(os.environ.get("HEADWAY_FAULT_SEED", "493"))
PATIENCE = 60.0


def test_judge_counts_from_the_death_and_from_the_last_start() -> None:
    judge = Judge()
    judge.controlled(100.0)
    everyone = Found("NOERROR", ("127.0.1.1", "127.0.1.2"))
    assert judge.problem(everyone, 1_000.0) is None
    judge.died("127.0.1.2", 1_000.0)
    assert judge.problem(everyone, 999.9 + BOUND) is None
    assert judge.problem(everyone, 1_000.1 + BOUND) is not None
    assert judge.problem(Found("NOERROR", ("127.0.1.1",)), 2_000.0) is None
    judge.controlled(1_005.0)
    assert judge.problem(everyone, 1_000.1 + BOUND) is None
    assert judge.problem(everyone, 1_005.1 + BOUND) is not None
    judge.starts("127.0.1.2")
    assert judge.problem(everyone, 2_000.0) is None
    assert judge.problem(Found("SERVFAIL", ()), 2_000.0) is None
    assert judge.problem(Found("NXDOMAIN", ()), 2_000.0) is not None


@pytest.mark.wide
@pytest.mark.timeout(180)
def test_make_run_shows_a_service_leave_and_come_back() -> None:
    """It ends by itself, with exit status 0."""
    command = ["make", "-C", str(ROOT / "examples" / "catalog"), "run", "FOR=1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    shown = [line.partition(";")[0] for line in result.stdout.splitlines() if "the answer followed" in line]
    assert shown[:3] == ["all three services are answered", "web-1 was killed", "web-1 was started again"]


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(20.0, marks=[pytest.mark.wide, pytest.mark.timeout(200)]),
        pytest.param(60.0, marks=[pytest.mark.deep, pytest.mark.timeout(300)]),
    ],
)
async def test_no_wrong_answer_while_processes_are_killed(tmp_path: Path, seconds: float) -> None:
    """The server, the registrar and the services are killed at random times. In the end all services are answered."""
    chance = random.Random(SEED)
    judge = Judge()
    counts: Counter[str] = Counter()
    # A path of a Unix socket must be short.
    folder = Path(os.path.relpath(tmp_path))  # noqa: ASYNC240  # once
    async with running(folder) as fleet, trio.open_nursery() as nursery:
        judge.controlled(trio.current_time())
        await _all_answered(fleet)
        nursery.start_soon(_ask, fleet, judge, counts)
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as killers:
                for host, service in fleet.services.items():
                    killers.start_soon(_kill_service, service, host, judge, random.Random(chance.random()))
                killers.start_soon(_kill, fleet.server, (5, 20), 1.5 * BOUND, judge, random.Random(chance.random()))
                killers.start_soon(_kill, fleet.registrar, (3, 10), 3 * BOUND, judge, random.Random(chance.random()))
        await _restart(fleet, judge)
        await _all_answered(fleet)
        nursery.cancel_scope.cancel()
    assert counts["whole"] > 0
    assert counts["part"] > 0, counts


@pytest.mark.wide
@pytest.mark.timeout(180)
async def test_server_that_hangs_is_answered_by_servfail(tmp_path: Path) -> None:
    """A stopped process keeps its connections, and answers nothing on them."""
    folder = Path(os.path.relpath(tmp_path))  # noqa: ASYNC240  # once
    async with running(folder) as fleet:
        await _all_answered(fleet)
        fleet.server.send(signal.SIGSTOP)
        try:
            with trio.fail_after(PATIENCE):
                while (await look_up(fleet.dns_port, NAME)).result != "SERVFAIL":  # noqa: ASYNC110  # another process
                    await trio.sleep(0.05)
        finally:
            fleet.server.send(signal.SIGCONT)
        await _all_answered(fleet)


async def _ask(fleet: Fleet, judge: Judge, counts: Counter[str]) -> None:
    while True:
        asked_at = trio.current_time()
        found = await look_up(fleet.dns_port, NAME)
        assert judge.problem(found, asked_at) is None, (judge.problem(found, asked_at), counts)
        part = "part" if found.addresses else found.result or "no answer in time"
        counts["whole" if len(found.addresses) == len(fleet.services) else part] += 1
        await trio.sleep(0.05)


async def _kill_service(service: Process, host: str, judge: Judge, chance: random.Random) -> None:
    while True:
        await trio.sleep(chance.uniform(1, 6))
        await service.kill()
        judge.died(host, trio.current_time())
        # Half of them stay dead for longer than an answer may name them.
        await trio.sleep(chance.uniform(0, 2 * BOUND))
        judge.starts(host)
        with trio.CancelScope(shield=True):
            await service.start()


async def _kill(process: Process, up: tuple[float, float], longest: float, judge: Judge, chance: random.Random) -> None:
    while True:
        await trio.sleep(chance.uniform(*up))
        await process.kill()
        # It may stay away for longer than a service that has died meanwhile may be answered.
        await trio.sleep(chance.uniform(0, longest))
        await _start(process, judge)


async def _start(process: Process, judge: Judge) -> None:
    """Start the server or the registrar. The registrar is ready only when there is a server."""
    try:
        await process.start()
    finally:
        judge.controlled(trio.current_time())


async def _restart(fleet: Fleet, judge: Judge) -> None:
    """Start what does not run."""
    with trio.fail_after(PATIENCE):
        for host, service in fleet.services.items():
            if not service.running:
                judge.starts(host)
                await service.start()
        for process in (fleet.server, fleet.registrar):
            if not process.running:
                await _start(process, judge)


async def _all_answered(fleet: Fleet) -> None:
    with trio.fail_after(PATIENCE):
        while len((await look_up(fleet.dns_port, NAME)).addresses) < len(fleet.services):  # noqa: ASYNC110  # see above
            await trio.sleep(0.1)

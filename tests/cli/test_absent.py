"""A controller that workers ran and that runs nowhere now is missed: in the status, the answers and the monitoring."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import headway
from headway.observe import Metrics, Pages
from headway.resource import CONTROLLER_RECORD
from headway.why import _absent, sentences
from tests.cli.terminal import Terminal
from tests.helpers.why_programs import broken_app, eventually
from tests.why.test_workers import types_only

TEAMS = "staff/teams"
TEAM = broken_app()[1]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and miss a controller at once."""
    monkeypatch.setattr(_absent, "GRACE", 0)
    monkeypatch.setattr(_absent, "LOOK", 0.02)


@asynccontextmanager
async def serving(store: str = "memory:") -> AsyncIterator[headway.Engine]:
    """Run an engine that has the types and no controllers."""
    async with headway.open_engine(
        store, types_only(), network=headway.Network(["127.0.0.1:0"], insecure=True)
    ) as engine:
        yield engine


async def worked_once(engine: headway.Engine) -> None:
    """Let a worker run the controller until the server has its record, and end it."""
    async with headway.open_workers(engine.addresses, broken_app()[0], process="web-1", report=lambda _: None):
        await eventually(lambda: recorded(engine))


async def recorded(engine: headway.Engine) -> str | None:
    found = await engine.client.list(CONTROLLER_RECORD)
    return found[0].data.controller if found else None


def absent(engine: headway.Engine) -> list[str]:
    return [each.name for each in engine.status() if each.phase == "absent"]


async def missed(engine: headway.Engine) -> bool | None:
    return absent(engine) == [TEAMS] or None


@pytest.mark.usefixtures("soon")
async def test_controller_of_a_dead_worker_is_missed_everywhere_until_a_worker_runs_it(terminal: Terminal) -> None:
    metrics = Metrics()
    async with serving() as engine:
        metrics.watch(engine.status)
        pages = Pages(engine.status, metrics)
        await worked_once(engine)
        await eventually(lambda: missed(engine))
        # Workers come back through the load balancer, which asks for this page.
        code, _, body = pages.page("/readyz")
        assert (code, body.decode().splitlines()[0]) == (200, "ok")
        assert f"{TEAMS}: has run in no process for 0 s" in body.decode()
        scraped = metrics.text().decode()
        assert f'headway_controller_phase{{controller="{TEAMS}",phase="absent"}} 1.0' in scraped
        assert f'headway_controller_ready{{controller="{TEAMS}"}} 0.0' in scraped
        [item] = (await engine.stuck(0)).items
        assert (item.controller, item.process, item.state) == (TEAMS, "web-1", "absent")
        assert (await engine.stuck(3600)).items == []
        said = await terminal("why", "--stuck", "--longer-than", "0", server=engine.addresses[0])
        assert said.returncode == 7
        assert said.stdout.startswith("Controller staff/teams runs in no process since ")
        assert "web-1 ran it last: start a worker that runs it, or `headway delete controllerrecord " in said.stdout
        async with headway.open_workers(engine.addresses, broken_app()[0], process="web-2", report=lambda _: None):

            async def runs() -> bool | None:
                return None if absent(engine) else True

            await eventually(runs)
            assert (await engine.stuck(3600)).items == []


@pytest.mark.usefixtures("soon")
async def test_restarted_server_misses_it_until_its_record_is_deleted(tmp_path: Path, terminal: Terminal) -> None:
    """Nothing but the store knows of the controller then."""
    store = f"sqlite:{tmp_path}/staff.db"
    async with serving(store) as engine:
        await worked_once(engine)
    async with serving(store) as engine:
        await eventually(lambda: missed(engine))
        [gone] = (await engine.why(TEAM.id("core"))).gone
        assert (gone.process, gone.controllers) == ("web-1", [TEAMS])
        [line] = [each for each in sentences(await engine.stuck(0)) if TEAMS in each]
        command = line.split("`")[1].removeprefix("headway ").split()
        assert (await terminal(*command, server=engine.addresses[0])).returncode == 0

        async def forgotten() -> bool | None:
            return None if absent(engine) else True

        await eventually(forgotten)

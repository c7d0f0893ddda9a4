"""Clients and engines that are used after their block raise Closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import headway
from headway.errors import Closed
from tests.helpers.resources import Team
from tests.helpers.staff import Staff

Call = Callable[[headway.Client, headway.ResourceType[Team]], Any]


async def _watch(client: headway.Client, team: headway.ResourceType[Team]) -> None:
    async with client.watch(team) as events:
        async for _ in events:
            return


async def _pages(client: headway.Client, team: headway.ResourceType[Team]) -> None:
    async for _ in client.pages(team):
        return


async def _hold(client: headway.Client, _: headway.ResourceType[Team]) -> None:
    async with headway.hold_lease(client.leases, "staff/reports", holder="web-1"):
        pass


CALLS: dict[str, Call] = {
    "get": lambda client, team: client.get(team, "core"),
    "list": lambda client, team: client.list(team),
    "list_by_owner": lambda client, team: client.list_by_owner(team.id("core", uid="u")),
    "write": lambda client, team: client.write(team.new("core")),
    "create": lambda client, team: client.create(team.new("core")),
    "apply": lambda client, team: client.apply(team.new("core")),
    "delete": lambda client, team: client.delete(team.id("core")),
    "watch": _watch,
    "pages": _pages,
    "hold_lease": _hold,
}


@asynccontextmanager
async def _in_process(staff: Staff) -> AsyncIterator[headway.Client]:
    async with staff.open() as engine:
        yield engine.client


@asynccontextmanager
async def _in_file(staff: Staff, path: Any) -> AsyncIterator[headway.Client]:
    async with staff.open(f"sqlite:{path}") as engine:
        yield engine.client


async def _check(client: headway.Client, staff: Staff) -> None:
    for name, call in CALLS.items():
        with trio.fail_after(20), pytest.raises(Closed, match=r"the block .* has ended") as raised:
            await call(client, staff.team)
        assert isinstance(raised.value, headway.HeadwayError), name


async def test_calls_of_a_client_fail_after_the_block_of_its_engine(tmp_path: Any) -> None:
    """No call reads or writes the closed store, not even one of a lease client that was kept."""
    for opened in (_in_process(staff := Staff()), _in_file(staff, tmp_path / "staff.db")):
        async with opened as client:
            await client.write(staff.team.new("core"))
            leases = client.leases
        await _check(client, staff)
        with pytest.raises(Closed):
            await leases.acquire("staff/reports", "web-1", 15.0)


async def test_calls_of_a_client_fail_after_the_block_of_its_connection() -> None:
    """Both a client that has asked for the server's types and one that has not raise Closed."""
    staff = Staff()
    async with headway.open_engine(
        "memory:", staff.app, network=headway.Network(["127.0.0.1:0"], insecure=True)
    ) as engine:
        async with headway.connect(engine.addresses[0], staff.app) as used:
            await used.list(staff.team)
        async with headway.connect(engine.addresses[0], staff.app) as unused:
            pass
        await _check(used, staff)
        await _check(unused, staff)


async def test_wait_idle_fails_after_the_block_of_its_engine() -> None:
    """Without the error, the call would wait for runs that never begin."""
    staff = Staff()

    @staff.app.controller(manages=staff.team)
    async def teams(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""

    async with headway.open_engine(
        "memory:", staff.app, network=headway.Network(["127.0.0.1:0"], insecure=True)
    ) as engine:
        async with headway.open_workers(engine.addresses[0], staff.app, process="other") as workers:
            pass
        with trio.fail_after(20), pytest.raises(Closed, match="the block"):
            await workers.wait_idle()
        with pytest.raises(Closed, match="the block"):
            workers.accept_store()
    with trio.fail_after(20), pytest.raises(Closed, match="the block"):
        await engine.wait_idle()


async def test_wait_idle_of_another_task_fails_when_the_block_ends(autojump_clock: trio.testing.MockClock) -> None:
    """A task in a nursery around the engine raises Closed."""
    staff, raised = Staff(), list[BaseException]()

    @staff.app.controller(manages=staff.team)
    async def teams(_: headway.Runtime, __: headway.Request) -> None:
        await trio.sleep_forever()

    async def wait(engine: headway.Engine) -> None:
        try:
            await engine.wait_idle()
        except Closed as error:
            raised.append(error)

    with trio.fail_after(100):
        async with trio.open_nursery() as nursery, staff.open() as engine:
            await staff.write_team("core")
            nursery.start_soon(wait, engine)
            await trio.sleep(5)
    assert len(raised) == 1

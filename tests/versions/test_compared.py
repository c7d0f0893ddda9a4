"""Clients and workers whose types do not fit the server's types fail with an error that says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status

import headway
from headway.errors import OutcomeUnknown, Unavailable
from headway.protobuf import field, message
from headway.resource import ResourceType, describe
from headway.rpc import Services, open_server
from headway.service import ConsulService, ResourceService
from headway.storage import MemoryBackend
from tests.helpers.compared import NEWER, SAID, TEAM, WRONG, Compared, Lists, Team, Wrong
from tests.helpers.service_errors import failed


def program(type: ResourceType[Any], *, controller: bool = False) -> headway.App:
    app = headway.App("staff")
    app.registry.register(type)
    if controller:

        @app.controller(manages=type)
        async def teams(_: headway.Runtime, request: headway.Request[Any]) -> None:
            reconciled.append(request.id.name)

    return app


reconciled: list[str] = []


@asynccontextmanager
async def serving(type: ResourceType[Any] = TEAM, **options: Any) -> AsyncIterator[str]:
    network = headway.Network(**{"listen": ["127.0.0.1:0"], **(options or {"insecure": True})})
    async with headway.open_engine("memory:", program(type), network=network) as engine:
        await engine.client.write(type.new("core"))
        yield engine.addresses[0]


async def test_client_that_would_misread_fails_at_its_first_call() -> None:
    """Every later call fails as well, and nothing is sent to the store."""
    async with serving() as address, headway.connect(address, program(WRONG)) as client:
        with pytest.raises(headway.errors.SchemaMismatch) as caught:
            await client.read(WRONG, "core")
        assert str(caught.value) == SAID
        with pytest.raises(headway.errors.SchemaMismatch):
            await client.write(WRONG.new("core", Wrong(members="a")))
        with pytest.raises(headway.errors.SchemaMismatch):
            async with client.watch(WRONG) as events:
                await anext(events)
        async with headway.connect(address, program(TEAM)) as other:
            assert (await other.read(TEAM, "core")).data.members == []


@asynccontextmanager
async def restarted(folder: Path, type: ResourceType[Any]) -> AsyncIterator[str]:
    """Serve at the same address as the last server of this folder."""
    async with serving(type, insecure=True, listen=[f"unix:{folder / 'engine.sock'}"]) as address:
        yield address


async def test_server_that_was_restarted_is_compared_again(tmp_path: Path) -> None:
    """A client stays open over a deployment. It works again once the server fits."""
    async with headway.connect(f"unix:{tmp_path / 'engine.sock'}", program(TEAM)) as client:
        async with restarted(tmp_path, TEAM):
            await client.read(TEAM, "core")
            async with client.watch(TEAM) as events:
                await anext(events)
        async with restarted(tmp_path, WRONG):
            for _ in range(2):
                with pytest.raises(headway.errors.SchemaMismatch, match=r"Team\.members \(field 1\)"):
                    await client.write(TEAM.new("core", Team(members=["a"])))
            with pytest.raises(headway.errors.SchemaMismatch):
                async with client.watch(TEAM) as events:
                    await anext(events)
        async with restarted(tmp_path, TEAM):
            assert (await client.read(TEAM, "core")).data.members == []


async def test_subscription_is_not_resumed_from_a_server_that_does_not_fit(tmp_path: Path) -> None:
    async with (
        headway.connect(f"unix:{tmp_path / 'engine.sock'}", program(TEAM)) as client,
        client.subscribe([TEAM]) as batches,
    ):
        async with restarted(tmp_path, TEAM):
            assert (await anext(batches)).snapshot
        async with restarted(tmp_path, WRONG):
            with trio.fail_after(20), pytest.raises(headway.errors.SchemaMismatch):
                await anext(batches)


@pytest.mark.parametrize("controller", [False, True])
async def test_workers_end_if_the_server_was_restarted_and_does_not_fit(
    nursery: trio.Nursery, tmp_path: Path, controller: bool
) -> None:
    """Their streams reconnect, so no call of the program is necessary."""
    reconciled.clear()
    deployment = trio.Event()

    async def serve(task_status: trio.TaskStatus[str]) -> None:
        async with restarted(tmp_path, TEAM) as address:
            task_status.started(address)
            await deployment.wait()
        async with restarted(tmp_path, WRONG):
            await trio.sleep_forever()

    async def work() -> None:
        address = await nursery.start(serve)
        async with headway.open_workers(address, program(TEAM, controller=controller), process="web-1") as workers:
            await workers.client.read(TEAM, "core")
            await workers.wait_idle()
            deployment.set()
            await trio.sleep_forever()

    with trio.fail_after(20), pytest.raises(headway.errors.SchemaMismatch, match=r"members \(field 1\)"):
        await work()
    assert reconciled == ["core"] * controller


async def test_older_and_newer_clients_are_accepted() -> None:
    """Fields that one side does not know are kept by the other."""
    pairs: list[tuple[ResourceType[Any], ResourceType[Any]]] = [(TEAM, NEWER), (NEWER, TEAM)]
    for theirs, ours in pairs:
        async with serving(theirs) as address, headway.connect(address, program(ours)) as client:
            assert (await client.read(ours, "core")).name == "core"


async def test_client_and_server_agree_about_which_fields_exclude_each_other() -> None:
    """The side with the oneof would remove one of two fields that the other side sets. A store refuses this, too."""

    def contact(oneof: str | None) -> ResourceType[Any]:
        class Contact:
            email: str | None = field(1, oneof=oneof)
            phone: str | None = field(2, oneof=oneof)

        return ResourceType("staff", "v1", "Contact", message(Contact))

    for theirs, ours in ((contact("way"), contact(None)), (contact(None), contact("way"))):
        async with serving(theirs) as address, headway.connect(address, program(ours)) as client:
            with pytest.raises(headway.errors.SchemaMismatch, match=r"staff\.v1\.Contact\.email"):
                await client.read(ours, "core")


async def test_workers_that_would_misread_end_with_an_error() -> None:
    """The error leaves the block, and no controller has run."""
    reconciled.clear()
    async with serving() as address:
        with trio.fail_after(20), pytest.raises(headway.errors.SchemaMismatch) as caught:
            async with headway.open_workers(address, program(WRONG, controller=True), process="web-1"):
                await trio.sleep_forever()
        assert str(caught.value) == SAID
        with trio.fail_after(20), pytest.raises(headway.errors.SchemaMismatch):
            async with headway.open_workers(address, program(WRONG, controller=True), process="web-1") as workers:
                await workers.client.read(WRONG, "core")
    assert reconciled == []


async def test_unreachable_server_is_compared_once_it_answers(autojump_clock: trio.testing.MockClock) -> None:
    """An unreachable server is not a failure. Each wait is longer than the one before, up to a limit."""
    away = failed(Status.UNAVAILABLE, "away")
    lists = Lists(*[away] * 20, describe([TEAM]))
    lists.may_answer.set()
    channel = Compared(lists, WRONG)
    began = autojump_clock.current_time()
    with trio.fail_after(5000), pytest.raises(headway.errors.SchemaMismatch):
        await channel.comparison.wait_refused(channel)
    assert (lists.asked, 60 < autojump_clock.current_time() - began < 1200) == (21, True)


async def test_mismatch_found_by_another_call_ends_the_wait(nursery: trio.Nursery) -> None:
    """A controller's call may find the mismatch while the first comparison waits to try again."""
    lists = Lists(failed(Status.UNAVAILABLE, "away"), describe([TEAM]))
    lists.may_answer.set()
    channel = Compared(lists, WRONG)
    ended: list[BaseException] = []

    async def wait() -> None:
        try:
            await channel.comparison.wait_refused(channel)
        except headway.errors.SchemaMismatch as error:
            ended.append(error)

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(headway.errors.SchemaMismatch):
        await channel.unary("/a/B", None, str)
    await trio.testing.wait_all_tasks_blocked()
    assert (len(ended), lists.asked) == (1, 2)


async def test_server_without_a_description_is_accepted() -> None:
    """Consul has none, and neither has an earlier version of Headway."""
    registry = program(TEAM).registry
    services = Services(ResourceService(MemoryBackend(), registry), ConsulService(MemoryBackend(), registry))
    async with (
        open_server(services, ["127.0.0.1:0"]) as server,
        headway.connect(server.addresses[0], program(WRONG)) as client,
    ):
        assert await client.get(WRONG, "core") is None


async def test_concurrent_callers_share_one_comparison(nursery: trio.Nursery) -> None:
    """If it fails, all of them fail before they are sent, and the next call compares again."""
    lists = Lists(failed(Status.UNAVAILABLE, "away"), describe([TEAM]))
    channel = Compared(lists, TEAM)
    client = headway.Client(channel, program(TEAM).registry)
    failures: list[BaseException] = []

    async def write() -> None:
        try:
            await client.write(TEAM.new("core"))
        except (Unavailable, OutcomeUnknown) as error:
            failures.append(error)

    for _ in range(5):
        nursery.start_soon(write)
    await trio.testing.wait_all_tasks_blocked()
    assert lists.asked == 1
    lists.may_answer.set()
    await trio.testing.wait_all_tasks_blocked()
    assert [type(each) for each in failures] == [Unavailable] * 5
    assert await channel.unary("/a/B", None, str) == "answered"
    assert await channel.unary("/a/B", None, str) == "answered"
    assert (lists.asked, lists.calls[-2:]) == (2, ["/a/B", "/a/B"])


async def test_invalid_description_is_reported() -> None:
    nonsense = describe([TEAM])
    nonsense.types[0].message = 7
    lists = Lists(nonsense)
    lists.may_answer.set()
    with pytest.raises(headway.errors.PayloadError, match="the server's description of its types can't be read"):
        await Compared(lists, TEAM).unary("/a/B", None, str)

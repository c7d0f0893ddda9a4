"""Headway in an asyncio program: Trio as a guest of asyncio's loop, and asyncio loops that stay unchanged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import headway
from headway import rpc
from headway.client import Client, LeaseClient
from headway.engine import Engine
from headway.events import ignore
from headway.observe import Metrics, open_pages
from headway.rpc import InProcessChannel
from tests.helpers.resources import Account, Team

assert rpc.open_server is not None  # Load the network modules before any asyncio loop exists.


def an_app() -> tuple[headway.App, headway.ResourceType[Team], list[str]]:
    app, seen = headway.App("staff"), list[str]()
    team = app.type("staff", "v1", "Team", Team)
    app.type("staff", "v1", "Account", Account)

    @app.controller(manages=team)
    async def teams(_: headway.Runtime, request: headway.Request[Team]) -> None:
        seen.append(request.id.name)

    return app, team, seen


async def as_guest(main: Callable[[], Awaitable[object]]) -> Any:
    """Run a function on Trio as the guest of asyncio's running loop."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    trio.lowlevel.start_guest_run(
        main,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        done_callback=done.set_result,
        host_uses_signal_set_wakeup_fd=True,
    )
    return (await asyncio.wait_for(done, 30)).unwrap()


def test_listening_engine_runs_inside_an_asyncio_program() -> None:
    """The engine serves writes and watches over the network and reconciles. Tasks and sockets of asyncio continue."""
    app, team, seen = an_app()

    async def on_trio() -> list[str]:
        async with (
            headway.open_engine(
                "memory:", app, network=headway.Network(["127.0.0.1:0"], insecure=True), report=ignore
            ) as engine,
            headway.connect(engine.addresses[0], app) as client,
            client.watch(team) as events,
        ):
            await client.write(team.new("core"))
            names = [each.resource.name async for each in _upserts(events, 1)]
            await engine.wait_idle()
            return names

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def on_asyncio() -> list[str]:
        guest = asyncio.create_task(as_guest(on_trio))
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            while True:
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.write(b"hello\n")
                assert await reader.readline() == b"hello\n"
                writer.close()
                await writer.wait_closed()
                assert await asyncio.to_thread(lambda: 5) == 5
                assert asyncio.get_running_loop() is asyncio.get_event_loop() is loop
                if guest.done():
                    return guest.result()  # type: ignore[no-any-return]

    assert asyncio.run(on_asyncio()) == ["core"]
    assert seen == ["core"]


async def _upserts(events: Any, count: int) -> Any:
    async for event in events:
        if isinstance(event, headway.client.Upserted):
            yield event
            count -= 1
            if not count:
                return


def test_asyncio_loops_of_the_program_are_unchanged() -> None:
    """This holds in every thread. trio-asyncio would make every loop one that runs Trio inside."""

    async def loop_class() -> type:
        await asyncio.sleep(0)
        return type(asyncio.get_running_loop())

    found: list[type] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(loop_class())))
    thread.start()
    thread.join(30)
    found.append(asyncio.run(loop_class()))
    assert found == [asyncio.SelectorEventLoop] * 2


async def _engine() -> None:
    async with headway.open_engine("memory:", an_app()[0]):
        raise AssertionError("it was opened without Trio")


async def _client() -> None:
    async with headway.connect("127.0.0.1:1", an_app()[0]):
        raise AssertionError("it was opened without Trio")


async def _workers() -> None:
    async with headway.open_workers("127.0.0.1:1", an_app()[0]):
        raise AssertionError("it was opened without Trio")


async def _channel() -> None:
    async with rpc.open_channel("127.0.0.1:1"):
        raise AssertionError("it was opened without Trio")


async def _pages() -> None:
    async with open_pages("127.0.0.1:0", list, Metrics()):
        raise AssertionError("it was opened without Trio")


async def _read() -> None:
    app, team, _ = an_app()
    await Client(InProcessChannel(), app.registry).read(team, "core")


async def _hold() -> None:
    async with headway.hold_lease(LeaseClient(InProcessChannel()), "staff/reports", holder="web-1"):
        raise AssertionError("it was taken")


async def _wait_idle() -> None:
    await Engine(None, None, ()).wait_idle()  # type: ignore[arg-type]  # the error needs neither


@pytest.mark.parametrize(
    ("opening", "what"),
    [
        (_engine, "headway.open_engine"),
        (_client, "headway.connect"),
        (_workers, "headway.open_workers"),
        (_channel, "headway.rpc"),
        (_pages, "headway.observe.open_pages"),
        (_read, "a client of Headway"),
        (_hold, "headway.hold_lease"),
        (_wait_idle, "wait_idle"),
    ],
)
def test_asyncio_run_fails_with_a_hint_to_use_trio_run(opening: Callable[[], Any], what: str) -> None:
    """Every entry point fails before anything is opened."""
    with pytest.raises(headway.errors.NotOnTrio) as caught:
        asyncio.run(opening())
    assert str(caught.value).startswith(
        f"{what} needs Trio, but Trio is not running: start the program with trio.run(main) instead of asyncio.run"
    )

"""Connections that accept no more calls: later calls use another connection, and the old one ends with its calls."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from h2.settings import SettingCodes

from headway import rpc
from tests.rpc.rpc_kit import ECHO, WAIT, Text, served


@pytest.mark.parametrize("waits_for", ["room to write", "a free stream"])
async def test_call_that_waits_when_the_server_says_goaway_uses_another_connection(waits_for: str) -> None:
    """The server would ignore its stream, and the call would last until its timeout with an unknown outcome."""
    async with served() as it, rpc.open_channel(it.where) as channel, trio.open_nursery() as nursery:
        answered = trio.Event()

        async def call() -> None:
            assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
            answered.set()

        nursery.start_soon(channel.unary, WAIT, Text(), Text)
        await it.echo.until_waiting(1)
        (theirs,), (ours,) = it.server._connections, channel._calls._protocols
        ours.pause_writing()
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked(0.01)
        if waits_for == "a free stream":
            # As if the server had just lowered its limit.
            settings = ours.connection.h2.remote_settings
            settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 1
            settings.acknowledge()
            ours.resume_writing()
            await trio.testing.wait_all_tasks_blocked(0.01)
        theirs.send_goaway()
        while not ours.connection.draining:
            await trio.testing.wait_all_tasks_blocked(0.001)
        ours.resume_writing()
        with trio.fail_after(10):
            await answered.wait()
        assert theirs.processor.calls == 1
        it.echo.release.set()


async def test_connection_without_more_ids_of_streams_is_replaced() -> None:
    """A forwarder with 5,000 calls a second uses all ids in two and a half days. Every call after that failed."""
    async with served() as it, rpc.open_channel(it.where) as channel, trio.open_nursery() as nursery:
        await channel.unary(ECHO, Text(), Text)
        (theirs,), (ours,) = it.server._connections, channel._calls._protocols
        ours.connection.h2.highest_outbound_stream_id = 2**31 - 5
        await channel.unary(ECHO, Text(), Text)
        nursery.start_soon(channel.unary, WAIT, Text(), Text)
        await it.echo.until_waiting(1)
        assert theirs.connection.h2.highest_inbound_stream_id == 2**31 - 1
        assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
        assert it.server.connections == 2
        it.echo.release.set()
        with trio.fail_after(10):
            while theirs in it.server._connections:
                await trio.testing.wait_all_tasks_blocked(0.001)
        assert (await channel.unary(ECHO, Text(text="b"), Text)).text == "b"
        assert it.server.connections == 1


async def test_calls_that_wait_for_the_last_ids_of_a_connection_all_succeed() -> None:
    async with served() as it, rpc.open_channel(it.where) as channel:
        await channel.unary(ECHO, Text(), Text)
        (theirs,), (ours,) = it.server._connections, channel._calls._protocols
        ours.connection.h2.highest_outbound_stream_id = 2**31 - 5
        ours.pause_writing()
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(channel.unary, ECHO, Text(), Text)
            await trio.testing.wait_all_tasks_blocked(0.01)
            ours.resume_writing()
        assert theirs.processor.calls == 3

"""Replies to a client that doesn't read: they are charged while they wait, and their calls end in time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from h2.events import WindowUpdated
from h2.settings import SettingCodes

from headway import rpc
from headway.protobuf import Payload, encode
from headway.rpc import Limits, Services, WireLimits
from tests.rpc.raw_kit import HEADERS, Raw
from tests.rpc.rpc_kit import COUNT, Echo, Text
from tests.rpc.test_replies import GIVE, PATIENCE, Replies, Size

KIB = 1 << 10
IMPATIENT = Limits(wire=WireLimits(stall_timeout=0.1, keepalive_timeout=0.1))


class Deaf(Raw):
    """A client that opens all windows and then reads nothing."""

    def call(self, path: str, request: Payload, **changed: str) -> None:
        id = self.h2.get_next_available_stream_id()
        changes = {":path": path, **{f":{name}": value for name, value in changed.items()}}
        self.h2.send_headers(id, [(name, changes.get(name, value)) for name, value in HEADERS])
        self.h2.send_data(id, rpc.framed(encode(request)), end_stream=True)


@asynccontextmanager
async def deaf(folder: Path, limits: Limits, *, forwarded: bool = False) -> AsyncIterator[tuple[Any, Deaf]]:
    """A server, and a client of it whose connection takes no more data."""
    own, before = f"unix:{folder / 'own'}", f"unix:{folder / 'before'}"
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        server = await stack.enter_async_context(rpc.open_server(Services(Replies(), Echo()), [own], limits=limits))
        if forwarded:
            server = await stack.enter_async_context(rpc.open_forwarder(own, [before], limits=limits, grace=0))
        where = before if forwarded else own
        client = Deaf(await stack.enter_async_context(await trio.open_unix_socket(where.removeprefix("unix:"))))
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: (1 << 31) - 1})
        client.h2.increment_flow_control_window(1 << 30)
        await client.flush()
        await client.until(lambda event: isinstance(event, WindowUpdated))
        client.call(GIVE, Size(size=2000 * KIB))
        await client.flush()
        (connection,) = server._connections
        while connection.connection.write_ready.is_set():
            await trio.testing.wait_all_tasks_blocked(0.001)
        yield server, client


async def test_replies_whose_headers_wait_are_charged_to_the_budget(tmp_path: Path) -> None:
    async with deaf(tmp_path, Limits()) as (server, client):
        for _ in range(5):
            client.call(GIVE, Size(size=100 * KIB))
        await client.flush()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert 2500 * KIB < server._replies.taken < 2510 * KIB


async def test_replies_whose_headers_wait_are_dropped_over_the_limit(tmp_path: Path) -> None:
    async with deaf(tmp_path, Limits(wire=WireLimits(replies_size=2100 * KIB, keepalive_timeout=0.1))) as (
        server,
        client,
    ):
        for _ in range(5):
            client.call(GIVE, Size(size=2000 * KIB))
        await client.flush()
        (calls,) = server._connections.values()
        await trio.testing.wait_all_tasks_blocked(0.01)
        while len(calls._calls) > 1:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert 2000 * KIB < server._replies.taken < 2010 * KIB


@pytest.mark.parametrize("forwarded", [False, True])
async def test_calls_of_a_client_that_does_not_read_end_after_the_stall_timeout(
    tmp_path: Path,
    forwarded: bool,
) -> None:
    """Not even their headers can be sent. The calls are small and large ones, a stream, an error and a rejection."""
    async with deaf(tmp_path, IMPATIENT, forwarded=forwarded) as (server, client):
        client.call(GIVE, Size(size=10))
        client.call(GIVE, Size(size=100 * KIB))
        client.call(COUNT, Text(text="0"))
        client.call("/test.Echo/Nothing", Text())
        client.call(GIVE, Size(), method="PUT")
        await client.flush()
        ((connection, calls),) = server._connections.items()
        while connection.processor.calls < 6:
            await trio.testing.wait_all_tasks_blocked(0.001)
        while calls._calls:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert server._replies.taken == 0
        assert not connection.connection.write_ready.is_set()

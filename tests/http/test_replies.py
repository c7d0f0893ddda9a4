"""Answers that wait for their clients: their bytes count toward one budget, and the largest gives way."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack

import pytest
import trio

from headway.http import RequestLimits
from tests.http.kit import CORE, TEAM, TEAMS, Team, serving

MIB = 1 << 20
NOTE = "x" * (2 * MIB)


async def asked(where: str, path: str, stack: AsyncExitStack) -> trio.SocketStream:
    """Ask for a resource, wait until its answer has begun, and read none of it."""
    connection = trio.socket.socket()
    stream = trio.SocketStream(connection)
    stack.push_async_callback(stream.aclose)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = where.rsplit(":", 1)
    await connection.connect((host, int(port)))
    await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await trio.lowlevel.wait_readable(connection)
    return stream


async def rest(stream: trio.SocketStream) -> int:
    """Read until the connection is closed or quiet, and return the number of bytes."""
    size = 0
    try:
        while size < len(NOTE) and (data := await stream.receive_some(65536)):
            size += len(data)
    except trio.BrokenResourceError:
        pass
    return size


@pytest.mark.parametrize(("path", "copies"), [(CORE, 1), (TEAMS, 2)], ids=["resource", "list"])
async def test_oldest_of_the_largest_answers_gives_way(path: str, copies: int) -> None:
    """There is room for two. The resource of a list is held beside its text. An answer that was read is released."""
    limits = RequestLimits(replies_size=5 * MIB * copies)
    async with serving(limits=limits) as api, AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(20))
        await api.client.write(TEAM.new("core", Team(note=NOTE)))
        first, second, third = [await asked(api.address, path, stack) for _ in range(3)]
        assert await rest(first) < len(NOTE)
        assert await rest(second) >= len(NOTE)
        assert await rest(third) >= len(NOTE)
        assert len((await api.http.get(path)).content) > len(NOTE)

"""Lists that their callers do not read take a bounded amount of memory in all, over gRPC and HTTP together."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
import trio.testing
from h2.events import ResponseReceived, StreamReset, TrailersReceived
from h2.settings import SettingCodes

from headway import rpc
from headway.protobuf import encode
from headway.resource import pb
from tests.helpers.list_program import BUDGET, COUNT, LARGE_COUNT, LARGE_SIZE, MIB, PAGE, SIZE
from tests.rpc.raw_kit import HEADERS, Raw, tcp

pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the memory of a process is read from /proc"),
]

LIST = "/headway.resource.v1.ResourceService/List"
BY_OWNER = "/headway.resource.v1.ResourceService/ListByOwner"
WATCH = "/headway.resource.v1.ResourceService/WatchList"
PATIENCE = 60.0
CONNECTIONS, CALLS, REQUESTS = 4, 10, 20
"""Forty lists over gRPC and twenty over HTTP have 480 MiB, and take more than that while they are decoded."""
WATCHES = 400
"""Each holds a page of its snapshot, of about 256 KiB: as much again while it is decoded."""
BOUND = BUDGET + 48 * MIB
"""The budget, the parts that are being read, and what the allocator and the sockets hold: they take 16 MiB."""

LARGE_BOUND = BOUND + 8 * 2 * LARGE_SIZE
"""A part is one of the large resources, which is held decoded and encoded."""


class Program(NamedTuple):
    pid: int
    grpc: str
    http: str
    uid: str

    def memory(self, name: str) -> int:
        """Return a number of bytes from the system's report on the process: VmRSS, or VmHWM for the peak."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


@asynccontextmanager
async def program(folder: Path, *size: str) -> AsyncIterator[Program]:
    command = [sys.executable, "-m", "tests.helpers.list_program", f"sqlite:{folder / 'a.db'}", *size]
    async with await trio.open_file(folder / "log", "w") as log:
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=log.wrapped, stderr=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            said = b""
            while not said.endswith(b"\n"):
                more = await process.stderr.receive_some()
                assert more, (folder / "log").read_text()
                said += more
            yield Program(process.pid, *said.decode().split())
        finally:
            await process.stdin.aclose()
            with trio.move_on_after(PATIENCE, shield=True) as late:
                await process.wait()
            if late.cancelled_caught:
                process.kill()
            await process.stderr.aclose()


EVERYTHING = pb.ListRequest(type=PAGE.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))


async def unread_calls(
    where: str,
    stack: AsyncExitStack,
    path: str = LIST,
    count: int = CALLS,
    request: pb.ListRequest | pb.ListByOwnerRequest = EVERYTHING,
) -> Raw:
    """Ask for lists or snapshots on a connection whose windows are closed."""
    raw = Raw(await stack.enter_async_context(tcp(where)))
    raw.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    for _ in range(count):
        id = raw.h2.get_next_available_stream_id()
        raw.h2.send_headers(id, [(name, path if name == ":path" else value) for name, value in HEADERS])
        raw.h2.send_data(id, rpc.framed(encode(request)), end_stream=True)
    await raw.flush()
    return raw


async def until_answered(raw: Raw, count: int = CALLS) -> None:
    """Wait until each call has an answer whose content does not arrive, or an error."""
    answered: set[int] = set()
    while len(answered) < count:
        raw.events += raw.h2.receive_data(await raw.stream.receive_some(65536))
        ends = (ResponseReceived, TrailersReceived, StreamReset)
        answered |= {each.stream_id for each in raw.events if isinstance(each, ends)}
        await raw.flush()


async def unread_request(where: str, stack: AsyncExitStack) -> trio.SocketStream:
    """Ask for a list over HTTP, with a small buffer for the answer."""
    connection = trio.socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = where.rsplit(":", 1)
    await connection.connect((host, int(port)))
    stream = await stack.enter_async_context(trio.SocketStream(connection))
    await stream.send_all(b"GET /api/lists/v1/page?partition=*&namespace=* HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return stream


async def listed(program: Program) -> int:
    """Return the number of resources that a client that reads gets, after refusals to be repeated."""
    request = pb.ListRequest(type=PAGE.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"), page_size=100)
    async with rpc.open_channel(program.grpc) as channel:
        return len((await channel.unary(LIST, request, pb.ListResponse)).resources)


async def test_unread_snapshots_take_bounded_memory_in_all(tmp_path: Path) -> None:
    async with program(tmp_path) as served, AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(3 * PATIENCE))
        before = served.memory("VmRSS")
        await until_answered(await unread_calls(served.grpc, stack, WATCH, WATCHES), WATCHES)
        assert served.memory("VmHWM") - before < BOUND


async def test_unread_lists_take_bounded_memory_in_all(tmp_path: Path) -> None:
    """A client that reads is served meanwhile, and the memory is returned once the others have left."""
    with trio.fail_after(3 * PATIENCE):
        async with program(tmp_path) as served:
            before = served.memory("VmRSS")
            async with AsyncExitStack() as stack:
                calls = [await unread_calls(served.grpc, stack) for _ in range(CONNECTIONS)]
                requests = [await unread_request(served.http, stack) for _ in range(REQUESTS)]
                async with trio.open_nursery() as nursery:
                    for raw in calls:
                        nursery.start_soon(until_answered, raw)
                    for each in requests:
                        nursery.start_soon(trio.lowlevel.wait_readable, each.socket)
                assert CONNECTIONS * CALLS * COUNT * SIZE > 2 * BOUND
                assert await listed(served) == 100
                assert served.memory("VmHWM") - before < BOUND
            while served.memory("VmRSS") - before > BUDGET:
                await trio.testing.wait_all_tasks_blocked(0.1)


async def test_lists_of_large_resources_take_bounded_memory_in_all(tmp_path: Path) -> None:
    """Pages and lists by owner are read in parts that end at their bytes, and not at their number of resources."""
    async with program(tmp_path, "large") as served, AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(3 * PATIENCE))
        before = served.memory("VmRSS")
        owner = pb.Id(type=PAGE.name.message(), name="n00000", uid=served.uid)
        pages = await unread_calls(served.grpc, stack, LIST, request=replace(EVERYTHING, page_size=100))
        owned = await unread_calls(served.grpc, stack, BY_OWNER, request=pb.ListByOwnerRequest(owner=owner))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_answered, pages)
            nursery.start_soon(until_answered, owned)
        assert 2 * CALLS * LARGE_COUNT * LARGE_SIZE > 2 * LARGE_BOUND
        assert served.memory("VmHWM") - before < LARGE_BOUND

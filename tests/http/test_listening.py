"""The end of a server over HTTP: what is in progress is answered, also if its block is canceled."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from headway.api import Call
from headway.http import Bounds, Offered, RequestLimits, _app, open_http
from headway.rpc import Services
from headway.service import ResourceService, StoreService, TypesService
from headway.storage import MemoryBackend
from tests.helpers.wrapped_services import Wrap, WrappedServices, answering, unchanged
from tests.http.kit import BOUNDS, CORE, NO_CERTIFICATES, TEAMS, asked, registry, serving
from tests.rpc.raw_kit import tcp


@asynccontextmanager
async def until_canceled(wrap: Wrap, meanwhile: Callable[[], Awaitable[None]]) -> AsyncIterator[Any]:
    """Serve in another task, and yield the address and the scope that cancels it.

    ``meanwhile`` runs inside of the server's block once that is canceled, as the end of a server of gRPC would.
    """
    types, scope, backend = registry(), trio.CancelScope(), MemoryBackend()
    plain = [ResourceService(backend, types), StoreService(backend, types), TypesService(types)]
    offered = Offered(Services(WrappedServices(wrap, *plain)), types, None, lambda *_: None, RequestLimits())

    async def serve(task_status: trio.TaskStatus[str]) -> None:
        with scope:
            async with open_http("127.0.0.1:0", offered, BOUNDS) as address:
                try:
                    task_status.started(address)
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await meanwhile()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            yield await nursery.start(serve), scope


async def nothing() -> None:
    """Do nothing."""


async def test_canceled_server_answers_the_requests_in_progress() -> None:
    """SIGTERM cancels a server. Otherwise a client would not learn that its write has been stored."""
    begun, may_answer = trio.Event(), trio.Event()
    codes: list[int] = []

    async def late(_: str, call: Call, request: Any, answer: Any) -> Any:
        reply = await answer(call, request)
        begun.set()
        await may_answer.wait()
        return reply

    async with (
        until_canceled(answering(late), nothing) as (address, scope),
        httpx.AsyncClient(base_url=f"http://{address}", timeout=30, verify=NO_CERTIFICATES) as http,
        trio.open_nursery() as nursery,
    ):

        async def put() -> None:
            codes.append((await http.put(CORE, json={"data": {"note": "on call"}})).status_code)

        nursery.start_soon(put)
        await begun.wait()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        may_answer.set()
    assert codes == [200]


async def test_canceled_server_ends_its_watches_before_what_its_block_holds() -> None:
    """So its clients resume elsewhere at once, although a server of gRPC in the block takes its time to end."""
    last: dict[str, Any] = {}
    ended = trio.Event()
    async with until_canceled(unchanged, ended.wait) as (address, scope):
        try:
            async with asked(address, f"{TEAMS}?watch") as answer:
                while (line := await answer.line()) is not None:
                    last = json.loads(line)
                    if last["type"] == "endOfSnapshot":
                        scope.cancel()
        finally:
            ended.set()
    assert (last["type"], last["status"], last["code"]) == ("failed", 503, "UNAVAILABLE")


async def test_server_closes_the_connection_of_a_watch_that_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """So its end does not take the whole grace period because a client keeps its connection open."""
    monkeypatch.setattr(_app, "_GRACE", 20.0)
    got, stopped = b"", 0.0
    with trio.fail_after(30):
        async with AsyncExitStack() as stack:
            async with serving(bounds=Bounds(64, 64, patience=1000.0, stall=1000.0)) as api:
                client = await stack.enter_async_context(tcp(api.address))
                await client.send_all(f"GET {TEAMS}?watch HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                while b"endOfSnapshot" not in got:
                    got += await client.receive_some()
                stopped = trio.current_time()
            assert trio.current_time() - stopped < 20
            while piece := await client.receive_some():
                got += piece
    assert got.endswith(b"\r\n0\r\n\r\n")
    assert b'"UNAVAILABLE"' in got

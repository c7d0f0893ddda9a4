"""The client of the demonstration allows each call the results that were allowed while it ran, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from mesh.demo.__main__ import sum_up
from mesh.demo.load import LANES, Load, Result

SERVED, REFUSED, LOST = Result.SERVED, Result.REFUSED, Result.LOST
ANSWERS = {SERVED: b"200 OK", REFUSED: b"403 Forbidden", LOST: b"503 Service Unavailable"}


class Server:
    """It answers with one result, at once or when it may."""

    def __init__(self) -> None:
        self.result = SERVED
        self.may_answer = trio.Event()
        self.may_answer.set()
        self.waiting = 0

    async def answer(self, stream: trio.SocketStream) -> None:
        async for _ in stream:
            self.waiting += 1
            await self.may_answer.wait()
            self.waiting -= 1
            await stream.send_all(b"HTTP/1.1 %s\r\ncontent-length: 2\r\n\r\nme" % ANSWERS[self.result])


@asynccontextmanager
async def calling() -> AsyncIterator[tuple[Load, Server]]:
    """Run the client against a server."""
    server = Server()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.answer, 0, host="127.0.0.1"))
        load = Load(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/")
        nursery.start_soon(load.run)
        with trio.fail_after(20):
            yield load, server
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("result", [SERVED, REFUSED, LOST])
@pytest.mark.parametrize("allowed", [SERVED, REFUSED, SERVED | LOST])
async def test_only_a_result_that_is_not_allowed_is_a_fault(allowed: Result, result: Result) -> None:
    async with calling() as (load, server):
        load.expect(SERVED | REFUSED | LOST)
        server.result = result
        await load.until(lambda _, found: found is result, 2 * LANES)
        load.lost = 0
        load.expect(allowed)
        # The calls that were running may end as it was allowed before.
        await load.sample(LANES)
        await load.sample(LANES)
        assert (load.wrong > 0) is (result not in allowed)
        # Those that were running count as lost, too.
        assert load.lost > 0 or result is not LOST or LOST not in allowed
        assert sum_up(load, 0) == (1 if load.wrong else 0)


async def test_call_that_runs_during_a_change_may_end_either_way() -> None:
    async with calling() as (load, server):
        await load.sample(LANES)
        server.may_answer = trio.Event()
        while server.waiting < LANES:  # noqa: ASYNC110  # the calls of another task
            await trio.sleep(0.001)
        load.expect(REFUSED)
        server.result = REFUSED
        server.may_answer.set()
        await load.until(lambda _, found: found is REFUSED, 2 * LANES)
        assert load.wrong == 0

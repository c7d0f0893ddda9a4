"""Partly received frames and header blocks: the amount that a server keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from hyperframe.frame import SettingsFrame

from headway.events import ConnectionEnded
from headway.rpc import Limits
from tests.rpc.hostile_bytes import PREFACE, raw_frame
from tests.rpc.raw_kit import tcp, until_closed
from tests.rpc.rpc_kit import served

KIB = 1 << 10
BEGIN = PREFACE + SettingsFrame(0).serialize()
# Nothing in a header block is decoded before its end.
BLOCK = raw_frame(14 * KIB, 1, 0, 1, b"x" * (14 * KIB))
UNFINISHED = {
    "frame": BLOCK[:-1],
    "header block": BLOCK,
    "continued block": BLOCK + raw_frame(KIB, 9, 0, 1, b"x" * KIB),
}


@asynccontextmanager
async def _sent(where: str, data: bytes) -> AsyncIterator[trio.SocketStream]:
    async with tcp(where) as stream:
        await stream.send_all(BEGIN + data)
        yield stream


async def _until_taken(budget: Any) -> None:
    with trio.fail_after(20):
        while not budget.taken:
            await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("kind", UNFINISHED)
async def test_unfinished_frames_count_against_the_budget_of_the_server(kind: str) -> None:
    """The budget has room for three of four connections. The oldest is ended with a reason."""
    ended: list[ConnectionEnded] = []
    limits = Limits(message_size=KIB, server_requests_size=56 * KIB)
    async with served(limits=limits, notify=ended.append) as it:
        budget = it.server._budget
        async with _sent(it.where, UNFINISHED[kind]) as first:
            await _until_taken(budget)
            async with (
                _sent(it.where, UNFINISHED[kind]),
                _sent(it.where, UNFINISHED[kind]),
                _sent(it.where, UNFINISHED[kind]),
            ):
                with trio.fail_after(20):
                    await until_closed(first)
                assert 40 * KIB < budget.taken <= 49 * KIB
        while it.server.connections:
            await trio.testing.wait_all_tasks_blocked()
        assert budget.taken == 0
    assert [each.why for each in ended] == ["incomplete requests take too much memory"]

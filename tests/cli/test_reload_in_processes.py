"""SIGHUP to the supervisor of `headway serve --processes`: it reaches each process once that can handle it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from headway.cli._process_options import ProcessOptions
from headway.cli._processes import Plan, _Process, _run
from headway.cli._sibling import Sibling

OPTIONS = ProcessOptions(None, False, None, 1.0, False, None, None, False)
# It tells of its start, of each order and of each SIGHUP. The order "g" lets it serve, and "e" lets it end.
CHILD = """
import json, os, signal, sys

serves = json.loads(os.environ["HEADWAY_SIBLING"])["serves"]
orders, told = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_WRONLY)
signal.signal(signal.SIGHUP, lambda *_: os.write(told, b"r"))
os.write(told, b"s")
while (order := os.read(orders, 1)) != b"e":
    os.write(told, order)
    os.write(serves, b".")
"""


@asynccontextmanager
async def fifo(path: Path) -> AsyncIterator[trio.lowlevel.FdStream]:
    os.mkfifo(path)
    async with trio.lowlevel.FdStream(os.open(path, os.O_RDWR)) as stream:
        yield stream


@pytest.mark.parametrize("restarted", [False, True])
async def test_process_that_is_starting_reloads_as_soon_as_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """It may have read the access file before the file changed, and would accept a revoked token for ever."""
    paths = tmp_path / "orders", tmp_path / "told"
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-ISc", CHILD, *map(str, paths)])
    plan = Plan(1, [], OPTIONS)
    process = _Process(Sibling(1, "web", 1, [], str(tmp_path), -1, -1), plan)
    # Without a receiver, the signal would end the tests.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with fifo(paths[0]) as orders, fifo(paths[1]) as told, trio.open_nursery() as nursery:

            async def until_told(wanted: bytes) -> None:
                for each in wanted:
                    assert await told.receive_some(1) == bytes([each])

            with trio.fail_after(10):
                nursery.start_soon(_run, [process], plan, "web", [])
                await until_told(b"s")
                if restarted:
                    await orders.send_all(b"g")
                    await until_told(b"g")
                    while not process._serves:
                        await trio.testing.wait_all_tasks_blocked()
                    await orders.send_all(b"e")
                    await until_told(b"s")
                os.kill(os.getpid(), signal.SIGHUP)
                # The supervisor handles the signal before this.
                await trio.testing.wait_all_tasks_blocked()
                await orders.send_all(b"g")
                await until_told(b"gr")
            nursery.cancel_scope.cancel()
    finally:
        signal.signal(signal.SIGHUP, before)

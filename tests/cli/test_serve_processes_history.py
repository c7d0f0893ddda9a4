"""Watches of two processes on one port keep every rule of a history while the processes are killed in turn."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from headway.rpc import Channel, InProcessChannel, open_channel
from headway.service import WATCH_LIST, LeaseService, ResourceService, StoreService, WatchDecoder
from headway.storage import EtcdBackend
from tests.cli.conftest import Started
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.process_group import NAMES, Group, started, store_of
from tests.helpers.watch_load import HISTORY, WatchLoad, load_registry

SEED = int(os.environ.get("HEADWAY_HISTORY_SEED", "1"))
WRITES = int(os.environ.get("HEADWAY_HISTORY_WRITES", "300"))


@pytest.mark.deep
@pytest.mark.timeout(240)
async def test_watches_of_processes_that_are_killed_keep_every_rule(start: Started, etcd: EtcdServer) -> None:
    """Watchers and writers reach either process, and move to the other one. The witnesses read the store directly."""
    store = store_of(etcd) + f"?max_changes={HISTORY}"
    group = started(start, store, "tests.helpers.load_program:app")
    async with EtcdBackend(store, max_changes=HISTORY) as backend:
        registry = load_registry()
        direct = InProcessChannel(
            ResourceService(backend, registry), LeaseService(backend), StoreService(backend, registry)
        )

        @asynccontextmanager
        async def connect(number: int) -> AsyncIterator[Channel]:
            # Number 0 is the witnesses' channel, which must not break: the others are compared with them.
            if number == 0:
                yield direct
                return
            async with open_channel(group.address, decoders={WATCH_LIST: WatchDecoder}) as channel:
                yield channel

        load = WatchLoad(SEED, backend, connect, writes=WRITES)
        killed = list[str]()
        with trio.fail_after(220):
            async with trio.open_nursery() as nursery:
                killing = trio.CancelScope()
                nursery.start_soon(_kill_in_turn, group, killed, killing)
                await load.run(killing.cancel)
        load.check()
    assert {*killed} == {*NAMES}
    assert min(load.did[each] for each in ("UNAVAILABLE", "resumed", "left")) > 0, load.did


async def _kill_in_turn(group: Group, killed: list[str], scope: trio.CancelScope) -> None:
    """Kill one process after the other, each time that both serve."""
    with scope:
        for name in itertools.cycle(NAMES):
            await group.until_page("/readyz", "web-1: ok", "web-2: ok")
            # The load goes on while both serve.
            await trio.sleep(0.5)
            await trio.to_thread.run_sync(group.kill, name)
            killed.append(name)

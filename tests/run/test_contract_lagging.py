"""C3 with a lagging server: a controller waits, reports what it waits for, and tries another server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.api import Handler
from headway.events import RunEnded, StreamLagging
from headway.protobuf import decode, encode
from headway.resource import Registry, pb
from headway.rpc import InProcessChannel
from headway.service import WATCH_LIST, ResourceService
from headway.storage import Backend, MemoryBackend, Put
from tests.helpers.pools import Member, PoolsApp
from tests.helpers.rig import Rig
from tests.helpers.settings import OVER_THE_NETWORK, Setting
from tests.helpers.truth import RecordingBackend, RecordingSqlite
from tests.helpers.wrapped_services import unchanged

LAG_LIMIT = 10.0

pytestmark = pytest.mark.parametrize("setting", OVER_THE_NETWORK, indirect=True)


def _registry(pools: PoolsApp) -> Registry:
    registry = Registry()
    for type in pools.types:
        registry.register(type)
    return registry


async def _replica(store: RecordingBackend | RecordingSqlite) -> MemoryBackend:
    """Return a copy of a store in which every commit so far was a creation. The copy receives no further changes."""
    replica = MemoryBackend()
    replica._store_id, replica._session = store.position.store_id, store.position.session
    for commit in store.commits:
        assert commit.new is not None
        stored = Put(commit.kind, commit.key, decode(pb.Resource, encode(commit.new)), "")
        assert (await replica.commit([stored])).revision == commit.revision
    return replica


@asynccontextmanager
async def _lagging(setting: Setting, store: Backend, replica: Backend, pools: PoolsApp) -> AsyncIterator[str]:
    """Serve watches from the replica, and everything else from the store, as a quorum would answer it."""
    behind = ResourceService(replica, _registry(pools)).__mapping__()[WATCH_LIST]

    def lag(path: str, handler: Handler) -> Handler:
        return behind if path == WATCH_LIST else handler

    setting.wrap = lag
    async with setting.serving(store, pools.app) as where:
        setting.wrap = unchanged
        yield where


async def test_c3_lagging_server_is_left_for_another_after_a_wait(autojump_clock: MockClock, setting: Setting) -> None:
    """The first server's snapshots end below the starting revision, and nothing follows.

    The second server is current.
    """
    rig = Rig(autojump_clock, setting=setting)
    rig.lag_limit = LAG_LIMIT
    async with rig.store as store:
        rig.opened = True
        client = headway.Client(InProcessChannel(ResourceService(store, _registry(rig.pools))), _registry(rig.pools))
        await client.write(rig.pools.pool.new("a"))
        await client.write(rig.pools.member.new("m", Member(pool="a")))
        replica = await _replica(rig.store)
        # The lagging server has neither of these.
        await client.write(rig.pools.pool.new("b"))
        await client.write(rig.pools.member.new("n", Member(pool="b")))
        async with _lagging(setting, store, replica, rig.pools) as where:
            rig.first = [where]
            async with rig.open() as engine:
                await trio.sleep(LAG_LIMIT * 0.9)
                status = engine.controllers["pools"].status()
                assert status.phase == "priming"
                assert f"for test.v1.Pool (1 resources, revision 2 of {status.starting_revision})" in status.problem
                assert status.starting_revision > replica.position.revision
                assert rig.names == []

                await rig.wait_idle(LAG_LIMIT)
                assert {each.type for each in rig.witness.events_of(StreamLagging)} == {
                    type.name for type in rig.pools.types
                }
                assert engine.controllers["pools"].status().phase == "running"
                assert rig.witness.events_of(RunEnded) == []
                start = rig.witness.started
                assert start == status.starting_revision
                assert all(min(seen.frontiers.values()) >= start for seen in rig.witness.reconciles)
                assert await rig.summaries() == {"a": ["m"], "b": ["n"]}

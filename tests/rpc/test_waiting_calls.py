"""Calls that ask the server to wait before it answers."""

from __future__ import annotations

import trio

from headway import rpc
from headway.client import LeaseClient
from tests.rpc.rpc_kit import served


async def test_wait_for_a_lease_is_added_to_the_call_timeout() -> None:
    """A channel with a short timeout does not end a request that asked the server to answer later."""
    async with served() as it, rpc.open_channel(it.where, timeout=0.1) as channel, trio.open_nursery() as nursery:
        held = await it.backend.acquire_lease("staff/reports", "web-1", 100.0, "")

        async def leave() -> None:
            # The timeout of the call has passed, but the wait of the request has not.
            await trio.sleep(0.15)
            await it.backend.release_lease("staff/reports", "web-1", held.held.lease.term)

        nursery.start_soon(leave)
        answer = await LeaseClient(channel).acquire("staff/reports", "web-2", 15, wait=15)
        assert answer.acquired

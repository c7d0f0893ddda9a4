"""Calls that ask the server to wait before it answers."""

from __future__ import annotations

from itertools import pairwise

import trio

from headway import rpc
from headway.client import LeaseClient
from tests.rpc.rpc_kit import WAIT, Echo, Text, served


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


class Decoded(trio.abc.Instrument):
    """The turns of the loop in which requests of calls that wait were decoded."""

    def __init__(self, service: Echo) -> None:
        self.turns: list[int] = []
        self._service = service
        self._turn = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - Trio's
        self.turns += [self._turn] * (self._service.waiting - len(self.turns))

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002 - Trio's
        self._turn += 1


async def test_calls_of_others_get_turns_between_large_requests() -> None:
    """A call takes some turns of the loop. It does not wait for a large request, which may take long, in each."""
    async with served() as it, rpc.open_channel(it.where) as channel, trio.open_nursery() as nursery:
        decoded = Decoded(it.echo)
        trio.lowlevel.add_instrument(decoded)
        for _ in range(6):
            nursery.start_soon(channel.unary, WAIT, Text(text="x" * 300_000), Text)
        with trio.fail_after(30):
            await it.echo.until_waiting(6)
        trio.lowlevel.remove_instrument(decoded)
        it.echo.release.set()
    assert min(later - earlier for earlier, later in pairwise(decoded.turns)) >= 12

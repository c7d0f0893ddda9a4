"""A caller of `hold_lease` within the process that is canceled after the lease was granted, and before the block."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock
from typing_extensions import override

from headway import hold_lease
from headway.client import LeaseClient
from headway.errors import OutcomeUnknown, Unavailable
from headway.rpc import InProcessChannel
from headway.service import LeaseService
from headway.storage import Acquired, MemoryBackend
from tests.client.test_hold_lease import NAME, TTL

HOLDER = "ada"


class CancelsAfterGrant(MemoryBackend):
    """A store that cancels the caller in the request that begins its term, or in the next one.

    A granted request whose outcome is ``unknown`` fails. So does the next one.
    """

    def __init__(self, when: str) -> None:
        super().__init__()
        self.caller = trio.CancelScope()
        self._when = when
        self._granted = False

    @override
    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        if self._granted and not self.caller.cancel_called:
            self.caller.cancel()
            raise Unavailable("the store failed")
        answer = await super().acquire_lease(name, holder, ttl, attempt)
        if answer.acquired and holder == HOLDER and not self._granted:
            self._granted = True
            if self._when != "next":
                self.caller.cancel()
            if self._when == "unknown":
                raise OutcomeUnknown("the store failed")
        return answer


@pytest.mark.parametrize("when", ["granted", "next", "unknown"])
async def test_lease_granted_before_a_cancellation_within_the_process_is_released(
    autojump_clock: MockClock, when: str
) -> None:
    """The canceled request had no effect, but the one before it began a term so late that it is repeated."""
    del autojump_clock
    backend = CancelsAfterGrant(when)
    leases = LeaseClient(InProcessChannel(LeaseService(backend)))
    assert leases.knows_outcomes
    assert not leases.lasting

    async def hold() -> None:
        with backend.caller:
            async with hold_lease(leases, NAME, holder=HOLDER, ttl=TTL):
                pytest.fail("the block has run")

    held = await backend.acquire_lease(NAME, "grace", TTL)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
        await trio.sleep(8)
        await backend.release_lease(NAME, "grace", held.held.lease.term)
    assert backend.caller.cancelled_caught
    assert (await backend.list_leases())[0] == []
    assert trio.current_time() < 9

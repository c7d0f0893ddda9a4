"""A client that holds a lease over an unreliable network: it acquires, renews, stops in time and releases."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from typing import Any

import pytest
import trio
from grpclib.const import Status
from trio.testing import MockClock, wait_all_tasks_blocked
from typing_extensions import override

import headway
from headway import HeldLease, events, hold_lease
from headway.client import LeaseClient
from headway.errors import InvalidArgument, LeaseLost, PermissionDenied, Unavailable
from headway.rpc import InProcessChannel, PassingChannel
from headway.service import LeaseService
from headway.storage import Fence, FenceLowered, MemoryBackend
from headway.testing.conformance import put, thing
from tests.helpers.service_errors import failed

NAME, TTL = "staff/reports", 15.0


class Fault(enum.Enum):
    """A fault that a call meets."""

    FAILED = "not done, answered by UNAVAILABLE"
    LOST = "done, answered by UNAVAILABLE"
    SILENT = "done, never answered"
    DENIED = "not done, answered by PERMISSION_DENIED"


class Network(PassingChannel):
    """A channel to a lease service that injects the faults of a test. ``calls`` lists all calls."""

    remote = True

    def __init__(self, backend: MemoryBackend) -> None:
        super().__init__(InProcessChannel(LeaseService(backend)))
        self.calls: list[str] = []
        self.times: list[float] = []
        self.faults: dict[str, deque[Fault]] = {}
        self.broken: Fault | None = None
        self.latency = 0.0

    @override
    async def unary(self, path: str, *rest: Any, **options: Any) -> Any:
        method = path.rpartition("/")[2]
        self.calls.append(method)
        self.times.append(trio.current_time())
        faults = self.faults.get(method)
        fault = faults.popleft() if faults else self.broken
        if fault is Fault.FAILED:
            raise failed(Status.UNAVAILABLE, "no answer")
        if fault is Fault.DENIED:
            raise failed(Status.PERMISSION_DENIED, "not you")
        reply = await super().unary(path, *rest, **options)
        await trio.sleep(self.latency)
        if fault is Fault.LOST:
            raise failed(Status.UNAVAILABLE, "the answer was lost")
        if fault is Fault.SILENT:
            await trio.sleep_forever()
        return reply


class World:
    """A store and a network to it, under the virtual time of a test's clock."""

    def __init__(self, clock: MockClock) -> None:
        self.clock = clock
        self.backend = MemoryBackend()
        self.network = Network(self.backend)
        self.leases = LeaseClient(self.network)
        self.heard: list[object] = []

    def hold(self, holder: str = "ada", **rest: Any) -> AbstractAsyncContextManager[HeldLease]:
        return hold_lease(self.leases, NAME, holder=holder, ttl=TTL, report=self.heard.append, **rest)

    async def holder(self) -> tuple[str, int] | None:
        """Return the holder and the term of the lease, as stored by the server."""
        held, _ = await self.backend.list_leases()
        return (held[0].lease.holder, held[0].lease.term) if held else None


async def test_lease_is_held_while_its_block_runs(autojump_clock: MockClock) -> None:
    """The lease is renewed a few times per ttl in the same term, and released at the end of the block."""
    world = World(autojump_clock)
    async with world.hold() as lease:
        began = len(world.network.calls)
        for _ in range(100):
            await trio.sleep(TTL)
            assert lease.held
            assert TTL * 0.3 < lease.remaining <= TTL * 0.8
            assert await world.holder() == ("ada", lease.term)
        renewals = len(world.network.calls) - began
        assert 300 <= renewals <= 100 * 3 / 0.7
    assert await world.holder() is None
    assert [type(event) for event in world.heard] == [events.LeaseTaken, events.LeaseEnded]
    assert world.network.calls[-1] == "Release"


async def test_renewals_have_jitter(autojump_clock: MockClock) -> None:
    """The leases of one process are not all renewed at once."""
    world = World(autojump_clock)
    async with world.hold():
        await trio.sleep(TTL * 10)
        times = world.network.times[:]
    gaps = [round(later - earlier, 1) for earlier, later in pairwise(times)]
    assert len(set(gaps)) > 5
    assert all(TTL / 3 * 0.69 < gap < TTL / 3 * 1.01 for gap in gaps)


async def test_error_of_the_block_propagates_unchanged(autojump_clock: MockClock) -> None:
    """The lease is released."""
    world = World(autojump_clock)
    with pytest.raises(ZeroDivisionError):
        async with world.hold():
            _ = 1 / 0
    assert await world.holder() is None


async def test_second_holder_acquires_the_lease_after_its_release(autojump_clock: MockClock) -> None:
    """The second holder acquires it at once, in a higher term.

    While it waits, it sends only a few requests per minute.
    """
    world = World(autojump_clock)
    terms: list[int] = []

    async def second() -> None:
        async with world.hold("grace") as lease:
            terms.append(lease.term)
            assert trio.current_time() - ended < 0.2

    async with trio.open_nursery() as nursery, world.hold() as lease:
        terms.append(lease.term)
        nursery.start_soon(second)
        await trio.sleep(600)
        assert terms == [lease.term]
        ended = trio.current_time()
    assert terms == sorted(set(terms))
    assert len(terms) == 2
    assert world.network.calls.count("Acquire") < 600 / 15 + 5
    awaited = [event for event in world.heard if isinstance(event, events.LeaseAwaited)]
    assert awaited == [events.LeaseAwaited(NAME, "ada", terms[0])]


async def test_block_is_canceled_when_its_lease_is_lost(autojump_clock: MockClock) -> None:
    """Another process acquires the lease under the same holder name.

    The next renewal shows this. Later writes are refused.
    """
    world = World(autojump_clock)
    with pytest.raises(LeaseLost, match=NAME):  # noqa: PT012  # what is in the block is cancelled
        async with world.hold() as lease:
            await world.backend.acquire_lease(NAME, "ada", TTL)
            with pytest.raises(FenceLowered):
                await put(world.backend, thing("late"), fence=Fence(NAME, "", lease.term, 9))
            with trio.fail_after(TTL / 2):
                await trio.sleep_forever()
    assert not lease.held
    assert lease.remaining == 0
    assert await world.holder() == ("ada", lease.term + 1), "the successor's lease was released"
    assert isinstance(world.heard[-1], events.LeaseEnded)
    assert isinstance(world.heard[-1].error, LeaseLost)


@pytest.mark.parametrize("fault", [Fault.FAILED, Fault.LOST, Fault.SILENT, Fault.DENIED])
async def test_block_is_canceled_before_an_unrenewed_lease_expires(autojump_clock: MockClock, fault: Fault) -> None:
    """The block ends when a fifth of the ttl is left by the holder's own clock. Until then, renewals are retried."""
    world = World(autojump_clock)
    with pytest.raises(LeaseLost, match="could not be renewed in time"):  # noqa: PT012  # likewise
        async with world.hold():
            began, world.network.broken = trio.current_time(), fault
            try:
                await trio.sleep_forever()
            finally:
                assert trio.current_time() - began == pytest.approx(TTL * 0.8)
                with trio.CancelScope(shield=True):
                    assert await world.holder() == ("ada", 1), (
                        "the lease was acquired by another holder before the block had ended"
                    )
    delayed = [event for event in world.heard if isinstance(event, events.LeaseDelayed)]
    assert delayed


async def test_lease_survives_renewals_that_fail_for_a_while(autojump_clock: MockClock) -> None:
    """This includes renewals whose replies are lost or never arrive."""
    world = World(autojump_clock)
    async with world.hold() as lease:
        for fault in (Fault.FAILED, Fault.LOST, Fault.DENIED, Fault.SILENT):
            world.network.faults["KeepAlive"] = deque([fault])
            await trio.sleep(TTL * 2)
        assert await world.holder() == ("ada", lease.term) == ("ada", 1)


async def test_acquire_is_repeated_in_a_higher_term_after_a_lost_reply(autojump_clock: MockClock) -> None:
    """The terms of the lost replies have no holder."""
    world = World(autojump_clock)
    world.network.faults["Acquire"] = deque([Fault.FAILED, Fault.LOST, Fault.LOST])
    async with world.hold() as lease:
        assert lease.term == 3
        assert await world.holder() == ("ada", 3)
        assert lease.remaining > TTL / 3
    assert [type(event) for event in world.heard].count(events.LeaseDelayed) == 3


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.LOST])
async def test_lease_granted_to_a_canceled_request_is_released(autojump_clock: MockClock, fault: Fault) -> None:
    """Otherwise, others would wait for a ttl. This holds during the wait for a reply, and before a retry."""
    world = World(autojump_clock)
    world.network.faults["Acquire"] = deque([fault])
    with trio.move_on_after(0.04) as scope:
        async with world.hold():
            pass
    assert scope.cancelled_caught
    assert world.network.calls == ["Acquire", "Acquire", "Release"]
    assert await world.holder() is None
    assert trio.current_time() < 1


async def test_canceled_request_leaves_another_holder_alone(autojump_clock: MockClock) -> None:
    """The cancellation completes soon, even if no reply arrives."""
    world = World(autojump_clock)
    async with world.hold("grace") as held:
        with trio.move_on_after(1):
            async with world.hold("ada"):
                pass
        assert await world.holder() == ("grace", held.term)
    world.network.broken = Fault.SILENT
    began = trio.current_time()
    with trio.move_on_after(1):
        async with world.hold("ada"):
            pass
    assert round(trio.current_time() - began, 6) <= 1 + 5


async def test_waiting_for_the_reply_counts_against_the_ttl(autojump_clock: MockClock) -> None:
    """After a wait the holder sends another request, so that most of the ttl is left."""
    world = World(autojump_clock)
    await world.backend.acquire_lease(NAME, "grace", 14)
    async with world.hold() as lease:
        assert lease.remaining > TTL * 0.8 - 1
        # The first call finds the other holder, the second waits, and the third acquires the lease again.
        assert world.network.calls == ["Acquire"] * 3


@pytest.mark.parametrize(("latency", "begins"), [(0.4, True), (0.8, False)])
async def test_late_replies_do_not_block_the_lease_forever(
    autojump_clock: MockClock, latency: float, begins: bool
) -> None:
    """Endless retries would renew a term that is never used. The lease is used, or lost with an error."""
    world = World(autojump_clock)
    world.network.latency = TTL * latency
    begun: list[int] = []

    async def hold() -> None:
        async with world.hold() as lease:
            begun.append(lease.term)
            await trio.sleep_forever()

    with trio.fail_after(TTL * 5), pytest.raises(LeaseLost):
        await hold()
    assert bool(begun) == begins
    world.network.latency = 0.0
    with trio.fail_after(TTL * 2):
        async with world.hold("grace"):
            pass


async def test_stalled_holder_reports_its_lease_as_lost(autojump_clock: MockClock) -> None:
    """`held` is false before any task has run. A late renewal does not restore the lease."""
    world = World(autojump_clock)
    with pytest.raises(LeaseLost, match="could not be renewed in time"):  # noqa: PT012  # likewise
        async with world.hold() as lease:
            assert lease.held
            autojump_clock.jump(TTL * 0.85)
            assert not lease.held
            await wait_all_tasks_blocked()
    assert not lease.held


async def test_lease_is_renewed_while_a_canceled_block_ends(autojump_clock: MockClock) -> None:
    """A shielded block may need longer than a ttl. The lease is released after the block has ended."""
    world = World(autojump_clock)
    with trio.move_on_after(1):
        async with world.hold() as lease:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(TTL * 3)
                    assert lease.held
                    assert await world.holder() == ("ada", lease.term)
    assert await world.holder() is None


@pytest.mark.parametrize("fault", [Fault.FAILED, Fault.SILENT])
async def test_failed_release_does_not_block(autojump_clock: MockClock, fault: Fault) -> None:
    """After a failed release, the lease expires."""
    world = World(autojump_clock)
    async with world.hold():
        world.network.broken = fault
        began = trio.current_time()
    assert round(trio.current_time() - began, 6) <= 5


async def test_invalid_requests_and_missing_rights_are_raised_at_once(autojump_clock: MockClock) -> None:
    """Waiting does not solve these problems."""
    world = World(autojump_clock)
    for name, ttl, said in (
        (NAME, 0.1, "ttl must be a number of seconds from 1 to 3600, such as ttl=15.0, not 0.1"),
        ("no name", 15, "is not a valid lease name"),
        (NAME, -1, "ttl"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            async with hold_lease(world.leases, name, holder="ada", ttl=ttl):
                pytest.fail("the lease was acquired")
    world.network.broken = Fault.DENIED
    with pytest.raises(PermissionDenied):
        async with world.hold():
            pytest.fail("the lease was acquired")


async def test_unanswered_calls_time_out(autojump_clock: MockClock) -> None:
    """Each call raises Unavailable after its timeout."""
    world = World(autojump_clock)
    world.network.broken = Fault.SILENT
    fence = (await world.backend.raise_fence("c", "", 0, 0)).fence
    message = headway.resource.pb.Fence(controller="c", term=fence.term)
    calls: list[tuple[float, Callable[[], Any]]] = [
        (10, lambda: world.leases.record_checkpoint(message, 1)),
        (10, lambda: world.leases.raise_fence("c", "")),
        (10, lambda: world.leases.list()),
        (10, lambda: world.leases.acquire("a", "ada", 600)),
        (13, lambda: world.leases.acquire("b", "ada", 600, wait=3)),
        (2, lambda: world.leases.keep_alive("a", "ada", 1, timeout=2)),
        (10, lambda: world.leases.release("b", "ada", 1)),
    ]
    for seconds, call in calls:
        began = trio.current_time()
        with pytest.raises(Unavailable, match=f"was not answered within {seconds} s"):
            await call()
        assert trio.current_time() - began == pytest.approx(seconds)


async def test_client_of_an_engine_acquires_leases() -> None:
    """`client.leases` works for the engine's own client."""
    async with (
        headway.open_engine("memory:", headway.App("staff")) as engine,
        hold_lease(engine.client.leases, "members/staff/ada", holder="ada") as lease,
    ):
        (info,) = await engine.client.leases.list("members/staff/")
        assert (info.name, info.holder, info.term, info.ttl) == (lease.name, "ada", lease.term, 15)
        assert info.acquired_at is not None

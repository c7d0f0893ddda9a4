"""Holding a lease by a client: kept alive, stopped in time, given back; on a network that loses what it likes."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from typing import Any

import pytest
import trio
from grpclib import GRPCError
from grpclib.const import Status
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway import HeldLease, events, hold_lease
from headway.client import LeaseClient
from headway.errors import InvalidArgument, LeaseLost, PermissionDenied, Unavailable
from headway.rpc import InProcessChannel, Metadata
from headway.service import LeaseService
from headway.storage import Fence, FenceLowered, MemoryBackend
from headway.testing.conformance import put, thing

NAME, TTL = "staff/reports", 15.0


class Fault(enum.Enum):
    """What befalls a call."""

    FAILED = "not done, answered by UNAVAILABLE"
    LOST = "done, answered by UNAVAILABLE"
    SILENT = "done, never answered"
    DENIED = "not done, answered by PERMISSION_DENIED"


class Network:
    """A channel to a lease service, that does to calls what a test says; ``calls`` are all that were made."""

    knows_outcomes = False

    def __init__(self, backend: MemoryBackend) -> None:
        self._inner = InProcessChannel(LeaseService(backend))
        self.calls: list[str] = []
        self.times: list[float] = []
        self.faults: dict[str, deque[Fault]] = {}
        self.broken: Fault | None = None
        self.latency = 0.0

    async def unary(
        self, path: str, request: object, reply_type: type[Any], *, metadata: Metadata | None = None
    ) -> Any:
        method = path.rpartition("/")[2]
        self.calls.append(method)
        self.times.append(trio.current_time())
        faults = self.faults.get(method)
        fault = faults.popleft() if faults else self.broken
        if fault is Fault.FAILED:
            raise GRPCError(Status.UNAVAILABLE, "nobody answers")
        if fault is Fault.DENIED:
            raise GRPCError(Status.PERMISSION_DENIED, "not you")
        reply = await self._inner.unary(path, request, reply_type, metadata=metadata)
        await trio.sleep(self.latency)
        if fault is Fault.LOST:
            raise GRPCError(Status.UNAVAILABLE, "the answer was lost")
        if fault is Fault.SILENT:
            await trio.sleep_forever()
        return reply

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        raise NotImplementedError


class World:
    """A store, and a holder's way to it, under the virtual time of a test's clock."""

    def __init__(self, clock: MockClock) -> None:
        self.clock = clock
        self.backend = MemoryBackend()
        self.network = Network(self.backend)
        self.leases = LeaseClient(self.network)
        self.heard: list[object] = []

    def hold(self, holder: str = "ada", **rest: Any) -> AbstractAsyncContextManager[HeldLease]:
        return hold_lease(self.leases, NAME, holder=holder, ttl=TTL, report=self.heard.append, **rest)

    async def holder(self) -> tuple[str, int] | None:
        """Who holds the lease, as the server has it."""
        held, _ = await self.backend.list_leases()
        return (held[0].lease.holder, held[0].lease.term) if held else None


async def test_a_lease_is_held_for_as_long_as_its_block_runs(autojump_clock: MockClock) -> None:
    """Kept alive a few times a ttl, in one term; and free in the moment of its end."""
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


async def test_renewals_come_at_different_times(autojump_clock: MockClock) -> None:
    """The many leases of a process don't all come at once."""
    world = World(autojump_clock)
    async with world.hold():
        await trio.sleep(TTL * 10)
        times = world.network.times[:]
    gaps = [round(later - earlier, 1) for earlier, later in pairwise(times)]
    assert len(set(gaps)) > 5
    assert all(TTL / 3 * 0.69 < gap < TTL / 3 * 1.01 for gap in gaps)


async def test_the_blocks_error_comes_out_as_it_went_in(autojump_clock: MockClock) -> None:
    """And the lease is given back."""
    world = World(autojump_clock)
    with pytest.raises(ZeroDivisionError):
        async with world.hold():
            _ = 1 / 0
    assert await world.holder() is None


async def test_a_second_holder_gets_it_when_the_first_has_ended(autojump_clock: MockClock) -> None:
    """At once, in a higher term, and asking a few times a minute at most while it waits."""
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


async def test_a_block_is_cancelled_when_its_lease_is_lost(autojump_clock: MockClock) -> None:
    """Here to another life of the same holder: by the next renewal it is known, and what it still writes is refused."""
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
async def test_a_block_is_cancelled_before_a_lease_that_is_not_renewed_can_be_anothers(
    autojump_clock: MockClock, fault: Fault
) -> None:
    """By the holder's own clock, with a fifth of the ttl left; until then renewing is tried again, and reported."""
    world = World(autojump_clock)
    with pytest.raises(LeaseLost, match="could not be renewed in time"):  # noqa: PT012  # likewise
        async with world.hold():
            began, world.network.broken = trio.current_time(), fault
            try:
                await trio.sleep_forever()
            finally:
                assert trio.current_time() - began == pytest.approx(TTL * 0.8)
                with trio.CancelScope(shield=True):
                    assert await world.holder() == ("ada", 1), "it was another's before it was given up"
    delayed = [event for event in world.heard if isinstance(event, events.LeaseDelayed)]
    assert delayed


async def test_renewals_that_fail_for_a_while_lose_nothing(autojump_clock: MockClock) -> None:
    """Also those whose answers get lost or never come."""
    world = World(autojump_clock)
    async with world.hold() as lease:
        for fault in (Fault.FAILED, Fault.LOST, Fault.DENIED, Fault.SILENT):
            world.network.faults["KeepAlive"] = deque([fault])
            await trio.sleep(TTL * 2)
        assert await world.holder() == ("ada", lease.term) == ("ada", 1)


async def test_an_acquire_whose_answer_is_lost_is_sent_again_and_has_a_higher_term(autojump_clock: MockClock) -> None:
    """The terms whose answers were lost belong to nobody."""
    world = World(autojump_clock)
    world.network.faults["Acquire"] = deque([Fault.FAILED, Fault.LOST, Fault.LOST])
    async with world.hold() as lease:
        assert lease.term == 3
        assert await world.holder() == ("ada", 3)
        assert lease.remaining > TTL / 3
    assert [type(event) for event in world.heard].count(events.LeaseDelayed) == 3


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.LOST])
async def test_a_lease_that_was_granted_to_a_canceled_request_is_given_back(
    autojump_clock: MockClock, fault: Fault
) -> None:
    """While the answer is awaited, and before the request is sent again; or others would wait for a ttl."""
    world = World(autojump_clock)
    world.network.faults["Acquire"] = deque([fault])
    with trio.move_on_after(0.04) as scope:
        async with world.hold():
            pass
    assert scope.cancelled_caught
    assert world.network.calls == ["Acquire", "Acquire", "Release"]
    assert await world.holder() is None
    assert trio.current_time() < 1


async def test_a_canceled_request_takes_nothing_from_another_holder(autojump_clock: MockClock) -> None:
    """It ends soon, too, when no answer comes."""
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
    assert trio.current_time() - began <= 1 + 5


async def test_what_was_waited_for_an_answer_is_lost_of_the_ttl(autojump_clock: MockClock) -> None:
    """After a wait the holder asks again, so that it begins with most of its ttl before it."""
    world = World(autojump_clock)
    await world.backend.acquire_lease(NAME, "grace", 14)
    async with world.hold() as lease:
        assert lease.remaining > TTL * 0.8 - 1
        # Who holds it, the wait, and the lease anew.
        assert world.network.calls == ["Acquire"] * 3


@pytest.mark.parametrize(("latency", "begins"), [(0.4, True), (0.8, False)])
async def test_who_is_always_answered_late_does_not_keep_the_lease_from_others(
    autojump_clock: MockClock, latency: float, begins: bool
) -> None:
    """Asking for ever would keep a term alive in which nobody does anything: it is used or not, and lost aloud."""
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


async def test_a_stalled_holder_knows_that_its_time_has_passed(autojump_clock: MockClock) -> None:
    """Without any task having run: before it does the next thing it can ask, and a late renewal brings nothing back."""
    world = World(autojump_clock)
    with pytest.raises(LeaseLost, match="could not be renewed in time"):  # noqa: PT012  # likewise
        async with world.hold() as lease:
            assert lease.held
            autojump_clock.jump(TTL * 0.85)
            assert not lease.held
            await wait_all_tasks_blocked()
    assert not lease.held


async def test_a_lease_is_kept_while_a_cancelled_block_ends(autojump_clock: MockClock) -> None:
    """Under its shield it may take longer than a ttl; only then is the lease given back."""
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
async def test_a_release_that_fails_holds_nobody_up(autojump_clock: MockClock, fault: Fault) -> None:
    """The lease runs out then."""
    world = World(autojump_clock)
    async with world.hold():
        world.network.broken = fault
        began = trio.current_time()
    assert trio.current_time() - began <= 5


async def test_what_can_not_be_right_is_raised_at_once(autojump_clock: MockClock) -> None:
    """A caller's mistake, or its lack of a right, doesn't go away by waiting."""
    world = World(autojump_clock)
    for name, ttl, said in (
        (NAME, 0.1, "ttl_ms 100 must be from"),
        ("no name", 15, "is not a valid lease name"),
        (NAME, -1, "ttl"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            async with hold_lease(world.leases, name, holder="ada", ttl=ttl):
                pytest.fail("it was taken")
    world.network.broken = Fault.DENIED
    with pytest.raises(PermissionDenied):
        async with world.hold():
            pytest.fail("it was taken")


async def test_calls_that_are_never_answered_end(autojump_clock: MockClock) -> None:
    """Each of them, by Unavailable, in its time."""
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


async def test_a_client_of_an_engine_takes_leases() -> None:
    """`client.leases`, with the engine's own client."""
    async with (
        headway.open_engine("memory:", headway.App("staff")) as engine,
        hold_lease(engine.client.leases, "members/staff/ada", holder="ada") as lease,
    ):
        (info,) = await engine.client.leases.list("members/staff/")
        assert (info.name, info.holder, info.term, info.ttl) == (lease.name, "ada", lease.term, 15)
        assert info.acquired_at is not None

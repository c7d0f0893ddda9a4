"""The lease service: requests, answers, and waiting for a lease of another holder."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from grpclib.const import Status
from trio.testing import MockClock, wait_all_tasks_blocked

from headway._gen.headway.lease import v1 as lease_pb
from headway.api import Reason
from headway.resource import pb
from headway.rpc import InProcessChannel
from headway.service import LeaseService, LeaseWaits
from headway.storage import Acquired, Backend, MemoryBackend
from tests.helpers.calls import LEASES, Calls, at, refused

METHODS = {
    "Acquire": (lease_pb.AcquireRequest, lease_pb.AcquireResponse),
    "KeepAlive": (lease_pb.KeepAliveRequest, lease_pb.KeepAliveResponse),
    "Release": (lease_pb.ReleaseRequest, lease_pb.ReleaseResponse),
    "List": (lease_pb.ListRequest, lease_pb.ListResponse),
}


class Leases:
    """The lease methods of a service, called with raw messages."""

    def __init__(self, backend: Backend, waits: LeaseWaits | None = None) -> None:
        self.channel = InProcessChannel(LeaseService(backend, waits=waits))

    async def call(self, method: str, **fields: Any) -> Any:
        request, reply = METHODS[method]
        return await self.channel.unary(LEASES + method, request(**fields), reply)

    async def acquire(self, holder: str = "ada", name: str = "staff/accounts", **fields: Any) -> Any:
        return await self.call("Acquire", **{"name": name, "holder": holder, "ttl_ms": 10_000, **fields})


@pytest.fixture
def leases(backend: Backend) -> Leases:
    return Leases(backend)


async def test_lease_is_acquired_kept_listed_and_released(leases: Leases, backend: Backend) -> None:
    """The holder acquires, renews and releases the lease in its term.

    Another caller gets the holder and the least remaining time.
    """
    mine = await leases.acquire()
    assert (mine.acquired, mine.holder, mine.term, mine.retry_after_ms) == (True, "ada", 1, 0)
    assert at(mine.position) == backend.position
    theirs = await leases.acquire("grace")
    assert (theirs.acquired, theirs.holder, theirs.term) == (False, "ada", 1)
    assert 5_000 < theirs.retry_after_ms <= 10_000
    await leases.call("KeepAlive", name="staff/accounts", holder="ada", term=1)

    listed = await leases.call("List", name_prefix="staff/")
    (lease,) = listed.leases
    assert (lease.name, lease.holder, lease.term, lease.ttl_ms) == ("staff/accounts", "ada", 1, 10_000)
    assert 5_000 < lease.expires_in_ms <= 10_000
    assert lease.acquired_at is not None
    assert at(listed.position) == backend.position

    for _ in range(2):
        await leases.call("Release", name="staff/accounts", holder="ada", term=1)
    assert (await leases.call("List")).leases == []
    said = await refused(
        leases.call("KeepAlive", name="staff/accounts", holder="ada", term=1),
        Status.FAILED_PRECONDITION,
        reason=Reason.LEASE_LOST,
    )
    assert said.startswith("term 1 of staff/accounts has ended")
    assert (await leases.acquire("grace")).term > 1


async def test_loss_to_a_holder_of_the_same_name_explains_the_remedy(leases: Leases) -> None:
    """Two processes of the same name take the lease from each other."""
    await leases.acquire("web-1")
    await leases.acquire("web-1")
    keep = leases.call("KeepAlive", name="staff/accounts", holder="web-1", term=1)
    await refused(
        keep,
        Status.FAILED_PRECONDITION,
        "web-1 no longer holds staff/accounts in term 1: web-1 holds it in term 2",
        "another process is also named 'web-1': give each process its own name",
        reason=Reason.LEASE_LOST,
    )
    another = leases.call("KeepAlive", name="staff/accounts", holder="web-2", term=1)
    said = await refused(another, Status.FAILED_PRECONDITION, "web-1 holds it in term 2", reason=Reason.LEASE_LOST)
    assert "its own name" not in said


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "name is required"),
        ({"name": "a b"}, "name 'a b' is not a valid lease name: use up to 255 letters"),
        ({"name": "/a"}, "name '/a' is not a valid lease name"),
        ({"name": "a#"}, "name 'a#' is not a valid lease name"),
        ({"name": "a#b#c"}, "name 'a#b#c' is not a valid lease name"),
        ({"name": "a\n"}, "is not a valid lease name"),
        ({"name": "a" * 256}, "is not a valid lease name"),
        ({"name": "a" * 2**20}, "is not a valid lease name"),
        ({"holder": "a" * 2**20}, "must be at most 255 printable characters"),
        ({"attempt": "a" * 2**20}, "must be at most 255 printable characters"),
        ({"holder": ""}, "holder is required"),
        ({"holder": "a" * 256}, "must be at most 255 printable characters"),
        ({"holder": "a\tb"}, "holder 'a\\tb' must be at most 255 printable characters"),
        ({"attempt": "a" * 256}, "must be at most 255 printable characters"),
        ({"ttl_ms": 0}, "ttl_ms 0 must be from 1000 to 3600000"),
        ({"ttl_ms": 999}, "ttl_ms 999 must be from 1000 to 3600000"),
        ({"ttl_ms": 3_600_001}, "ttl_ms 3600001 must be from 1000 to 3600000"),
        ({"wait_ms": 20_001}, "wait_ms 20001 must be from 0 to 20000"),
    ],
)
async def test_invalid_request_is_refused_with_the_field(fields: dict[str, Any], said: str) -> None:
    """The refusal has valid values, and no lease is acquired."""
    leases = Leases(MemoryBackend())
    assert len(await refused(leases.acquire(**fields), Status.INVALID_ARGUMENT, said)) < 300
    assert (await leases.call("List")).leases == []
    for method in ("KeepAlive", "Release"):
        if "name" in fields or "holder" in fields:
            request = {"name": "a", "holder": "ada", "term": 1, **fields}
            await refused(leases.call(method, **request), Status.INVALID_ARGUMENT, said)


@pytest.mark.parametrize("term", [0, 2**63, 2**64 - 1])
@pytest.mark.parametrize("method", ["KeepAlive", "Release"])
async def test_invalid_term_is_refused(method: str, term: int) -> None:
    """Terms are from 1 to the highest integer that every store can keep."""
    said = f"term {term} must be from 1 to {2**63 - 1}: send the term that Acquire returned"
    call = Leases(MemoryBackend()).call(method, name="a", holder="ada", term=term)
    await refused(call, Status.INVALID_ARGUMENT, said)


@pytest.mark.parametrize("prefix", ["a" * 256, "a" * 2**20, "a\n"])
async def test_prefix_is_bounded_like_a_name(prefix: str) -> None:
    """A longer prefix matches no name."""
    said = await refused(Leases(MemoryBackend()).call("List", name_prefix=prefix), Status.INVALID_ARGUMENT)
    assert said.startswith("name_prefix 'a")
    assert len(said) < 300


async def test_waiter_is_answered_when_the_lease_is_released(leases: Leases) -> None:
    """A single waiter acquires the lease at the moment of the release. The others continue to wait."""
    await leases.acquire()
    send, answers = trio.open_memory_channel[Any](3)

    async def wait(holder: str, wait_ms: int) -> None:
        await send.send(await leases.acquire(holder, wait_ms=wait_ms))

    with trio.fail_after(15):
        async with trio.open_nursery() as nursery:
            for holder in ("grace", "mary"):
                nursery.start_soon(wait, holder, 20_000)
            nursery.start_soon(wait, "late", 100)
            first = await answers.receive()
            assert (first.acquired, first.holder) == (False, "ada")
            await leases.call("Release", name="staff/accounts", holder="ada", term=1)
            second = await answers.receive()
            assert second.acquired
            await leases.call("Release", name="staff/accounts", holder=second.holder, term=second.term)
            third = await answers.receive()
    assert third.acquired
    assert second.term < third.term


async def test_only_the_newest_waiting_request_of_an_attempt_acquires_the_lease(leases: Leases) -> None:
    """The sender gave up the older request.

    If that request acquired the lease, it would end the term of the newer one.
    """
    await leases.acquire()
    answers: list[Any] = []

    async def wait() -> None:
        answers.append(await leases.acquire("grace", attempt="one", wait_ms=20_000))

    with trio.fail_after(15):
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(wait)
                await wait_all_tasks_blocked()
            await leases.call("Release", name="staff/accounts", holder="ada", term=1)
    (granted,) = [each for each in answers if each.acquired]
    await leases.call("KeepAlive", name="staff/accounts", holder="grace", term=granted.term)


class Counting(MemoryBackend):
    """Counts the requests for leases, and the waits for their ends."""

    asked = 0
    waiting = 0

    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        self.asked += 1
        return await super().acquire_lease(name, holder, ttl, attempt)

    async def wait_lease_ended(self, name: str, term: int) -> None:
        self.waiting += 1
        try:
            await super().wait_lease_ended(name, term)
        finally:
            self.waiting -= 1


async def test_end_of_a_term_wakes_one_of_many_waiters() -> None:
    """A caller with the right to one lease may send thousands of requests for it. They must not ask all at once."""
    backend = Counting()
    leases = Leases(backend)
    term = (await leases.acquire(ttl_ms=3_600_000)).term

    async def wait(number: int) -> None:
        await leases.acquire(f"web-{number}", ttl_ms=3_600_000, wait_ms=20_000)

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(wait, number)
        await wait_all_tasks_blocked()
        assert backend.waiting == 1
        before = backend.asked
        await leases.call("Release", name="staff/accounts", holder="ada", term=term)
        await wait_all_tasks_blocked()
        # The next one has become the first, and has looked who holds the lease now.
        assert (backend.asked - before, backend.waiting) == (2, 1)
        nursery.cancel_scope.cancel()


async def test_waiter_behind_others_acquires_the_lease_that_its_holder_is_granted() -> None:
    """The first request is of a process that has crashed. The one that was started again in its place has its name."""
    leases = Leases(MemoryBackend())
    term = (await leases.acquire(ttl_ms=3_600_000)).term
    answers: dict[str, Any] = {}

    async def wait(holder: str, attempt: str) -> None:
        answers[attempt] = await leases.acquire(holder, ttl_ms=3_600_000, attempt=attempt, wait_ms=20_000)

    async with trio.open_nursery() as nursery:
        for holder, attempt in (("web-1", "crashed"), ("web-2", "other"), ("web-1", "started again")):
            nursery.start_soon(wait, holder, attempt)
            await wait_all_tasks_blocked()
        await leases.call("Release", name="staff/accounts", holder="ada", term=term)
        await wait_all_tasks_blocked()
        assert answers["started again"].acquired
        assert answers["started again"].term > answers["crashed"].term
        assert "other" not in answers
        nursery.cancel_scope.cancel()


async def test_late_request_does_not_wait_for_its_own_term_to_end(leases: Leases) -> None:
    """The sender has the lease.

    If the request waited, it would acquire the lease after the release, without a caller.
    """
    term = (await leases.acquire(attempt="one")).term
    await leases.call("KeepAlive", name="staff/accounts", holder="ada", term=term)
    with trio.fail_after(15):
        late = await leases.acquire(attempt="one", wait_ms=20_000)
    assert (late.acquired, late.holder, late.term) == (False, "ada", term)
    await leases.call("KeepAlive", name="staff/accounts", holder="ada", term=term)


async def test_waiter_acquires_an_expired_lease(autojump_clock: MockClock) -> None:
    """The waiter is answered when the holder's time ends. When its own time ends first, it gets the present holder."""
    leases = Leases(MemoryBackend())
    await leases.acquire()
    began = autojump_clock.current_time()
    assert not (await leases.acquire("grace", wait_ms=9_999)).acquired
    assert autojump_clock.current_time() - began == pytest.approx(9.999)
    assert (await leases.acquire("grace", wait_ms=20_000)).acquired
    assert autojump_clock.current_time() - began == pytest.approx(10)


async def test_waits_end_when_the_server_stops(autojump_clock: MockClock) -> None:
    """The waits end at once, with a correct answer. Later requests do not wait."""
    waits = LeaseWaits()
    leases = Leases(MemoryBackend(), waits)
    await leases.acquire(ttl_ms=3_600_000)
    answers: list[Any] = []

    async def wait() -> None:
        answers.append(await leases.acquire("grace", wait_ms=20_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        began = autojump_clock.current_time()
        waits.end()
    await wait()
    assert [each.acquired for each in answers] == [False, False]
    assert autojump_clock.current_time() == began


async def test_fence_is_raised_in_the_term_of_its_lease(calls: Calls) -> None:
    """A raise in another term is refused as fenced.

    So is a write of the previous holder, even before its successor has raised the fence.
    """
    leases = Leases(calls.backend)
    for term in (1, 2):
        assert (await leases.acquire(name="painter#here")).term == term
        said = f"the lease painter#here is held in term {term}"
        await refused(calls.raise_fence("painter", "here"), Status.FAILED_PRECONDITION, said, reason=Reason.FENCED)
        reply = await calls.raise_fence("painter", "here", term=term, number=1)
        assert reply.fence == pb.Fence(controller="painter", member="here", term=term, number=1)
    await calls.raise_fence("painter", "elsewhere")
    said = "controller 'painter#here' must not contain #"
    await refused(calls.raise_fence("painter#here"), Status.INVALID_ARGUMENT, said)

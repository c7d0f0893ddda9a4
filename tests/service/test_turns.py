"""The longest turn of a request. However large the request is, other tasks run in between."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

from headway.errors import HeadwayError
from headway.protobuf import encode
from headway.resource import TypeName, pb, resource_key
from headway.service import Decision
from headway.storage import MemoryBackend, Put
from tests.helpers.calls import Calls, over_the_network
from tests.helpers.declared import NOTE, ULID, a_note, a_status, a_type, an_id, registry

COUNT = 6_000
LONG = "x" * 4_000_000
EVERYWHERE = pb.Tenancy(partition="*", namespace="*")
BOUND = 0.020


CALLS = ("rpc calls", "rpc socket")
"""The tasks in which calls run. One begins in the task that reads its connection."""


class Longest(trio.abc.Instrument):
    """The longest turn of the server's calls so far, in processor time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name in CALLS:
            self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name in CALLS:
            self.seconds = max(self.seconds, time.thread_time() - self._began)


class Crowded(trio.abc.Instrument):
    """The number of the loop's turns, and of those with at least ``least`` steps of the server's calls."""

    def __init__(self, least: int) -> None:
        self.turns = 0
        self.crowded = 0
        self._least = least
        self._steps = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps += task.name in CALLS

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002 - Trio's
        self.turns += 1
        self.crowded += self._steps >= self._least
        self._steps = 0


class Anybody:
    """An authorizer that allows everything, but costs as much as rules: one question for each resource."""

    def may_know(self, type: TypeName) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def may_read(self, id: object, resource: object) -> Decision:  # noqa: ARG002 - likewise
        return Decision.ALLOWED

    def may_write(self, id: object, resource: object) -> bool:  # noqa: ARG002 - likewise
        return True

    def may_delete(self, id: object) -> bool:  # noqa: ARG002 - likewise
        return True

    def may_take_lease(self, name: str) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def may_list(self, type: TypeName, partition: str, namespace: str) -> bool:  # noqa: ARG002 - likewise
        return True


def slowness() -> float:
    """Return how many times slower this machine decodes than the machine that the bound was set for."""
    began = time.thread_time()
    data: dict[str, str] = {}
    for number in range(100_000):
        data[f"k{number}"] = str(number)[:2]
    return max(1.0, (time.thread_time() - began) / 0.03)


@pytest.fixture(scope="module")
def full() -> MemoryBackend:
    """Return a store with many resources of one owner, which are not in the order of their names."""
    backend = MemoryBackend(max_changes=1)

    async def fill() -> None:
        puts = []
        for number in range(COUNT):
            resource = a_note(f"n{number * 7919 % COUNT}", metadata={"colour": "red"})
            resource.id = an_id(resource.id.name, partition="default", namespace="default", uid=ULID)  # type: ignore[union-attr]
            resource.owner = an_id("boss", partition="default", namespace="default", uid=ULID)
            puts.append(Put(NOTE.kind, resource_key(resource), resource, ""))
        await backend.commit(puts)

    trio.run(fill)
    return backend


@pytest.fixture
async def calls(full: MemoryBackend) -> AsyncIterator[Calls]:
    async with over_the_network(full, registry(), Anybody()) as served:
        yield served


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Turn off garbage collection, because its time does not belong to the request."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def many(entry: bytes, size: int = 4_000_000) -> bytes:
    """Return a WriteRequest whose resource repeats the same few bytes."""
    body = entry * (size // len(entry))
    length, prefix = len(body), bytearray(b"\x0a")
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*prefix, length]) + body


def largest() -> pb.Resource:
    """Return a resource with as much of everything as the bounds allow."""
    status = a_status(ULID, *["c" * 255] * 5)
    for condition in status.conditions:
        condition.resource = pb.Reference(type=a_type(), name="other", section="part")
    metadata = {f"{each:0200}": "v" for each in range(1000)}
    resource = a_note("n0", metadata=metadata, status={f"{each:0255}": status for each in range(100)})
    resource.data.value = encode(NOTE.payload(text="x" * 3_500_000))  # type: ignore[union-attr]  # it has data
    return resource


async def raw(calls: Calls, body: bytes) -> object:
    class Codec:
        encode = staticmethod(lambda _: body)

    channel: Any = calls.channel
    ours, channel._codec = channel._codec, Codec()
    try:
        return await calls.write(pb.Resource())
    finally:
        channel._codec = ours


async def snapshot(calls: Calls, **rest: Any) -> None:
    async with calls.watch(a_type(), EVERYWHERE, snapshot_only=True, **rest) as items:
        async for _ in items:
            pass


TERMS = ",".join(f"!absent-{each}" for each in range(32))
REQUESTS: dict[str, Callable[[Calls], Awaitable[object]]] = {
    "Read of a long name": lambda calls: calls.read(an_id(LONG)),
    "Read of a long type": lambda calls: calls.read(pb.Id(name="n", type=a_type(kind="K" + LONG))),
    "Write of all that there may be": lambda calls: calls.write(largest()),
    "Write of empty entries": lambda calls: raw(calls, many(b"\x2a\x04\x0a\x00\x12\x00")),
    "Write of empty statuses": lambda calls: raw(calls, many(b"\x32\x04\x0a\x00\x12\x00")),
    "Write of unknown fields": lambda calls: raw(calls, many(b"\x98\x06\x01")),
    "Write of groups": lambda calls: raw(calls, many(b"\xa3\x06\xa4\x06")),
    "Write of just few enough fields": lambda calls: raw(calls, many(b"\x98\x06\x01", 35_900)),
    "MutateAndValidate": lambda calls: calls.mutate_and_validate(largest()),
    "WriteStatus": lambda calls: calls.write_status(an_id("n0", uid=ULID), a_status(ULID, *["c" * 255] * 100)),
    "Delete of a long name": lambda calls: calls.delete(an_id(LONG)),
    "List": lambda calls: calls.list_type(a_type(), EVERYWHERE),
    "List by a filter": lambda calls: calls.list_type(a_type(), EVERYWHERE, metadata_filter=TERMS),
    "List of a rare prefix": lambda calls: calls.list_type(a_type(), EVERYWHERE, "n5999"),
    "List of a large page": lambda calls: calls.list_type(a_type(), EVERYWHERE, page_size=100_000),
    "List of a page of few": lambda calls: calls.list_type(a_type(), EVERYWHERE, "n5999", page_size=1),
    "List by a long filter": lambda calls: calls.list_type(a_type(), EVERYWHERE, metadata_filter="!" * 4_000_000),
    "ListByOwner": lambda calls: calls.list_by_owner(an_id("boss", uid=ULID)),
    "WatchList": lambda calls: snapshot(calls),
    "WatchList of a rare prefix": lambda calls: snapshot(calls, name_prefix="n5999"),
}
VARIANTS = {
    "Read of a long type",
    "Write of empty statuses",
    "Write of groups",
    "Write of just few enough fields",
    "List of a rare prefix",
    "List of a page of few",
    "List of a large page",
    "Read of a long name",
    "Delete of a long name",
    "Write of empty entries",
    "List by a long filter",
    "WatchList of a rare prefix",
    "MutateAndValidate",
    "List",
}
"""Requests that cost the same parts as one of the others, with other bytes."""


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "request_", [pytest.param(each, marks=[pytest.mark.wide] * (each in VARIANTS)) for each in REQUESTS]
)
async def test_call_computes_for_at_most_20_ms_in_one_turn(calls: Calls, request_: str) -> None:
    """The best of several tries counts, because other work of the machine does not belong to the request."""
    best = float("inf")
    for _ in range(8):
        slow = slowness()
        longest = Longest()
        trio.lowlevel.add_instrument(longest)
        try:
            await REQUESTS[request_](calls)
        except HeadwayError:
            pass
        finally:
            trio.lowlevel.remove_instrument(longest)
        # Measure before and after, because another program may use the same core for a while.
        best = min(best, longest.seconds / max(slow, slowness()))
        if best <= BOUND:
            break
    assert 0 < best <= BOUND


@pytest.mark.parametrize("request_", ["List", pytest.param("WatchList", marks=pytest.mark.wide)])
async def test_at_most_one_long_call_continues_in_each_turn(calls: Calls, request_: str) -> None:
    """Otherwise, each step of a short call would wait for a slice of every long call."""
    crowded = Crowded(3)
    async with trio.open_nursery() as nursery:
        trio.lowlevel.add_instrument(crowded)
        for _ in range(4):
            nursery.start_soon(REQUESTS[request_], calls)
    trio.lowlevel.remove_instrument(crowded)
    # Several calls meet in a turn when they begin, end, or send at the same time, in about a tenth of the turns. With a
    # plain checkpoint between slices, they meet in about half of the turns.
    assert crowded.crowded < crowded.turns / 4


class Steps(trio.abc.Instrument):
    """The number of steps of one task so far."""

    def __init__(self, of: trio.lowlevel.Task) -> None:
        self.taken = 0
        self._of = of

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.taken += task is self._of


@pytest.mark.parametrize("method", ["write", "mutate_and_validate"])
async def test_fields_of_a_large_payload_are_counted_in_slices(method: str) -> None:
    """Counting 90,000 of them takes as long as decoding them."""
    calls, resource = Calls(MemoryBackend(), registry()), a_note()
    assert resource.data is not None
    resource.data.value = encode(NOTE.payload(lines=["x"] * 90_000))
    steps = Steps(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(steps)
    await getattr(calls, method)(resource)
    trio.lowlevel.remove_instrument(steps)
    assert steps.taken > 90_000 / 4_000

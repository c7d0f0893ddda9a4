"""The longest turn with a million resources. No request in the process computes for long."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio

from headway.client import Client
from headway.resource import EndOfSnapshot, pb, resource_key
from headway.rpc import InProcessChannel
from headway.service import ResourceService
from headway.storage import MemoryBackend, Put, Within
from tests.helpers.declared import NOTE, registry
from tests.service.test_turns import BOUND, slowness

COUNT = 1_000_000
AT_ONCE = 10_000


class Longest(trio.abc.Instrument):
    """The longest step of any task so far, in processor time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        # The instrument is made in the middle of a step, so that step has no before_task_step.
        self._began = time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - the protocol's
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - likewise
        self.seconds = max(self.seconds, time.thread_time() - self._began)


@pytest.fixture(scope="module")
def full() -> Iterator[MemoryBackend]:
    """Return a store with a million minimal resources of one owner, which are not in the order of their names."""
    backend = MemoryBackend(max_changes=1)
    type, tenancy = NOTE.name.message(), pb.Tenancy(partition="default", namespace="default")
    owner = pb.Id(name="boss", type=type, tenancy=tenancy, uid="BOSS")

    async def fill() -> None:
        for begin in range(0, COUNT, AT_ONCE):
            puts = []
            for number in range(begin, begin + AT_ONCE):
                id = pb.Id(name=f"n{number * 7919 % COUNT:07}", type=type, tenancy=tenancy, uid="U")
                resource = pb.Resource(id=id, owner=owner, generation="1")
                puts.append(Put(NOTE.kind, resource_key(resource), resource, ""))
            await backend.commit(puts)

    gc.disable()
    try:
        trio.run(fill)
        yield backend
    finally:
        gc.enable()


async def opened(backend: MemoryBackend) -> None:
    watch = await backend.watch(NOTE.kind, Within())
    await watch.next()


async def watched(backend: MemoryBackend) -> None:
    watch = await backend.watch(NOTE.kind, Within())
    while not isinstance(await watch.next(), EndOfSnapshot):
        pass


async def written(backend: MemoryBackend) -> None:
    """Write while a cut is being read, because each write then copies a list once."""
    watch = await backend.watch(NOTE.kind, Within())
    for number in range(0, COUNT, COUNT // 200):
        await watch.next()
        key = ("default", "default", f"n{number:07}")
        stored, _ = await backend.read(NOTE.kind, key)
        assert stored is not None
        again = pb.Resource(id=stored.id, owner=stored.owner, generation="2")
        await backend.commit([Put(NOTE.kind, key, again, stored.version)])


async def listed(backend: MemoryBackend) -> None:
    client = Client(InProcessChannel(ResourceService(backend, registry())), registry())
    found = await client.list(NOTE)
    assert len(found) == COUNT
    while found:
        # Freeing all of them at once would be a long step of the caller.
        del found[-AT_ONCE:]
        await trio.lowlevel.checkpoint()


ASKED: dict[str, Callable[[MemoryBackend], Awaitable[object]]] = {
    "the beginning of a watch": opened,
    "a whole snapshot": watched,
    "the backend's list": lambda backend: backend.list(NOTE.kind, Within()),
    "a list of a rare prefix": lambda backend: backend.list(NOTE.kind, Within("*", "*", "n0999999")),
    "all that one owns": lambda backend: backend.list_by_owner("BOSS"),
    "writes beside a snapshot": written,
    "client.list in the process": listed,
}


@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("asked", ASKED)
async def test_no_step_takes_20_ms_with_a_million_resources(full: MemoryBackend, asked: str) -> None:
    """The best of several tries counts, because other work of the machine does not matter here."""
    bound, best = BOUND * slowness(), float("inf")
    for _ in range(4):
        longest = Longest()
        trio.lowlevel.add_instrument(longest)
        try:
            await ASKED[asked](full)
        finally:
            trio.lowlevel.remove_instrument(longest)
        best = min(best, longest.seconds)
        if best <= bound:
            break
    print(f"{asked}: {best * 1000:.1f} ms of {bound * 1000:.0f}")
    assert 0 < best <= bound

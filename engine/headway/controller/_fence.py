"""A run's fence, and the settling of writes whose outcome is unknown (C3, C5).

Every write of a run carries its fence. When a write's outcome is unknown, every key is held back until the fence has
been raised by a commit: from that commit on the lost write can't land any more, and once the cache has reached it, it
shows whether it had landed before. A read alone would settle nothing, because the write may land after it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import trio

from headway.cache import Informer, Informers
from headway.client import Acknowledged, LeaseClient, RunFence
from headway.controller._own_writes import OwnWrites
from headway.errors import OutcomeUnknown, Unavailable
from headway.events import CallDelayed, Report, WriteResolved, WriteUnknown
from headway.resource import ResourceType, pb

_LONGEST_WAIT = 5.0


class Keys(Protocol):
    """A work queue, as far as it can be held."""

    def hold(self) -> None:
        """Hold every key back."""
        ...

    def release(self) -> None:
        """Let keys be taken again."""
        ...


class RunWrites:
    """Meets `client.Writes` for one run."""

    def __init__(
        self,
        controller: str,
        informers: Informers,
        queue: Keys,
        report: Report,
        on_resolved: Callable[[], None],
    ) -> None:
        self._controller = controller
        self._informers = informers
        self._queue = queue
        self._report = report
        self._on_resolved = on_resolved
        self.own = OwnWrites()
        # What the run caches, once it has primed it.
        self.cached: Sequence[Informer] = ()
        self.fence: pb.Fence | None = None
        self.store_id = ""
        # How many unknown writes there have been; settled when `settle` has dealt with as many.
        self.unknown_writes = 0
        self._tainted = trio.Event()

    def acknowledged(self, write: Acknowledged) -> None:
        """Show the write in the cache before the call returns."""
        self.own.note(write)
        for shared in self._informers.known(write.type):
            shared.reply(write.key, write.stored, write.position)

    async def wait_shown(self, type: ResourceType[Any], revision: int) -> None:
        """Wait for the streams of other versions of the kind, if the run caches any.

        The answer to the write does not say what these versions show: another resource where the server has a
        converter, and nothing where it has none.
        """
        for shared in self.cached:
            if shared.type.name != type.name and shared.type.name.unversioned == type.kind:
                await shared.wait_complete(revision)

    def unknown(self, error: OutcomeUnknown | None) -> None:
        """Hold back every key, and have it settled."""
        self._report(WriteUnknown(self._controller, error))
        self._taint()

    def refused(self, fence: pb.Fence | None) -> None:
        """Find out whether another run has begun: then raising this one's fence fails, and that ends it.

        A write that was on its way while this run raised its own fence is refused as well, and means nothing.
        """
        if fence == self.fence and not self._tainted.is_set():
            self._taint()

    def _taint(self) -> None:
        self.unknown_writes += 1
        self._queue.hold()
        self._tainted.set()

    async def raise_first(
        self, lease: LeaseClient, controller: str, member: str, *, term: int = 0, number: int = 0
    ) -> RunFence:
        """Raise the fence for a run that starts. What its predecessor sent can't land after this commit.

        Under a lease ``term`` is the lease's, and ``number`` above that of every run before it in that term, from 1 on.
        """
        raised = await lease.raise_fence(controller, member, term=term, number=number)
        self.fence = raised.fence
        self.store_id = raised.position.store_id
        return raised

    async def raise_again(self, lease: LeaseClient) -> RunFence:
        """Raise the fence above what the initialiser wrote, and so settle what became of it."""
        self._tainted = trio.Event()
        raised = await self._raise(lease)
        # One that was lost while this was raised needs a commit after it: `settle` sees to that.
        if not self._tainted.is_set():
            self._queue.release()
        return raised

    async def settle(self, lease: LeaseClient, shared: Iterable[Informer]) -> None:
        """Settle every unknown write, as long as the run lives. Raises Fenced when another run has begun."""
        types = list(shared)
        while True:
            await self._tainted.wait()
            self._tainted = trio.Event()
            settled = self.unknown_writes
            raised = await self._raise(lease)
            for each in types:
                await each.wait_complete(raised.position.revision)
            # A write that was lost while this one was being settled needs a commit after it.
            if settled == self.unknown_writes:
                self._queue.release()
                self._report(WriteResolved(self._controller, raised.position.revision))
                self._on_resolved()

    async def _raise(self, lease: LeaseClient) -> RunFence:
        fence = self.fence
        assert fence is not None
        wait, number = 0.05, fence.number
        while True:
            number += 1
            try:
                raised = await lease.raise_fence(fence.controller, fence.member, term=fence.term, number=number)
            except Unavailable as error:
                # This raise may have happened, so the next one has a number above it.
                delay = wait * random.uniform(0.5, 1)
                self._report(CallDelayed(self._controller, "Raise", error, delay))
                await trio.sleep(delay)
                wait = min(wait * 2, _LONGEST_WAIT)
            else:
                self.fence = raised.fence
                return raised

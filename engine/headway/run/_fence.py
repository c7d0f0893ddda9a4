"""The fence of a run, and the resolution of writes with an unknown outcome (C3, C5).

Every write of a run carries its fence. When the outcome of a write is unknown, all keys are held until a commit has
raised the fence. After that commit, the lost write can no longer be stored. Once the cache has reached the commit, it
shows whether the write was stored before it. A read alone would not resolve anything, because the write may still be
stored after the read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import trio

from headway.base import chance, story
from headway.client import Acknowledged, LeaseClient, RunFence
from headway.errors import OutcomeUnknown, Unavailable
from headway.events import CallDelayed, Report, WriteResolved, WriteUnknown
from headway.reconcile import RECONCILING
from headway.resource import Key, ResourceId, ResourceType, pb, resource_id
from headway.run._governor import Governor
from headway.run._own_writes import OwnWrites
from headway.run._priming import RunCaches

_LONGEST_WAIT = 5.0


class SupportsHold(Protocol):
    """The part of a work queue that holds keys."""

    def hold(self, holder: object) -> None:
        """Hold all keys back for a holder."""
        ...

    def release(self, holder: object) -> None:
        """Release the queue for a holder."""
        ...


class Hold(NamedTuple):
    """The reason that every key is held back, since a time on Trio's clock.

    Attributes:
        written: the resource that was written; None if it is unknown.
        key: the key whose reconcile made the write; None if no reconcile did.
        why: the error of the write whose outcome is unknown, as a text.
    """

    since: float
    written: ResourceId | None
    key: Key | None
    why: str


class RunWrites:
    """An implementation of `client.Writes` for one run, or for some of its keys.

    Args:
        controller: the controller's name, for reports.
        on_resolved: called when keys are handed out again.
        own: the acknowledged writes of the run, if another part of it already records them.
        governor: the limit on the rate of the controller's writes; None without one.

    Attributes:
        own: the acknowledged writes of the run.
        first_commit: the revision of the first commit that raised the fence; 0 before it.
        starting_revision: the revision of the last commit that raised the fence at the start; 0 before it.
        hold: the first write whose outcome is being resolved; None if none is.
    """

    def __init__(
        self,
        controller: str,
        leases: LeaseClient,
        caches: RunCaches,
        queue: SupportsHold,
        report: Report,
        on_resolved: Callable[[], None],
        own: OwnWrites | None = None,
        governor: Governor | None = None,
    ) -> None:
        self._controller = controller
        self._leases = leases
        self._caches = caches
        self._queue = queue
        self._report = report
        self._on_resolved = on_resolved
        self.own = OwnWrites() if own is None else own
        self.governor = governor
        self.fence: pb.Fence | None = None
        self.store_id = ""
        self.first_commit = self.starting_revision = 0
        # The number of unknown writes so far. All are resolved when `resolve` has processed this number.
        self.unknown_writes = 0
        self.hold: Hold | None = None
        self._left = False
        self._unresolved = trio.Event()

    def acknowledged(self, write: Acknowledged) -> None:
        """Apply a write to the cache before the call returns."""
        self.own.note(write)
        for informer in self._caches.informers.opened(write.type):
            informer.reply(write.key, write.stored, write.position)

    async def wait_cached(self, type: ResourceType[Any], revision: int) -> None:
        """Wait for the streams of other versions of the kind, if the run caches any.

        The response to the write does not determine what these versions show: the resource in another form, or nothing.
        """
        for informer in self._caches.primed:
            if informer.type.name != type.name and informer.type.name.unversioned == type.kind:
                await informer.wait_complete(revision)

    def unknown(self, error: OutcomeUnknown | None, request: Any = None) -> None:
        """Hold all keys and start the resolution of the write."""
        self._report(WriteUnknown(self._controller, error))
        self._hold(_written(request), "it was canceled before its answer" if error is None else story(error))

    def fenced(self, fence: pb.Fence | None) -> None:
        """Find out whether another run has begun. If so, raising this run's fence fails, which ends the run.

        A write that was in flight while this run raised its own fence is refused as well. That means nothing.
        """
        if fence == self.fence:
            self._hold(None, "it was rejected, because another run may have begun")

    def leave(self) -> None:
        """Hold no key from here on: whoever has its keys next resolves what is left."""
        self._left, self.hold = True, None
        self._queue.release(self)

    def _hold(self, written: ResourceId | None, why: str) -> None:
        if self._left:
            return
        if self.hold is None:
            reconciling = RECONCILING.get()
            self.hold = Hold(trio.current_time(), written, None if reconciling is None else reconciling.key, why)
        self.unknown_writes += 1
        self._queue.hold(self)
        self._unresolved.set()

    @property
    def term(self) -> int:
        """The term of the fence; 0 before it is raised."""
        return 0 if self.fence is None else self.fence.term

    async def raise_first(self, fence_name: str, member: str, *, term: int = 0, number: int = 0) -> RunFence:
        """Raise the fence for a run that starts. After this commit, no write of an earlier run can be stored.

        Under a lease, ``term`` is the lease's term. ``number`` is then higher than for any earlier run in that term,
        and starts at 1.
        """
        raised = await self._commit_fence(fence_name, member, term, number)
        self.fence = raised.fence
        self.store_id = raised.position.store_id
        self.first_commit = self.starting_revision = raised.position.revision
        return raised

    async def raise_again(self) -> RunFence:
        """Raise the fence above the initialiser's writes, which resolves those with an unknown outcome."""
        self._unresolved = trio.Event()
        raised = await self._raise()
        self.starting_revision = raised.position.revision
        # A write that was lost during this raise needs a later commit, which `resolve` makes.
        if not self._unresolved.is_set():
            self.hold = None
            self._queue.release(self)
        return raised

    async def resolve(self) -> None:
        """Resolve every unknown write for as long as the run lasts. Raises Fenced if another run has begun."""
        while True:
            await self._unresolved.wait()
            self._unresolved = trio.Event()
            resolving = self.unknown_writes
            raised = await self._raise()
            await self._caches.wait_complete(raised.position.revision)
            # A write that was lost during this resolution needs a later commit.
            if resolving == self.unknown_writes:
                self.hold = None
                self._queue.release(self)
                self._report(WriteResolved(self._controller, raised.position.revision))
                self._on_resolved()

    async def _commit_fence(self, name: str, member: str, term: int, number: int) -> RunFence:
        before = self._caches.newest()
        raised = await self._leases.raise_fence(name, member, term=term, number=number)
        self._caches.check_new_commit(before, raised.position)
        return raised

    async def _raise(self) -> RunFence:
        fence = self.fence
        assert fence is not None
        wait, number = 0.05, fence.number
        while True:
            number += 1
            try:
                raised = await self._commit_fence(fence.controller, fence.member, fence.term, number)
            except Unavailable as error:
                # This raise may have been stored, so the next one needs a higher number.
                delay = wait * chance.uniform(0.5, 1)
                self._report(CallDelayed(self._controller, "Raise", error, delay))
                await trio.sleep(delay)
                wait = min(wait * 2, _LONGEST_WAIT)
            else:
                self.fence = raised.fence
                return raised


def _written(request: Any) -> ResourceId | None:
    """Return the id in the request of a write: the id of the resource in a Write, or the request's own id."""
    id = getattr(getattr(request, "resource", request), "id", None)
    return None if id is None else resource_id(id)

"""The store in memory, for tests and for programs that need no durability. It is the reference for other stores."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import trio

from headway.errors import StoreUnusable
from headway.resource import Key, Kind, Position, pb
from headway.storage._backend import Backend, ListsFences, ReadsAtOnce
from headway.storage._lease_table import LeaseTable
from headway.storage._leases import Acquired, HeldLease, Lease, check_borne, check_raise, lease_of, scope_of
from headway.storage._log import CommitLog, LogChange
from headway.storage._operations import Fence, FenceLowered, Operation, Raised, Within, refuse_repeated_keys
from headway.storage._reads import CutSnapshot, list_owned, list_within
from headway.storage._tables import Applied, ResourceTables, changes_of, decide
from headway.storage._watch import LogWatch, Pulse, check_resumable


class MemoryBackend:
    """A `Backend` that keeps everything in memory until the process ends. Each instance has a new store id.

    Args:
        max_changes: the number of changes of history to keep for watchers that resume.
        max_age: the maximum age of the kept history in seconds.
    """

    def __init__(self, *, max_changes: int = 100_000, max_age: float = 3600.0) -> None:
        self._store_id = uuid.uuid4().hex
        self._incarnation = uuid.uuid4().hex
        self._tables = ResourceTables()
        self._fences: dict[tuple[str, str], tuple[int, int]] = {}
        self._checkpoints: dict[tuple[str, str], int] = {}
        self._leases = LeaseTable()
        self._log = CommitLog(max_changes=max_changes, max_age=max_age)
        self._pulse = Pulse()
        # Invariant: the position of the log's head. It is made once for each commit, not for each read.
        self._position = self._at(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Open watches fail. A test may keep the object and open it again: its later watches use the new pulse.
        self._pulse.stop(lambda: StoreUnusable("the store in memory is closed"))
        self._pulse = Pulse()

    @property
    def position(self) -> Position:
        """Return the store's id, its session, and the revision of the last commit."""
        return self._position

    def _at(self, revision: int) -> Position:
        return Position(self._store_id, self._incarnation, revision)

    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """Return the stored resource, or None, and a position."""
        await trio.lowlevel.checkpoint()
        return self.read_nowait(kind, key)

    def read_nowait(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """Return the stored resource, or None, and a position, without a checkpoint."""
        return self._tables.get(kind, key), self._position

    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        """Return the matching resources of a kind, in order of key, and a position."""
        await trio.lowlevel.checkpoint()
        here = self.position
        return await list_within(self._tables, kind, within, after, limit), here

    async def list_by_owner(self, owner_uid: str) -> tuple[Sequence[pb.Resource], Position]:
        """Return the resources that a uid owns, and a position."""
        await trio.lowlevel.checkpoint()
        here = self.position
        return await list_owned(self._tables, owner_uid), here

    async def kinds(self) -> Sequence[Kind]:
        """Return the kinds that have stored resources, in order."""
        await trio.lowlevel.checkpoint()
        return self._tables.kinds()

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        """Apply all operations in one commit and return its position."""
        refuse_repeated_keys(operations)
        # This is the only checkpoint. A cancellation cannot interrupt the commit that follows.
        await trio.lowlevel.checkpoint()
        if fence is not None:
            self._check_fence(fence)
        applied = [entry for operation in operations if (entry := decide(self._tables, operation)) is not None]
        if applied:
            self._publish(applied)
        return self._position

    def _publish(self, applied: Sequence[Applied]) -> None:
        revision = self._log.head + 1
        version = str(revision)
        changes: list[LogChange] = []
        for kind, key, old, new in applied:
            if new is not None:
                new.version = version
                self._tables.put(kind, key, new)
            else:
                self._tables.remove(kind, key)
            changes += changes_of(kind, old, new)
        self._append(revision, changes)

    def _append(self, revision: int, changes: Sequence[LogChange]) -> None:
        self._log.append(revision, changes, trio.current_time())
        self._position = self._at(revision)
        self._pulse.beat()

    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        """Watch a kind, from a snapshot or after a position."""
        await trio.lowlevel.checkpoint()
        if resume_after is not None:
            here = self.position
            check_resumable(resume_after, here, {self._incarnation: None})
            cursor = self._log.cursor(kind, resume_after.revision)
            return LogWatch(self._log, self._pulse, self._at, cursor, within, None)
        snapshot = CutSnapshot(self._tables.cut(kind, within), within)
        cursor = self._log.cursor(kind, self._log.head)
        return LogWatch(self._log, self._pulse, self._at, cursor, within, snapshot)

    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        """Raise a fence by a commit."""
        await trio.lowlevel.checkpoint()
        self._end_what_has_run_out()
        who = (controller, member)
        stored = self._fences.get(who, (0, 0))
        # Compare with the committed lease, even if it has expired since the line above. Its term has not been ended,
        # and the commit that ends it must find the fence in that term.
        held = self._leases.committed(lease_of(controller, member))
        check_raise(controller, held and held.term, term)
        wanted = (term, number) if term else (stored[0] + 1, number)
        if wanted <= stored:
            raise FenceLowered(f"the fence of {controller} is at {stored}; {wanted} is not above it")
        self._raise(who, wanted)
        self._leases.use(lease_of(controller, member))
        checkpoint = self._checkpoints.setdefault(who, self._log.head)
        return Raised(Fence(controller, member, *wanted), self.position, checkpoint)

    async def record_checkpoint(self, fence: Fence, revision: int) -> None:
        """Record that the fence's controller owes nothing up to a revision."""
        await trio.lowlevel.checkpoint()
        self._check_fence(fence)
        who = (fence.controller, fence.member)
        self._checkpoints[who] = max(self._checkpoints.get(who, 0), revision)

    async def list_fences(self) -> Sequence[Fence]:
        """Return every stored fence, in order of controller and member."""
        await trio.lowlevel.checkpoint()
        return [Fence(*who, *at) for who, at in sorted(self._fences.items())]

    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        """Acquire a lease for ``ttl`` seconds, unless another holder has it."""
        await trio.lowlevel.checkpoint()
        self._end_what_has_run_out()
        held = self._leases.holds_off(name, holder, attempt)
        if held is not None:
            return Acquired(False, held, self.position)
        scope = scope_of(name)
        lease = Lease(name, holder, self._fences.get(scope, (0, 0))[0] + 1, ttl, attempt, time.time())
        self._raise(scope, (lease.term, 0))
        self._leases.begin(lease)
        return Acquired(True, HeldLease(lease, ttl), self.position)

    async def keep_lease(self, name: str, holder: str, term: int) -> None:
        """Renew a lease for a whole ttl."""
        await trio.lowlevel.checkpoint()
        self._leases.keep(name, holder, term)

    async def release_lease(self, name: str, holder: str, term: int) -> None:
        """End a term early."""
        self._leases.leave(name, holder, term)
        await trio.lowlevel.checkpoint()
        self._end_what_has_run_out()
        held = self._leases.held(name)
        if held is not None and (held.lease.holder, held.lease.term) == (holder, term):
            self._end(held.lease)

    def last_leases(self, *, lasting: bool) -> None:
        """Set whether leases last until they are released."""
        self._leases.last(lasting=lasting)

    async def list_leases(self, name_prefix: str = "") -> tuple[Sequence[HeldLease], Position]:
        """Return the held leases whose names begin with the prefix, and a position."""
        await trio.lowlevel.checkpoint()
        return self._leases.list(name_prefix), self.position

    async def wait_lease_ended(self, name: str, term: int) -> None:
        """Wait until the lease is not held in this term."""
        await trio.lowlevel.checkpoint()
        await self._leases.wait_ended(name, term)

    def _end_what_has_run_out(self) -> None:
        for lease in self._leases.run_out():
            self._end(lease)

    def _end(self, lease: Lease) -> None:
        # No holder ever has the term above it. The next one to acquire the lease gets a term above that.
        self._raise(scope_of(lease.name), (lease.term + 1, 0))
        self._leases.end(lease.name, lease.term)

    def _raise(self, who: tuple[str, str], wanted: tuple[int, int]) -> None:
        self._fences[who] = wanted
        self._append(self._log.head + 1, ())

    def _check_fence(self, fence: Fence) -> None:
        self._end_what_has_run_out()
        stored = self._fences.get((fence.controller, fence.member), (0, 0))
        check_borne(fence.controller, fence.member, stored, (fence.term, fence.number))


def _meets_the_protocol() -> tuple[Backend, ReadsAtOnce, ListsFences]:
    return MemoryBackend(), MemoryBackend(), MemoryBackend()

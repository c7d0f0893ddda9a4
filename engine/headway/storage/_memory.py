"""The store in memory, for tests and for programs that need no durability. It is the reference for other stores."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Self

import trio
from typing_extensions import override

from headway.base import OneRun, wall_time
from headway.errors import StoreUnusable
from headway.resource import Key, Kind, Position, pb
from headway.storage._abilities import CountsKinds, FiltersMetadata, ListsFences, ReadsAtOnce, TakesRules
from headway.storage._backend import Backend
from headway.storage._fences import first_checkpoint, next_term, raised_fence
from headway.storage._lease_table import LeaseTable
from headway.storage._leases import Acquired, CurrentLease, Lease, check_borne, lease_of, scope_of
from headway.storage._log import MAX_BYTES, NO_FORMERS, CommitLog, Formers, LogChange
from headway.storage._operations import Fence, Operation, Raised, Within, refuse_repeated_keys
from headway.storage._reads import count_for_rules, list_owned, list_within, read_snapshot
from headway.storage._resuming import check_resumable, resume
from headway.storage._rules import Rules, TableContent
from headway.storage._tables import Effect, ResourceTables, changes_of, decide
from headway.storage._watch import LogWatch, Pulse

IN_A_ROW = 8
"""The number of commits of a writer alone after which other tasks run. A switch of tasks costs as much as a commit."""


class MemoryBackend(Backend, CountsKinds, ReadsAtOnce, ListsFences, FiltersMetadata, TakesRules):
    """A `Backend` that keeps everything in memory until the process ends. Each instance has a new store id.

    A commit ends at once if its task is canceled. It lets other tasks run if another writer does so too, or after
    every eighth commit.

    Args:
        max_changes: the number of changes of history to keep for watchers that resume.
        max_age: the maximum age of the kept history in seconds.
        max_bytes: the number of bytes of history to keep, about as they are in memory.
    """

    def __init__(self, *, max_changes: int = 100_000, max_age: float = 3600.0, max_bytes: int = MAX_BYTES) -> None:
        self._store_id = uuid.uuid4().hex
        self._session = uuid.uuid4().hex
        self._tables = ResourceTables()
        self._content = TableContent(self._tables)
        self.rules = Rules(self._content)
        self._fences: dict[tuple[str, str], tuple[int, int]] = {}
        self._checkpoints: dict[str, dict[str, int]] = {}
        self._leases = LeaseTable()
        self._log = CommitLog(max_changes=max_changes, max_age=max_age, max_bytes=max_bytes)
        self._pulse, self._run = Pulse(), OneRun("this MemoryBackend")
        # The attempts to commit since other tasks could last run, whichever tasks made them.
        self._in_a_row = 0
        # The commits that let others run now. With any, each does so: a turn of many would work through cold memory.
        self._checkpointing = 0
        # Invariant: the position of the log's head. It is made once for each commit, not for each read.
        self._position = self._at(0)

    @override
    async def __aenter__(self) -> Self:
        self._run.enter()
        return self

    @override
    async def __aexit__(self, *_: object) -> None:
        self._run.leave()
        # Open watches fail. A test may keep the object and open it again: its later watches use the new pulse.
        self._pulse.stop(lambda: StoreUnusable("the store in memory is closed"))
        self._pulse = Pulse()

    @property
    @override
    def position(self) -> Position:
        return self._position

    def _at(self, revision: int) -> Position:
        return Position(self._store_id, self._session, revision)

    @override
    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        await trio.lowlevel.checkpoint()
        return self.read_nowait(kind, key)

    @override
    def read_nowait(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        return self._tables.get(kind, key), self._position

    @override
    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        await trio.lowlevel.checkpoint()
        here = self.position
        return await list_within(self._tables, kind, within, after, limit), here

    @override
    async def list_by_owner(self, owner_uid: str) -> tuple[Sequence[pb.Resource], Position]:
        await trio.lowlevel.checkpoint()
        here = self.position
        return await list_owned(self._tables, owner_uid), here

    @override
    async def kinds(self) -> Sequence[Kind]:
        await trio.lowlevel.checkpoint()
        return self._tables.kinds()

    @override
    async def count_kinds(self) -> Mapping[Kind, int]:
        await trio.lowlevel.checkpoint()
        return self._tables.sizes()

    @override
    async def count_for_rules(self) -> None:
        await trio.lowlevel.checkpoint()
        await count_for_rules(self.rules)

    @override
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        if len(operations) > 1:
            refuse_repeated_keys(operations)
        if self.rules.active:
            await count_for_rules(self.rules, operations)
        # This is the only checkpoint. A cancellation cannot interrupt the commit that follows.
        self._in_a_row += 1
        if self._in_a_row % IN_A_ROW and not self._checkpointing:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._checkpointing += 1
            try:
                await trio.lowlevel.checkpoint()
            finally:
                self._checkpointing -= 1
        if fence is not None:
            self._check_fence(fence)
        applied = [entry for operation in operations if (entry := decide(self._tables, operation)) is not None]
        if applied:
            rules = self.rules
            # Most commits change one resource, and none that a rule is about: they pay for a look-up and no call.
            if rules.active or (applied[0][0] in rules.kinds if len(applied) == 1 else rules.concern(applied)):
                changes = self._content.changes(applied)
                rules.charge(changes)
                self._publish(applied)
                rules.follow(changes)
            else:
                self._publish(applied)
        return self._position

    def _publish(self, applied: Sequence[Effect]) -> None:
        revision = self._log.head + 1
        version = str(revision)
        changes: list[LogChange] = []
        formers: dict[int, pb.Resource] = {}
        for kind, key, old, new in applied:
            if new is not None:
                new.version = version
                self._tables.put(kind, key, new)
            else:
                self._tables.remove(kind, key)
            changes += changes_of(kind, old, new, formers, len(changes))
        self._append(revision, changes, formers)

    def _append(self, revision: int, changes: Sequence[LogChange], formers: Formers = NO_FORMERS) -> None:
        self._log.append(revision, changes, trio.current_time(), formers)
        self._position = self._at(revision)
        self._pulse.beat()

    @override
    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        await trio.lowlevel.checkpoint()
        if resume_after is not None:
            check_resumable(resume_after, self.position, {self._session: None})
            cursor = resume(self._log, kind, within, resume_after.revision)
            return LogWatch(self._log, self._pulse, self._at, cursor, within, None)
        snapshot = read_snapshot(self._tables, kind, within)
        return LogWatch(self._log, self._pulse, self._at, self._log.cursor(kind, self._log.head), within, snapshot)

    @override
    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        await trio.lowlevel.checkpoint()
        self._end_expired_leases()
        scope = (controller, member)
        stored, following = self._fences.get(scope, (0, 0)), next_term(scope, self._fences)
        # Compare with the committed lease, even if it has expired since the line above. Its term has not been ended,
        # and the commit that ends it must find the fence in that term.
        held = self._leases.committed(lease_of(controller, member))
        fence = raised_fence(Fence(controller, member, term, number), stored, held and held.term, following)
        self._raise(scope, (fence.term, fence.number))
        self._leases.use(lease_of(controller, member))
        known = self._checkpoints.setdefault(controller, {})
        return Raised(fence, self.position, known.setdefault(member, first_checkpoint(member, known) or self._log.head))

    @override
    async def record_checkpoint(self, fence: Fence, revision: int) -> None:
        await trio.lowlevel.checkpoint()
        self._check_fence(fence)
        known = self._checkpoints.setdefault(fence.controller, {})
        known[fence.member] = max(known.get(fence.member, 0), revision)

    @override
    async def list_fences(self) -> Sequence[Fence]:
        await trio.lowlevel.checkpoint()
        return [Fence(*scope, *at) for scope, at in sorted(self._fences.items())]

    @override
    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        await trio.lowlevel.checkpoint()
        self._end_expired_leases()
        held = self._leases.held_against(name, holder, attempt)
        if held is not None:
            return Acquired(False, held, self.position)
        scope = scope_of(name)
        lease = Lease(name, holder, next_term(scope, self._fences), ttl, attempt, wall_time())
        self._raise(scope, (lease.term, 0))
        self._leases.begin(lease)
        return Acquired(True, CurrentLease(lease, ttl), self.position)

    @override
    async def keep_lease(self, name: str, holder: str, term: int) -> None:
        await trio.lowlevel.checkpoint()
        self._leases.renew(name, holder, term)

    @override
    async def release_lease(self, name: str, holder: str, term: int) -> None:
        self._leases.begin_release(name, holder, term)
        await trio.lowlevel.checkpoint()
        self._end_expired_leases()
        lease = self._leases.held_by(name, holder, term)
        if lease is not None:
            self._end(lease)

    def last_leases(self, *, lasting: bool) -> None:
        """Set whether leases last until they are released."""
        self._leases.set_lasting(lasting=lasting)

    @override
    async def list_leases(self, name_prefix: str = "") -> tuple[Sequence[CurrentLease], Position]:
        await trio.lowlevel.checkpoint()
        return self._leases.list(name_prefix), self.position

    @override
    async def wait_lease_ended(self, name: str, term: int) -> None:
        await trio.lowlevel.checkpoint()
        await self._leases.wait_ended(name, term)

    def _end_expired_leases(self) -> None:
        for lease in self._leases.expired():
            self._end(lease)

    def _end(self, lease: Lease) -> None:
        # No holder ever has the term above it. The next one to acquire the lease gets a term above that.
        self._raise(scope_of(lease.name), (lease.term + 1, 0))
        self._leases.end(lease.name, lease.term)

    def _raise(self, scope: tuple[str, str], wanted: tuple[int, int]) -> None:
        self._fences[scope] = wanted
        self._append(self._log.head + 1, ())

    def _check_fence(self, fence: Fence) -> None:
        self._end_expired_leases()
        stored = self._fences.get((fence.controller, fence.member), (0, 0))
        check_borne(fence, stored)

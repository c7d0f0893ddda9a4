"""The store in a schema of a PostgreSQL database."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Self

import trio
from typing_extensions import override

from headway.errors import CommitRefused, StoreUnusable
from headway.resource import Key, Kind, Position, pb
from headway.storage._abilities import (
    CountsKinds,
    FiltersMetadata,
    ListsFences,
    OptimisticReads,
    Probed,
    ReadsCopies,
    Shared,
    TakesRules,
)
from headway.storage._backend import Backend
from headway.storage._kept import Bounds, KeptWatch
from headway.storage._leases import Acquired, CurrentLease
from headway.storage._log import MAX_BYTES
from headway.storage._operations import Fence, Operation, Raised, Within, refuse_repeated_keys
from headway.storage._reads import Snapshot
from headway.storage._resuming import check_resumable, resume
from headway.storage._rules import Rules
from headway.storage._traces import COMMITTING
from headway.storage.postgres import _lease, _reads
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._address import PostgresAddress, postgres_address
from headway.storage.postgres._follow import Follower
from headway.storage.postgres._requests import CheckpointRequest, RaiseRequest, Request, WriteRequest
from headway.storage.postgres._session import Session

MAX_CHANGES, MAX_AGE = 100_000, 3600.0


class PostgresBackend(
    Backend, Shared, OptimisticReads, ListsFences, CountsKinds, Probed, FiltersMetadata, ReadsCopies, TakesRules
):
    """A `Backend` in a schema of a PostgreSQL database, shared with any number of other engines.

    Open it with ``async with``. Opening creates the schema if the user may do so. It raises Unavailable if no server
    can be reached that accepts writes, and StoreUnusable if the schema cannot be used.

    Args:
        url: ``postgresql://user@host:port/database?schema=NAME``. See `postgres_address` for its options. The other
            arguments take precedence over them.
        max_changes: the number of changes of history to keep for watchers that resume. 100,000 by default.
        max_age: the maximum age of the kept history in seconds. 3600 by default.
        max_bytes: the number of bytes of history to keep. 256 MiB by default.

    Attributes:
        filters_metadata: True, because its watches and lists filter by metadata.
        reads_copies: True, because every read decodes its resources again.
        rules: the rules of its commits.
    """

    def __init__(
        self,
        url: str | PostgresAddress,
        *,
        max_changes: int | None = None,
        max_age: float | None = None,
        max_bytes: int | None = None,
    ) -> None:
        address = postgres_address(url) if isinstance(url, str) else url
        self._address = address
        self._bounds = Bounds(
            max_changes or address.max_changes or MAX_CHANGES,
            max_age or address.max_age or MAX_AGE,
            max_bytes or address.max_bytes or MAX_BYTES,
        )
        self._counts: Counter[str] = Counter()
        self.rules = Rules()
        # Set while the store is open.
        self._opening: AbstractAsyncContextManager[Session] | None = None
        self._session: Session | None = None

    @property
    @override
    def shared(self) -> bool:
        return True

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of lost connections, changed servers and other rare events, by name. For diagnosis."""
        return MappingProxyType(self._counts)

    @override
    async def __aenter__(self) -> Self:
        if self._opening is not None:
            raise StoreUnusable(
                f"the store at {self._address} is already open: a PostgresBackend cannot be entered twice"
            )
        self._opening = _session(self._address, self._bounds, self._counts, self.rules)
        try:
            self._session = await self._opening.__aenter__()
        except BaseException:
            self._opening = None
            raise
        return self

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._opening is not None, "exited without being entered"
        opening, self._opening, self._session = self._opening, None, None
        await opening.__aexit__(kind, error, traceback)

    def _use(self) -> Session:
        if self._session is None:
            raise StoreUnusable(f"the store at {self._address} is not open")
        return self._session.use()

    @property
    @override
    def position(self) -> Position:
        return self._use().position

    @override
    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        session = self._use()
        found, here = await _reads.read(session.gathered, kind, key)
        if found is not None:
            session.meet((kind, key))
        return found, session.note(*here)

    @override
    async def read_optimistic(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """Return None for a resource that this engine has not met. So most creations need no read before their commit.

        The commit verifies that there is none. Any other resource is read.
        """
        session = self._use()
        if session.has_met((kind, key)):
            return await self.read(kind, key)
        return None, session.position

    @override
    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        session = self._use()
        scan = _reads.Scan(partial(_reads.rows_within, session.sql, kind, within), after, limit)
        found, here = await _reads.list_all(session.scans, session.sql, scan)
        return found, session.note(*here)

    @override
    async def list_part(
        self, kind: Kind, within: Within, after: Key | None, limit: int
    ) -> tuple[Sequence[pb.Resource], Key | None, Position]:
        session = self._use()
        found, behind, here = await _reads.list_part(session.scans, session.sql, kind, within, after, limit)
        return found, behind, session.note(*here)

    @override
    async def list_by_owner(self, owner_uid: str) -> tuple[Sequence[pb.Resource], Position]:
        session = self._use()
        scan = _reads.Scan(partial(_reads.rows_owned, session.sql, owner_uid))
        found, here = await _reads.list_all(session.scans, session.sql, scan)
        return found, session.note(*here)

    @override
    async def owned_parts(self, owner_uid: str) -> tuple[Snapshot, Position]:
        session = self._use()
        owned, here = await session.snapshots.read_owned(owner_uid)
        return owned, session.note(*here)

    @override
    async def kinds(self) -> Sequence[Kind]:
        session = self._use()
        [rows] = await session.readers.ask((session.sql.kinds, {}))
        return [(group, kind) for group, kind in rows]

    @override
    async def count_kinds(self) -> Mapping[Kind, int]:
        session = self._use()
        [rows] = await session.readers.ask((session.sql.count_kinds, {}))
        return {(group, kind): count for group, kind, count in rows}

    @override
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        refuse_repeated_keys(operations)
        session = self._use()
        request = WriteRequest(operations, fence)
        request.committing = COMMITTING.get()
        try:
            await session.writer.submit(request)
        except CommitRefused as error:
            self.rules.refused(error)
            raise
        for each in request.changed:
            session.meet(each)
        return session.after(request)

    @override
    async def count_for_rules(self) -> None:
        request = Request()
        request.counts = True
        await self._use().writer.submit(request)

    @override
    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        session = self._use()
        request = RaiseRequest(Fence(controller, member, term, number))
        await session.writer.submit(request)
        return Raised(request.fence, session.after(request), request.checkpoint)

    @override
    async def record_checkpoint(self, fence: Fence, revision: int) -> None:
        session = self._use()
        await session.writer.submit(CheckpointRequest(fence, revision))

    @override
    async def list_fences(self) -> Sequence[Fence]:
        session = self._use()
        [rows] = await session.readers.ask((session.sql.list_fences, {}))
        return [Fence(*row) for row in rows]

    @override
    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        return await _lease.acquire(self._use(), name, holder, ttl, attempt)

    @override
    async def keep_lease(self, name: str, holder: str, term: int) -> None:
        await _lease.keep(self._use(), name, holder, term)

    @override
    async def release_lease(self, name: str, holder: str, term: int) -> None:
        await _lease.release(self._use(), name, holder, term)

    @override
    async def list_leases(self, name_prefix: str = "") -> tuple[Sequence[CurrentLease], Position]:
        return await _lease.listed(self._use(), name_prefix)

    @override
    async def wait_lease_ended(self, name: str, term: int) -> None:
        await _lease.wait_ended(self._use(), name, term)

    @override
    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> KeptWatch:
        session = self._use()
        while True:
            history, snapshot = session.history, None
            if resume_after is None:
                snapshot, at = await session.snapshots.read(kind, within)
                here = session.note(*at)
            else:
                here = await session.confirm()
            if snapshot is None or not history.knows(here.session):
                await session.until_reached(history, here.revision)
            if history is session.history:
                break
            # It was replaced meanwhile, and what was read may be of the other one.
        if resume_after is None:
            cursor = history.log.cursor(kind, here.revision)
        else:
            check_resumable(resume_after, here, history.timeline.lefts(), history.timeline.oldest)
            cursor = resume(history.log, kind, within, resume_after.revision, history.kept.floor)
        read = partial(session.read_page, history)
        return KeptWatch(history.log, history.pulse, history.at, cursor, within, snapshot, history.kept, read)

    @override
    async def probe(self) -> None:
        session = self._use()
        await session.readers.ask((sql.BEGIN, {}), (session.sql.lock, {}), (sql.ROLLBACK, {}))


@asynccontextmanager
async def _session(
    address: PostgresAddress, bounds: Bounds, counts: Counter[str], rules: Rules
) -> AsyncIterator[Session]:
    session = Session(address, bounds, counts, rules)
    await session.open()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.writer.run, name="postgres: commit")
            following = trio.CancelScope()
            nursery.start_soon(_follow, session, following)
            try:
                yield session
            finally:
                session.stop(session.closed)
                session.writer.close()
                following.cancel()
                session.readers.close()
                session.scans.close()
    except BaseExceptionGroup as group:
        # Raise the error of the caller's block itself, not in a group.
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__


async def _follow(session: Session, scope: trio.CancelScope) -> None:
    with scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.gathered.run, name="postgres: read")
            nursery.start_soon(session.held.run, name="postgres: read leases")
            nursery.start_soon(session.writer.wake_late, name="postgres: wake writers")
            nursery.start_soon(Follower(session).run, name="postgres: follow the store")

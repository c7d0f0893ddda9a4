"""The store in one SQLite file: durable with no server, for one process at a time."""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self

import trio

from headway.errors import HeadwayError, StoreUnusable
from headway.resource import Key, Kind, Position, pb
from headway.storage._backend import Backend, Fence, Operation, Raised, Within, refuse_repeated_keys
from headway.storage._errors import LeaseEnded
from headway.storage._lease_table import LeaseTable
from headway.storage._leases import Acquired, HeldLease, Lease
from headway.storage._log import CommitLog
from headway.storage._optional import ListsFences, Probed
from headway.storage._resume import check_resumable
from headway.storage._sqlite_check import check_file
from headway.storage._sqlite_commit import CheckpointRequest, RaiseRequest, Request, TouchRequest, WriteRequest
from headway.storage._sqlite_connect import check_room
from headway.storage._sqlite_file import OpenedFile, open_file
from headway.storage._sqlite_gather import GatheredReads
from headway.storage._sqlite_lease import AcquireRequest, EndRequest, read_leases
from headway.storage._sqlite_reader import (
    Readers,
    RowSnapshot,
    connect_readers,
    decode_rows,
    read_fences,
    read_kinds,
    read_log,
    read_many,
    read_owned,
    read_session,
)
from headway.storage._sqlite_url import check_history
from headway.storage._sqlite_writer import GroupWriter
from headway.storage._tail import LogWatch, Pulse


class SqliteBackend:
    """Meets `Backend` on an SQLite file (WAL, synchronous FULL). Open it with ``async with``.

    An acknowledged commit survives the end of the process, however it ends, and, as far as the disk keeps its
    promises, the loss of power. Opening reads the whole file once, to find damage before anything is served.

    Args:
        path: of the file, made if there is none. Beside it stand ``<path>-wal``, ``<path>-shm`` and ``<path>.lock``.
        max_changes: how many changes of history are kept for watchers that resume, after a restart too.
        max_age: for how many seconds.

    Raises InvalidArgument for bounds that are none. Opening raises StoreUnusable when the file is held by a process
    (named), foreign, a backup, damaged, newer than this program, or can't be reached; the file is then as it was. One
    of an earlier format is brought to this program's, all of it or nothing.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_changes: int = 100_000, max_age: float = 3600.0) -> None:
        check_history(max_changes, max_age)
        self._path = path
        self._max_changes = max_changes
        self._max_age = max_age
        # Set while the store is open.
        self._opened: _Opened | None = None

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise StoreUnusable(f"{os.fspath(self._path)} is held by this very object: it is open already")
        self._opened = _Opened(*await trio.to_thread.run_sync(self._open, trio.current_time()))
        return self

    def _open(self, now: float) -> tuple[OpenedFile, Readers, CommitLog, list[Lease]]:
        with ExitStack() as undo:
            file = open_file(self._path)
            undo.callback(file.close)
            connections = connect_readers(file.path)
            for connection in connections:
                undo.callback(connection.close)
            try:
                log = read_log(file.writer, file.floor, self._max_changes, self._max_age, (now, time.time()))
                leases = read_leases(file.writer)
            except Exception as error:
                raise StoreUnusable(f"{file.path} is damaged: its history or leases can't be read: {error}") from error
            undo.pop_all()
        return file, Readers(file.path, connections), log, leases

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._opened is not None, "entered once, left once"
        opened, self._opened = self._opened, None
        await opened.close()

    def _use(self) -> _Opened:
        if self._opened is None:
            raise _closed(os.fspath(self._path))()
        self._opened.writer.check_usable()
        return self._opened

    @property
    def position(self) -> Position:
        """See `Backend.position`."""
        opened = self._use()
        return opened.at(opened.head)

    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """See `Backend.read`."""
        opened = self._use()
        resource, revision = await opened.gathered.read(kind, key)
        return resource, opened.seen(revision)

    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        """See `Backend.list`."""
        opened = self._use()
        read = partial(read_many, kind=kind, within=within, after=after, limit=limit)
        rows, revision = await opened.readers.run(read)
        return await decode_rows(rows), opened.seen(revision)

    async def list_by_owner(self, owner_uid: str) -> tuple[Sequence[pb.Resource], Position]:
        """See `Backend.list_by_owner`."""
        opened = self._use()
        rows, revision = await opened.readers.run(partial(read_owned, owner_uid=owner_uid))
        return await decode_rows(rows), opened.seen(revision)

    async def kinds(self) -> Sequence[Kind]:
        """See `Backend.kinds`."""
        return await self._use().readers.run(read_kinds)

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        """See `Backend.commit`. Raises StoreUnusable when nothing was written, OutcomeUnknown when that is unknown."""
        refuse_repeated_keys(operations)
        opened = self._use()
        request = WriteRequest(operations, fence)
        await opened.writer.submit(request)
        return opened.at(request.revision)

    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        """See `Backend.raise_fence`."""
        opened = self._use()
        request = RaiseRequest(Fence(controller, member, term, number))
        await opened.writer.submit(request)
        return Raised(request.fence, opened.at(request.revision), request.checkpoint)

    async def record_checkpoint(self, fence: Fence, revision: int) -> None:
        """See `Backend.record_checkpoint`."""
        await self._use().writer.submit(CheckpointRequest(fence, revision))

    async def list_fences(self) -> Sequence[Fence]:
        """See `ListsFences.list_fences`."""
        return await self._use().readers.run(read_fences)

    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        """See `Backend.acquire_lease`."""
        opened = self._use()
        leases = opened.leases
        await trio.lowlevel.checkpoint()
        # What can be answered without a transaction is: many ask for a lease that another holds.
        held = leases.holds_off(name, holder, attempt)
        if held is not None:
            return Acquired(False, held, opened.at(opened.head))
        request = AcquireRequest(leases, name, holder, ttl, attempt)
        await opened.writer.submit(request)
        held = leases.held(name)
        remaining = held.remaining if held is not None and held.lease.term == request.lease.term else 0.0
        return Acquired(request.acquired, HeldLease(request.lease, remaining), opened.at(request.revision))

    async def keep_lease(self, name: str, holder: str, term: int) -> None:
        """See `Backend.keep_lease`."""
        opened = self._use()
        await trio.lowlevel.checkpoint()
        try:
            opened.leases.keep(name, holder, term)
        except LeaseEnded:
            await opened.end_what_has_run_out()
            raise

    async def release_lease(self, name: str, holder: str, term: int) -> None:
        """See `Backend.release_lease`."""
        opened = self._use()
        opened.leases.leave(name, holder, term)
        await trio.lowlevel.checkpoint()
        await opened.end_what_has_run_out()
        held = opened.leases.held(name)
        if held is not None and (held.lease.holder, held.lease.term) == (holder, term):
            await opened.writer.submit(EndRequest(opened.leases, [held.lease]))

    def last_leases(self, *, lasting: bool) -> None:
        """See `last_leases`."""
        self._use().leases.last(lasting=lasting)

    async def list_leases(self, name_prefix: str = "") -> tuple[Sequence[HeldLease], Position]:
        """See `Backend.list_leases`."""
        opened = self._use()
        await trio.lowlevel.checkpoint()
        await opened.end_what_has_run_out()
        return opened.leases.list(name_prefix), opened.at(opened.head)

    async def wait_lease_ended(self, name: str, term: int) -> None:
        """See `Backend.wait_lease_ended`."""
        opened = self._use()
        await trio.lowlevel.checkpoint()
        await opened.leases.wait_ended(name, term)
        await opened.end_what_has_run_out()

    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        """See `Backend.watch`."""
        opened = self._use()
        log = opened.log
        if resume_after is not None:
            known = await opened.readers.run(partial(read_session, incarnation=resume_after.session))
            check_resumable(resume_after, opened.at(opened.head), known, opened.file.oldest)
            cursor = log.cursor(kind, resume_after.revision)
            return LogWatch(log, opened.pulse, opened.at, cursor, within, None)
        # The snapshot is read at the log's head or later: with what follows the head kept, its tail can't be lost.
        pin = log.pin(log.head, math.inf)
        try:
            rows, revision = await opened.readers.run(partial(read_many, kind=kind, within=within))
            opened.seen(revision)
            cursor = log.cursor(kind, revision)
        finally:
            log.release(pin)
        return LogWatch(log, opened.pulse, opened.at, cursor, within, RowSnapshot(rows))

    async def probe(self) -> None:
        """See `Probed.probe`."""
        opened = self._use()
        if opened.writer.failing:
            # The touch needs a page or two. What SQLite has taken of a full disk may have room for it, and for no more.
            await trio.to_thread.run_sync(check_room, opened.file.path)
            await opened.writer.submit(TouchRequest())
        await opened.refuse_moved()
        await opened.readers.check()

    async def check_itself(self) -> Sequence[str]:
        """What is wrong with the file, each in a sentence; nothing when it is whole. Writes nothing."""
        opened = self._use()
        await opened.refuse_moved()
        return [str(finding) for finding in await trio.to_thread.run_sync(check_file, opened.file.path)]


class _Opened:
    """What there is while a store is open."""

    def __init__(self, file: OpenedFile, readers: Readers, log: CommitLog, leases: Sequence[Lease]) -> None:
        self.file = file
        self.log = log
        self.pulse = Pulse()
        self.readers = readers
        self.gathered = GatheredReads(self.readers)
        self.leases = LeaseTable(leases)
        self.writer = GroupWriter(file, log, self.pulse, self._ends)
        # Invariant: no revision above this one and the log's head has been shown to anybody. A read may see a
        # commit in the file a moment before its leader has published it.
        self._seen = log.head

    @property
    def head(self) -> int:
        """The last revision that this opening has shown to anybody."""
        return max(self._seen, self.log.head)

    def at(self, revision: int) -> Position:
        """A position of this opening."""
        return Position(self.file.store_id, self.file.session, revision)

    def seen(self, revision: int) -> Position:
        """The position of a revision that a read has found in the file."""
        self._seen = max(self._seen, revision)
        return self.at(revision)

    def _ends(self) -> Sequence[Request]:
        run_out = self.leases.run_out()
        return [EndRequest(self.leases, run_out)] if run_out else ()

    async def end_what_has_run_out(self) -> None:
        """Before anybody is told that a lease has run out: what has been told must hold after a restart, too."""
        if self.leases.run_out():
            # Whatever is committed begins with what has run out.
            await self.writer.submit(EndRequest(self.leases, ()))

    async def refuse_moved(self) -> None:
        """Stop the store and raise StoreUnusable if its path no longer leads to its file."""
        if await trio.to_thread.run_sync(lambda: self.file.is_moved):
            # The transaction is refused as that of a write would be, and stores nothing.
            await self.writer.submit(TouchRequest())

    async def close(self) -> None:
        """Let what is under way end, then let go of the file."""
        closed = _closed(self.file.path)
        with trio.CancelScope(shield=True):
            self.writer.refuse(closed)
            self.pulse.stop(closed)
            self.leases.stop(closed)
            await self.writer.wait_idle()
            await self.readers.close()
            await trio.to_thread.run_sync(self.file.close)


def _closed(path: str) -> Callable[[], HeadwayError]:
    return lambda: StoreUnusable(f"the store in {path} is closed")


@asynccontextmanager
async def open_sqlite(
    path: str | os.PathLike[str], *, max_changes: int = 100_000, max_age: float = 3600.0
) -> AsyncIterator[SqliteBackend]:
    """Open the store in the SQLite file at ``path`` for the length of the block; see `SqliteBackend`."""
    async with SqliteBackend(path, max_changes=max_changes, max_age=max_age) as backend:
        yield backend


def _meets_the_protocol() -> tuple[Backend, ListsFences, Probed]:
    return SqliteBackend(""), SqliteBackend(""), SqliteBackend("")

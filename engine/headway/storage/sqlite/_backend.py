"""A store in one SQLite file: durable without a server, for one process at a time."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any, Self

import trio
from typing_extensions import override

from headway.base import ThreadCalls, in_forked_child
from headway.errors import HeadwayError, StoreUnusable
from headway.resource import Key, Kind, Position, pb
from headway.storage._abilities import (
    ChecksItself,
    CountsKinds,
    FiltersMetadata,
    ListsFences,
    Probed,
    ReadsCopies,
    TakesRules,
)
from headway.storage._backend import Backend
from headway.storage._kept import Bounds, KeptCommits, KeptWatch, Page
from headway.storage._lease_table import LeaseTable
from headway.storage._leases import Acquired, CurrentLease, Lease, TermEnded
from headway.storage._log import MAX_BYTES, CommitLog
from headway.storage._operations import Fence, Operation, Raised, Within, refuse_repeated_keys
from headway.storage._reads import Snapshot
from headway.storage._resuming import check_resumable, resume
from headway.storage._rules import Rules
from headway.storage._traces import COMMITTING
from headway.storage._watch import LogWatch, Pulse
from headway.storage.sqlite._check import check_file
from headway.storage.sqlite._connect import check_room
from headway.storage.sqlite._file import OpenedFile, open_file
from headway.storage.sqlite._history import read_history, read_page
from headway.storage.sqlite._reader import (
    CONNECTIONS,
    GatheredReads,
    Readers,
    connect_readers,
    count_kinds,
    read_fences,
    read_kinds,
    read_many,
    read_part,
    read_session,
)
from headway.storage.sqlite._recent import RecentResources
from headway.storage.sqlite._requests import (
    AcquireRequest,
    CheckpointRequest,
    CountRequest,
    EndRequest,
    RaiseRequest,
    Request,
    TouchRequest,
    WriteRequest,
    read_leases,
)
from headway.storage.sqlite._snapshots import FileSnapshot, OwnedSnapshot
from headway.storage.sqlite._url import check_history
from headway.storage.sqlite._writer import GroupWriter


class SqliteBackend(Backend, ListsFences, CountsKinds, ChecksItself, Probed, FiltersMetadata, ReadsCopies, TakesRules):
    """A `Backend` on an SQLite file (WAL, synchronous FULL). Open it with ``async with``.

    An acknowledged commit survives any end of the process. It also survives a loss of power, as far as the disk keeps
    its promises. Opening reads the whole file once, to find damage before anything is served.

    Args:
        path: the file, which is created if it does not exist. Beside it are ``<path>-wal``, ``<path>-shm`` and
            ``<path>.lock``.
        max_changes: the number of changes kept as history for watchers that resume, also after a restart.
        max_age: the number of seconds for which they are kept.
        max_bytes: the number of their bytes that are kept, as they are encoded.

    The history is in the file. Memory has only its newest changes.

    Raises InvalidArgument for invalid bounds. Opening raises StoreUnusable if the file is held by a process (which is
    named), is not a store, is a backup, is damaged, is newer than this program or cannot be accessed; the file is then
    unchanged. A file of an earlier format is upgraded atomically to this program's format.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_changes: int = 100_000,
        max_age: float = 3600.0,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        check_history(max_changes, max_age, max_bytes)
        self._path = path
        self._bounds = Bounds(max_changes, max_age, max_bytes)
        self.rules = Rules(in_thread=True)
        # Set while the store is open.
        self._opened: _Opened | None = None

    @override
    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise StoreUnusable(f"{os.fspath(self._path)} is already open in this SqliteBackend")
        self.rules.lose()
        with ExitStack() as undo:
            threads = _threads(undo, self._path)
            opened = await trio.to_thread.run_sync(self._open, trio.current_time())
            self._opened = _Opened(self.rules, threads, *opened)
            undo.pop_all()
        return self

    def _open(self, now: float) -> tuple[OpenedFile, list[sqlite3.Connection], KeptCommits, CommitLog, list[Lease]]:
        with ExitStack() as undo:
            file = open_file(self._path)
            undo.callback(file.close)
            connections = connect_readers(file.path)
            for connection in connections:
                undo.callback(connection.close)
            try:
                clock = (now, time.time())
                kept, log = read_history(file.writer, file.floor, file.formers_floor, self._bounds, clock)
                leases = read_leases(file.writer)
            except Exception as error:
                raise StoreUnusable(f"{file.path} is damaged: its history or leases cannot be read: {error}") from error
            undo.pop_all()
        return file, connections, kept, log, leases

    @override
    async def __aexit__(self, *_: object) -> None:
        assert self._opened is not None, "entered once, left once"
        opened, self._opened = self._opened, None
        await opened.close()

    def _use(self) -> _Opened:
        if self._opened is None:
            raise _closed(os.fspath(self._path))()
        self._opened.writer.check_usable()
        return self._opened

    @property
    @override
    def position(self) -> Position:
        opened = self._use()
        return opened.at(opened.head)

    @override
    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        opened = self._use()
        if (recent := opened.find_recent(kind, key)) is not None:
            await trio.lowlevel.checkpoint()
            return recent
        resource, revision = await opened.gathered.read(kind, key)
        return resource, opened.seen(revision)

    def read_nowait(self, kind: Kind, key: Key) -> tuple[pb.Resource, Position] | None:
        """Return the same as `read` if the resource was stored lately, or None if the file has to be read."""
        return self._use().find_recent(kind, key)

    @override
    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        opened = self._use()
        read = partial(read_many, kind=kind, within=within, after=after, limit=limit)
        async with opened.readers.pages:
            rows, revision = await opened.readers.run(read)
            return await rows.all(), opened.seen(revision)

    @override
    async def list_part(
        self, kind: Kind, within: Within, after: Key | None, limit: int
    ) -> tuple[Sequence[pb.Resource], Key | None, Position]:
        opened = self._use()
        read = partial(read_part, kind=kind, within=within, after=after, limit=limit)
        async with opened.readers.pages:
            resources, end, revision = await opened.readers.run(read)
        return resources, end, opened.seen(revision)

    @override
    async def list_by_owner(self, owner_uid: str) -> tuple[Sequence[pb.Resource], Position]:
        owned, here = await self.owned_parts(owner_uid)
        found: list[pb.Resource] = []
        while part := await owned.next():
            found += part
        await trio.lowlevel.checkpoint_if_cancelled()
        return found, here

    @override
    async def owned_parts(self, owner_uid: str) -> tuple[Snapshot, Position]:
        opened = self._use()
        return OwnedSnapshot(opened.readers, opened.file.replaced, owner_uid, opened.head), opened.at(opened.head)

    @override
    async def kinds(self) -> Sequence[Kind]:
        return await self._use().readers.run(read_kinds)

    @override
    async def count_kinds(self) -> Mapping[Kind, int]:
        return await self._use().readers.run(count_kinds)

    @override
    async def count_for_rules(self) -> None:
        await self._use().writer.submit(CountRequest(self.rules))

    @override
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        refuse_repeated_keys(operations)
        opened = self._use()
        request = WriteRequest(operations, fence, self.rules, opened.recent)
        request.committing = COMMITTING.get()
        await opened.writer.submit(request)
        return opened.at(request.revision)

    @override
    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        opened = self._use()
        request = RaiseRequest(Fence(controller, member, term, number))
        await opened.writer.submit(request)
        return Raised(request.fence, opened.at(request.revision), request.checkpoint)

    @override
    async def record_checkpoint(self, fence: Fence, revision: int) -> None:
        await self._use().writer.submit(CheckpointRequest(fence, revision))

    @override
    async def list_fences(self) -> Sequence[Fence]:
        return await self._use().readers.run(read_fences)

    @override
    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        opened = self._use()
        leases = opened.leases
        await trio.lowlevel.checkpoint()
        # Answer without a transaction if possible: many callers ask for a lease that another one holds.
        held = leases.held_against(name, holder, attempt)
        if held is not None:
            return Acquired(False, held, opened.at(opened.head))
        request = AcquireRequest(leases, name, holder, ttl, attempt)
        await opened.writer.submit(request)
        held = leases.held(name)
        remaining = held.remaining if held is not None and held.lease.term == request.lease.term else 0.0
        return Acquired(request.acquired, CurrentLease(request.lease, remaining), opened.at(request.revision))

    @override
    async def keep_lease(self, name: str, holder: str, term: int) -> None:
        opened = self._use()
        await trio.lowlevel.checkpoint()
        try:
            opened.leases.renew(name, holder, term)
        except TermEnded:
            await opened.end_expired_leases()
            raise

    @override
    async def release_lease(self, name: str, holder: str, term: int) -> None:
        opened = self._use()
        opened.leases.begin_release(name, holder, term)
        await trio.lowlevel.checkpoint()
        await opened.end_expired_leases()
        lease = opened.leases.held_by(name, holder, term)
        if lease is not None:
            await opened.writer.submit(EndRequest(opened.leases, [lease]))

    def last_leases(self, *, lasting: bool) -> None:
        """Set whether leases last until they are released, because only one process can ask for them."""
        self._use().leases.set_lasting(lasting=lasting)

    @override
    async def list_leases(self, name_prefix: str = "") -> tuple[Sequence[CurrentLease], Position]:
        opened = self._use()
        await trio.lowlevel.checkpoint()
        await opened.end_expired_leases()
        return opened.leases.list(name_prefix), opened.at(opened.head)

    @override
    async def wait_lease_ended(self, name: str, term: int) -> None:
        opened = self._use()
        await trio.lowlevel.checkpoint()
        await opened.leases.wait_ended(name, term)
        await opened.end_expired_leases()

    @override
    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        opened = self._use()
        log = opened.log
        if resume_after is not None:
            known = await opened.readers.run(partial(read_session, session=resume_after.session))
            check_resumable(resume_after, opened.at(opened.head), known, opened.file.oldest)
            cursor = resume(log, kind, within, resume_after.revision, opened.kept.floor)
            return KeptWatch(log, opened.pulse, opened.at, cursor, within, None, opened.kept, opened.read_page)
        await trio.lowlevel.checkpoint()
        snapshot = FileSnapshot(opened.readers, opened.file.replaced, kind, within, opened.head)
        cursor = log.cursor(kind, snapshot.revision)
        return KeptWatch(log, opened.pulse, opened.at, cursor, within, snapshot, opened.kept, opened.read_page)

    @override
    async def probe(self) -> None:
        opened = self._use()
        await opened.refuse_moved()
        if opened.writer.failing:
            # The touch only needs a page or two. The space that SQLite holds on a full disk may be enough for it, but
            # for nothing else.
            await trio.to_thread.run_sync(check_room, opened.file.path)
            await opened.writer.submit(TouchRequest())
        await opened.readers.check()

    @override
    async def check_itself(self) -> Sequence[str]:
        opened = self._use()
        await opened.refuse_moved()
        return [str(each) for each in (await trio.to_thread.run_sync(check_file, opened.file.path)).findings]


class _Opened:
    """The state of a store while it is open."""

    def __init__(
        self,
        rules: Rules,
        threads: Sequence[ThreadCalls[Any]],
        file: OpenedFile,
        connections: Sequence[sqlite3.Connection],
        kept: KeptCommits,
        log: CommitLog,
        leases: Sequence[Lease],
    ) -> None:
        self.file = file
        self.kept = kept
        self.log = log
        self.pulse = Pulse()
        self.readers = Readers(file.path, connections, threads[1:])
        self.gathered = GatheredReads(self.readers)
        self.leases = LeaseTable(leases)
        self.recent = RecentResources()
        self.writer = GroupWriter(file, rules, kept, log, self.pulse, self._ends, threads[0])
        # Invariant: no revision above both this one and the log's head has been shown to a caller. A read may see a
        # commit in the file a moment before its leader has published it.
        self._seen = log.head
        self._is_forked = False
        in_forked_child(self, _Opened._forked)

    def _forked(self) -> None:
        """Refuse everything in a forked child: SQLite's connections do not survive a fork."""
        self._is_forked = True
        forked = f"the store in {self.file.path} was opened by the process that this one was forked from"
        self.writer.refuse(lambda: StoreUnusable(f"{forked}: use it there, or through its service"))
        # Closing one would remove the log of the parent. They are never closed, not even at the end of the process.
        for connection in (self.file.writer, *self.readers.connections):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

    @property
    def head(self) -> int:
        """The last revision that this session has shown to a caller."""
        return max(self._seen, self.log.head)

    def at(self, revision: int) -> Position:
        """Return a position of this session."""
        return Position(self.file.store_id, self.file.session, revision)

    def seen(self, revision: int) -> Position:
        """Return the position of a revision that a read found in the file."""
        self._seen = max(self._seen, revision)
        return self.at(revision)

    async def read_page(self, kind: Kind, after: int, through: int, formers: bool) -> Page:
        """Read changes from the file, as `ReadPage` says."""
        async with self.readers.pages:
            return await self.readers.run(partial(read_page, kind=kind, after=after, through=through, formers=formers))

    def find_recent(self, kind: Kind, key: Key) -> tuple[pb.Resource, Position] | None:
        """Return a resource that was stored lately, as of the present. None says nothing: the file may have it."""
        if self._seen > self.log.head:
            # A reader has seen a commit in the file that is not published, so what was stored before it is old.
            return None
        resource = self.recent.find(kind, key)
        return None if resource is None else (resource, self.at(self.log.head))

    def _ends(self) -> Sequence[Request]:
        expired = self.leases.expired()
        return [EndRequest(self.leases, expired)] if expired else ()

    async def end_expired_leases(self) -> None:
        """Commit the end of expired leases before a caller learns of it, so that it still holds after a restart."""
        if self.leases.expired():
            # Every transaction begins by ending expired leases.
            await self.writer.submit(EndRequest(self.leases, ()))

    async def refuse_moved(self) -> None:
        """Stop the store and raise StoreUnusable if its paths no longer lead to its file and its write-ahead log."""
        if await trio.to_thread.run_sync(lambda: self.file.is_moved or self.file.log.is_gone):
            # The transaction is refused like a write, and stores nothing.
            await self.writer.submit(TouchRequest())

    async def close(self) -> None:
        """Wait for requests in progress, then release the file."""
        if self._is_forked:
            return
        closed = _closed(self.file.path)
        with trio.CancelScope(shield=True):
            self.writer.refuse(closed)
            self.pulse.stop(closed)
            self.leases.stop(closed)
            await self.writer.close()
            await self.readers.close()
            await trio.to_thread.run_sync(self.file.close)


def _threads(undo: ExitStack, path: str | os.PathLike[str]) -> list[ThreadCalls[Any]]:
    """Return the threads of the writer and the readers. Call this before the file is opened: each has a pipe."""
    threads: list[ThreadCalls[Any]] = []
    try:
        for _ in range(1 + CONNECTIONS):
            threads.append(ThreadCalls())
            undo.callback(threads[-1].close)
    except OSError as error:
        raise StoreUnusable(f"{os.fspath(path)} cannot be opened: {error.strerror}") from error
    return threads


def _closed(path: str) -> Callable[[], HeadwayError]:
    return lambda: StoreUnusable(f"the store in {path} is closed")


@asynccontextmanager
async def open_sqlite(
    path: str | os.PathLike[str],
    *,
    max_changes: int = 100_000,
    max_age: float = 3600.0,
    max_bytes: int = MAX_BYTES,
) -> AsyncIterator[SqliteBackend]:
    """Open the store in the SQLite file at ``path`` for the duration of the block; see `SqliteBackend`."""
    async with SqliteBackend(path, max_changes=max_changes, max_age=max_age, max_bytes=max_bytes) as backend:
        yield backend

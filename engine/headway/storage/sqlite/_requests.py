"""Changes to a store's file within a transaction. Everything here runs in a worker thread.

A batch of requests shares one transaction. Each request is checked before it changes anything, and sees the changes of
those before it in the batch. So a rejected request has changed nothing, and the others continue.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import NamedTuple

from typing_extensions import override

from headway.errors import InvalidArgument, StoreUnusable
from headway.protobuf import encode
from headway.resource import Key, Kind, pb
from headway.storage._fences import first_checkpoint, next_term, raised_fence
from headway.storage._lease_table import LeaseTable
from headway.storage._leases import Lease, check_borne, is_late, lease_of, scope_of
from headway.storage._log import LogChange
from headway.storage._operations import (
    Fence,
    Operation,
    Put,
    Remove,
    Require,
    RequireOwnsNothing,
    StillOwns,
    VersionConflict,
    WrongUid,
)
from headway.storage._rules import Rules
from headway.storage._tables import version_of
from headway.storage._traces import Committing
from headway.storage.sqlite import _schema as sql
from headway.storage.sqlite._recent import RecentResources
from headway.storage.sqlite._rows import Row, id_bytes, metadata_bytes, resource_from, seal
from headway.storage.sqlite._rules import FileChange

HIGHEST = 2**63 - 1
"""The highest number that a file can hold."""


_Stored = tuple[int, int, bytes, pb.Resource]
"""(version, seal, body, resource) of a row."""


class _Row(NamedTuple):
    """The row of a put, as far as it is known before its commit."""

    resource: pb.Resource
    uid: str
    owner_uid: str
    body: bytes


class Request:
    """A change that one caller requests in a transaction, and its outcome.

    Attributes:
        revision: the store's revision after it; its own if it made one.
        made_revision: True if it has its own revision.
        error: the error for its caller if it failed.
        committing: the traced commit that it makes; None without a trace.
        replaced: the rows that it replaces or deletes, each with its kind and key.
        logged: the bytes that it adds to the history.
    """

    __slots__ = ("changes", "committing", "error", "formers", "logged", "made_revision", "replaced", "revision")

    def __init__(self) -> None:
        self.revision = 0
        self.made_revision = False
        self.changes: list[LogChange] = []
        self.formers: dict[int, pb.Resource] = {}
        self.logged = 0
        self.error: BaseException | None = None
        self.committing: Committing | None = None
        self.replaced: list[tuple[Kind, Key, Row]] = []

    def check(self, connection: sqlite3.Connection) -> bool:
        """Raise an error if the request is rejected, and change nothing. Return True if it will make a revision."""
        raise NotImplementedError

    def apply(self, connection: sqlite3.Connection, now: float) -> None:
        """Make the changes at `revision`."""
        raise NotImplementedError

    def publish(self) -> None:
        """Update in-memory state after the commit, before the result is returned to any caller.

        It is called in the event loop.
        """


class WriteRequest(Request):
    """A request for operations on resources."""

    __slots__ = ("_changes", "_fence", "_operations", "_recent", "_rows", "_rules")

    def __init__(
        self, operations: Sequence[Operation], fence: Fence | None, rules: Rules, recent: RecentResources
    ) -> None:
        super().__init__()
        self._rules = rules
        self._recent = recent
        self._operations = operations
        self._fence = fence
        # Encoded here, in the caller's task, while another batch may be on its way to the disk. A resource that cannot
        # be encoded is rejected before it can fail the others' batch. By operation; None if it is not a put.
        self._rows = [_row(each.resource) if isinstance(each, Put) else None for each in operations]
        # Each change that `check` has allowed: the operation, the row of a put, and the row that it replaces, if that
        # matters. A put deletes a row that is stored as another version of its kind (`changes_of`).
        self._changes: list[tuple[Put | Remove, _Row | None, _Stored | None]] = []

    @override
    def check(self, connection: sqlite3.Connection) -> bool:
        if self._fence is not None:
            _check_fence(connection, self._fence)
        for operation, row in zip(self._operations, self._rows, strict=True):
            if isinstance(operation, Require):
                _check_required(connection, operation)
            elif isinstance(operation, RequireOwnsNothing):
                if connection.execute(sql.OWNS_SOMETHING, (operation.owner_uid,)).fetchone() is not None:
                    raise StillOwns(f"{operation.owner_uid} still owns resources")
            elif isinstance(operation, Remove):
                if (removed := _check_remove(connection, operation)) is not None:
                    self._changes.append((operation, None, removed))
                    self.replaced.append((operation.kind, operation.key, removed[:3]))
            else:
                assert row is not None, "it is a put"
                self._changes.append((operation, row, self._check_put(connection, operation, row)))
        if self._rules.concern((each.kind, each.key, None, None) for each, *_ in self._changes):
            changes = [FileChange(connection, each, row and row.body) for each, row, _ in self._changes]
            self._rules.charge(changes)
            self._rules.follow(changes)
        return bool(self._changes)

    def _check_put(self, connection: sqlite3.Connection, operation: Put, row: _Row) -> _Stored | None:
        """Check a put. Return the row that it replaces if it has other metadata, or is another version of the kind."""
        stored = connection.execute(sql.CHECK_ROW, (*operation.kind, *operation.key)).fetchone()
        if stored is None:
            if operation.expected:
                raise VersionConflict(f"{operation.key[2]} is not stored at version {operation.expected!r}")
            return None
        uid, *replaced = stored
        if uid != row.uid:
            raise WrongUid(f"{operation.key[2]} is stored with another uid")
        if str(replaced[0]) != operation.expected:
            raise VersionConflict(f"{operation.key[2]} is not stored at version {operation.expected!r}")
        self.replaced.append((operation.kind, operation.key, stored[1:]))
        body = replaced[2]
        # A damaged row may hold a value of another type.
        same_id = isinstance(body, bytes) and body.startswith(id_bytes(row.body))
        # Comparing the bytes is far cheaper than decoding them.
        if same_id and metadata_bytes(body) == metadata_bytes(row.body):
            return None
        try:
            former = resource_from(*replaced)
        except StoreUnusable:
            if same_id:
                # The write replaces the damaged resource.
                return None
            raise
        same = version_of(former) == version_of(row.resource) and former.metadata == row.resource.metadata
        return None if same else (*replaced, former)

    @override
    def apply(self, connection: sqlite3.Connection, now: float) -> None:
        for operation, row, removed in self._changes:
            place = (*operation.kind, *operation.key)
            if removed is not None and row is not None and version_of(removed[3]) == version_of(row.resource):
                version, sealed, body, self.formers[len(self.changes)] = removed
                connection.execute(sql.INSERT_FORMER, (self.revision, len(self.changes), version, sealed, body))
                self.logged += len(body)
            elif removed is not None:
                self._log(connection, operation.kind, removed, now, deleted=True)
            if row is None:
                connection.execute(sql.DELETE_RESOURCE, place)
                continue
            sealed = seal(self.revision, row.body)
            connection.execute(sql.PUT_RESOURCE, (*place, row.uid, row.owner_uid, self.revision, sealed, row.body))
            stored = (self.revision, sealed, row.body, row.resource)
            self._log(connection, operation.kind, stored, now, deleted=False)

    def _log(self, connection: sqlite3.Connection, kind: Kind, of: _Stored, now: float, *, deleted: bool) -> None:
        version, sealed, body, resource = of
        history = (self.revision, len(self.changes), *kind, deleted, version, now, sealed, body)
        connection.execute(sql.INSERT_HISTORY, history)
        self.logged += len(body)
        self.changes.append((kind, resource, deleted))

    @override
    def publish(self) -> None:
        """Set the version of the resources that were put, and note the changes as recent."""
        # Only now, because a resource whose commit failed keeps the version that its caller gave it.
        version = str(self.revision)
        for operation, row, _ in self._changes:
            if row is None:
                self._recent.remove(operation.kind, operation.key)
            else:
                row.resource.version = version
                self._recent.put(operation.kind, operation.key, row.resource, len(row.body))


class CountRequest(Request):
    """A request to count everything that the rules have not counted yet. It makes no revision."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self._rules = rules

    @override
    def check(self, connection: sqlite3.Connection) -> bool:
        while self._rules.count():
            pass
        return False


class RaiseRequest(Request):
    """A request to raise a fence. Afterwards ``fence`` and ``checkpoint`` are as stored."""

    __slots__ = ("checkpoint", "fence")

    def __init__(self, fence: Fence) -> None:
        super().__init__()
        self.fence = fence
        self.checkpoint = 0

    @override
    def check(self, connection: sqlite3.Connection) -> bool:
        controller, member, *_ = self.fence
        held = connection.execute(sql.READ_LEASE, (controller, member)).fetchone()
        term, number, self.checkpoint = _read_fence(connection, controller, member)
        self.fence = raised_fence(
            self.fence, (term, number), held and held[1], _next_term(connection, controller, member)
        )
        if max(self.fence[2:]) > HIGHEST:
            raise InvalidArgument(f"the fence {self.fence[2:]} of {controller} is above {HIGHEST}, the maximum")
        return True

    @override
    def apply(self, connection: sqlite3.Connection, now: float) -> None:
        if not self.checkpoint:
            controller, member, *_ = self.fence
            recorded = dict(connection.execute(sql.READ_CHECKPOINTS, (controller,)).fetchall())
            self.checkpoint = first_checkpoint(member, recorded) or self.revision
        connection.execute(sql.WRITE_FENCE, (*self.fence, self.checkpoint))


class CheckpointRequest(Request):
    """A request to record a fence's checkpoint. It makes no revision."""

    __slots__ = ("checkpoint", "fence")

    def __init__(self, fence: Fence, checkpoint: int) -> None:
        super().__init__()
        self.fence = fence
        self.checkpoint = checkpoint

    @override
    def check(self, connection: sqlite3.Connection) -> bool:
        if self.checkpoint > HIGHEST:
            raise InvalidArgument(f"the revision {self.checkpoint} is above {HIGHEST}, the maximum")
        _check_fence(connection, self.fence)
        return False

    @override
    def apply(self, connection: sqlite3.Connection, now: float) -> None:
        *scope, _, _ = self.fence
        term, number, checkpoint = _read_fence(connection, *scope)
        if self.checkpoint > checkpoint:
            connection.execute(sql.WRITE_FENCE, (*scope, term, number, self.checkpoint))


class TouchRequest(Request):
    """A request to write a stored value again, to see whether the disk accepts it. It makes no revision."""

    __slots__ = ()

    @override
    def check(self, connection: sqlite3.Connection) -> bool:
        return False

    @override
    def apply(self, connection: sqlite3.Connection, now: float) -> None:
        connection.execute(sql.WRITE_HEAD, (self.revision,))


def _row(resource: pb.Resource) -> _Row:
    owner_uid = resource.owner.uid if resource.owner is not None else ""
    return _Row(resource, resource.id.uid, owner_uid, encode(resource))  # type: ignore[union-attr]  # stored ids are whole


def _check_required(connection: sqlite3.Connection, required: Require) -> None:
    stored = connection.execute(sql.CHECK_RESOURCE, (*required.kind, *required.key)).fetchone()
    if stored is None or stored[0] != required.uid or (required.expected and str(stored[1]) != required.expected):
        raise VersionConflict(f"{required.key[2]} has changed since it was read")


def _check_remove(connection: sqlite3.Connection, operation: Remove) -> _Stored | None:
    stored = connection.execute(sql.CHECK_ROW, (*operation.kind, *operation.key)).fetchone()
    if stored is None or stored[0] != operation.uid:
        return None
    if str(stored[1]) != operation.expected:
        raise VersionConflict(f"{operation.key[2]} is not stored at version {operation.expected!r}")
    return (*stored[1:], resource_from(*stored[1:]))


def _check_fence(connection: sqlite3.Connection, fence: Fence) -> None:
    term, number, _ = _read_fence(connection, fence.controller, fence.member)
    check_borne(fence, (term, number))


class AcquireRequest(Request):
    """A request to acquire a lease. Afterwards ``lease`` is the current term; ``acquired``: this request began it."""

    __slots__ = ("_fence", "_table", "acquired", "lease")

    def __init__(self, table: LeaseTable, name: str, holder: str, ttl: float, attempt: str) -> None:
        super().__init__()
        self._table = table
        self.lease = Lease(name, holder, 0, ttl, attempt, time.time())
        self.acquired = False
        self._fence = (0, 0)

    @override
    def check(self, connection: sqlite3.Connection) -> bool:
        """Return True if the lease is free, or if its holder may begin a new term."""
        wanted = self.lease
        stored = _stored(connection, wanted.name)
        term, number, checkpoint = _read_fence(connection, *scope_of(wanted.name))
        if stored is not None:
            # The table knows about renewals. The file knows whether the holder has raised its fence.
            in_use = term == stored.term and number > 0
            if stored.holder != wanted.holder or is_late(stored, wanted.holder, wanted.attempt, in_use=in_use):
                self.lease = stored
                return False
        following = max(term + 1, _next_term(connection, *scope_of(wanted.name)))
        if following >= HIGHEST:
            raise InvalidArgument(f"the fence of {wanted.name} is at term {following - 1}: no higher term is possible")
        self.lease, self.acquired = wanted._replace(term=following), True
        self._fence = (following, checkpoint)
        return True

    @override
    def apply(self, connection: sqlite3.Connection, now: float) -> None:
        lease = self.lease
        _write_fence(connection, lease.name, *self._fence)
        row = (*scope_of(lease.name), lease.holder, lease.term, lease.ttl, lease.attempt, lease.acquired_at)
        connection.execute(sql.WRITE_LEASE, row)

    @override
    def publish(self) -> None:
        self._table.begin(self.lease)


class EndRequest(Request):
    """A request to end terms of leases, in one commit. It skips terms that have already ended."""

    __slots__ = ("_ended", "_leases", "_table")

    def __init__(self, table: LeaseTable, leases: Sequence[Lease]) -> None:
        super().__init__()
        self._table = table
        self._leases = leases
        self._ended: list[Lease] = []

    @override
    def check(self, connection: sqlite3.Connection) -> bool:
        """Return True if any of the terms has not ended yet."""
        for lease in self._leases:
            stored = _stored(connection, lease.name)
            if stored is not None and stored.term == lease.term:
                self._ended.append(lease)
        return bool(self._ended)

    @override
    def apply(self, connection: sqlite3.Connection, now: float) -> None:
        for lease in self._ended:
            term, _, checkpoint = _read_fence(connection, *scope_of(lease.name))
            if term == lease.term:  # A program without leases may have raised it further.
                # No lease has the next term: the next one to acquire the lease gets a higher one.
                _write_fence(connection, lease.name, term + 1, checkpoint)
            connection.execute(sql.DELETE_LEASE, scope_of(lease.name))

    @override
    def publish(self) -> None:
        for lease in self._ended:
            self._table.end(lease.name, lease.term)


def read_leases(connection: sqlite3.Connection) -> list[Lease]:
    """Return the leases that were held when the file was last closed."""
    rows = connection.execute(sql.READ_LEASES).fetchall()
    return [Lease(lease_of(controller, member), *rest) for controller, member, *rest in rows]


def _stored(connection: sqlite3.Connection, name: str) -> Lease | None:
    row = connection.execute(sql.READ_LEASE, scope_of(name)).fetchone()
    return None if row is None else Lease(name, *row)


def _write_fence(connection: sqlite3.Connection, name: str, term: int, checkpoint: int) -> None:
    connection.execute(sql.WRITE_FENCE, (*scope_of(name), term, 0, checkpoint))


def _next_term(connection: sqlite3.Connection, controller: str, member: str) -> int:
    fences = {(controller, each): (term,) for each, term in connection.execute(sql.READ_TERMS, (controller,))}
    return next_term((controller, member), fences)


def _read_fence(connection: sqlite3.Connection, controller: str, member: str) -> tuple[int, int, int]:
    """Return (term, number, checkpoint) of a fence; the initial ones if it has never been raised."""
    stored: tuple[int, int, int] | None = connection.execute(sql.READ_FENCE, (controller, member)).fetchone()
    if stored is not None:
        return stored
    (floor,) = connection.execute(sql.READ_TERM_FLOOR).fetchone()
    return floor, 0, 0

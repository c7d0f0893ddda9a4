"""Changes to a store's file within a transaction. Everything here runs in a worker thread.

A batch of requests shares one transaction. Each request is checked before it changes anything, and sees the changes of
those before it in the batch. So a rejected request has changed nothing, and the others continue.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence

from headway.errors import HeadwayError, InvalidArgument, OutcomeUnknown, StoreUnusable, WriteRejected
from headway.protobuf import encode
from headway.resource import Kind, pb
from headway.storage import _sqlite_schema as sql
from headway.storage._backend import Fence, Operation, Put, Remove, Require, RequireOwnsNothing
from headway.storage._decide import version_of
from headway.storage._errors import FenceLowered, StillOwns, VersionConflict, WrongUid
from headway.storage._leases import check_borne, check_raise
from headway.storage._log import LogChange
from headway.storage._sqlite_connect import code_of, explained
from headway.storage._sqlite_file import OpenedFile
from headway.storage._sqlite_rows import resource_from, seal

HIGHEST = 2**63 - 1
"""The highest number that a file can hold."""


_Stored = tuple[int, int, bytes, pb.Resource]
"""(version, seal, body, resource) of a row."""


class Request:
    """A change that one caller requests in a transaction, and its outcome.

    Attributes:
        revision: the store's revision after it; its own if it made one.
        made_revision: True if it has its own revision.
        error: the error for its caller if it failed.
    """

    __slots__ = ("changes", "error", "made_revision", "revision")

    def __init__(self) -> None:
        self.revision = 0
        self.made_revision = False
        self.changes: list[LogChange] = []
        self.error: BaseException | None = None

    def check(self, connection: sqlite3.Connection) -> bool:
        """Raise an error if the request is rejected, and change nothing. Return True if it will make a revision."""
        raise NotImplementedError

    def apply(self, connection: sqlite3.Connection, now: float) -> None:
        """Make the changes at `revision`."""
        raise NotImplementedError

    def publish(self) -> None:
        """Update state in the event loop after the commit, before any caller learns of it."""


class WriteRequest(Request):
    """A request for operations on resources."""

    __slots__ = ("_fence", "_operations", "_removed", "_rows")

    def __init__(self, operations: Sequence[Operation], fence: Fence | None) -> None:
        super().__init__()
        self._operations = operations
        self._fence = fence
        # Encoded here, in the caller's task, while another batch may be on its way to the disk. A resource that cannot
        # be encoded is rejected before it can fail the others' batch. By operation: (uid, owner's uid, body) of a put.
        self._rows = [_row(operation.resource) if isinstance(operation, Put) else None for operation in operations]
        # By operation: the row that it removes, or replaces by another version of its kind (`changes_of`).
        self._removed: dict[int, _Stored] = {}

    def check(self, connection: sqlite3.Connection) -> bool:
        """Check the fence and every operation. Return True if any of them changes the store."""
        if self._fence is not None:
            _check_fence(connection, self._fence)
        changes = False
        for index, operation in enumerate(self._operations):
            if isinstance(operation, Require):
                _check_required(connection, operation)
            elif isinstance(operation, RequireOwnsNothing):
                _check_owns_nothing(connection, operation.owner_uid)
            else:
                if isinstance(operation, Put):
                    row = self._rows[index]
                    assert row is not None
                    left = _check_put(connection, operation, row[2])
                    changes = True
                else:
                    left = _check_remove(connection, operation)
                    changes = changes or left is not None
                if left is not None:
                    self._removed[index] = left
        return changes

    def apply(self, connection: sqlite3.Connection, now: float) -> None:
        """Write the rows and their history."""
        for index, operation in enumerate(self._operations):
            row = self._rows[index]
            removed = self._removed.get(index)
            if removed is not None and isinstance(operation, Put | Remove):
                self._log(connection, operation.kind, removed, now, deleted=True)
            if row is not None and isinstance(operation, Put):
                uid, owner_uid, body = row
                sealed = seal(self.revision, body)
                place = (*operation.kind, *operation.key)
                connection.execute(sql.PUT_RESOURCE, (*place, uid, owner_uid, self.revision, sealed, body))
                put = (self.revision, sealed, body, operation.resource)
                self._log(connection, operation.kind, put, now, deleted=False)
            elif removed is not None and isinstance(operation, Remove):
                connection.execute(sql.DELETE_RESOURCE, (*operation.kind, *operation.key))

    def _log(self, connection: sqlite3.Connection, kind: Kind, of: _Stored, now: float, *, deleted: bool) -> None:
        version, sealed, body, resource = of
        history = (self.revision, len(self.changes), *kind, deleted, version, now, sealed, body)
        connection.execute(sql.INSERT_HISTORY, history)
        self.changes.append((kind, resource, deleted))

    def publish(self) -> None:
        """Set the version of the resources that were put."""
        # Only now, because a resource whose commit failed keeps the version that its caller gave it.
        version = str(self.revision)
        for _, resource, deleted in self.changes:
            if not deleted:
                resource.version = version


class RaiseRequest(Request):
    """A request to raise a fence. Afterwards ``fence`` and ``checkpoint`` are as stored."""

    __slots__ = ("checkpoint", "fence")

    def __init__(self, fence: Fence) -> None:
        super().__init__()
        self.fence = fence
        self.checkpoint = 0

    def check(self, connection: sqlite3.Connection) -> bool:
        """Check that the new fence is above the stored one. Always returns True."""
        controller, member, term, number = self.fence
        held = connection.execute(sql.READ_LEASE, (controller, member)).fetchone()
        check_raise(controller, held and held[1], term)
        *stored, self.checkpoint = _stored_fence(connection, self.fence)
        wanted = (term, number) if term else (stored[0] + 1, number)
        if wanted <= tuple(stored):
            raise FenceLowered(f"the fence of {controller} is at {tuple(stored)}; {wanted} is not above it")
        if max(wanted) > HIGHEST:
            raise InvalidArgument(f"the fence {wanted} of {controller} is above {HIGHEST}, the maximum")
        self.fence = Fence(controller, member, *wanted)
        return True

    def apply(self, connection: sqlite3.Connection, now: float) -> None:  # noqa: ARG002  # as the others have it
        """Store the fence."""
        # A controller has no work from before its first fence.
        self.checkpoint = self.checkpoint or self.revision
        connection.execute(sql.WRITE_FENCE, (*self.fence, self.checkpoint))


class CheckpointRequest(Request):
    """A request to record a fence's checkpoint. It makes no revision."""

    __slots__ = ("checkpoint", "fence")

    def __init__(self, fence: Fence, checkpoint: int) -> None:
        super().__init__()
        self.fence = fence
        self.checkpoint = checkpoint

    def check(self, connection: sqlite3.Connection) -> bool:
        """Check the fence. Always returns False."""
        if self.checkpoint > HIGHEST:
            raise InvalidArgument(f"the revision {self.checkpoint} is above {HIGHEST}, the maximum")
        _check_fence(connection, self.fence)
        return False

    def apply(self, connection: sqlite3.Connection, now: float) -> None:  # noqa: ARG002  # as the others have it
        """Store the checkpoint, unless a higher one is stored."""
        term, number, checkpoint = _stored_fence(connection, self.fence)
        if self.checkpoint > checkpoint:
            connection.execute(
                sql.WRITE_FENCE, (self.fence.controller, self.fence.member, term, number, self.checkpoint)
            )


class TouchRequest(Request):
    """A request to write a stored value again, to see whether the disk accepts it. It makes no revision."""

    __slots__ = ()

    def check(self, connection: sqlite3.Connection) -> bool:  # noqa: ARG002  # as the others have it
        """Return False: it makes no revision."""
        return False

    def apply(self, connection: sqlite3.Connection, now: float) -> None:  # noqa: ARG002  # as the others have it
        """Write the head again."""
        connection.execute(sql.WRITE_HEAD, (self.revision,))


class BatchFailed(Exception):
    """A failure of a whole batch's transaction. ``unusable`` means that the file must not be written to again."""

    def __init__(self, error: Callable[[], HeadwayError], *, unusable: bool) -> None:
        super().__init__(str(error()))
        self.error = error
        self.unusable = unusable


def run_batch(file: OpenedFile, requests: Sequence[Request], head: int, floor: int | None) -> int:
    """Run all requests in one transaction and return the head afterwards. Each request holds its own outcome.

    ``floor`` is the new beginning of history; None leaves it. Raises BatchFailed if the transaction failed.
    """
    connection = file.writer
    try:
        connection.execute("BEGIN IMMEDIATE")
        _refuse_strangers(file, head)
        revision = _perform(connection, requests, head)
        if floor is not None:
            connection.execute(sql.TRIM_HISTORY, (floor,))
            connection.execute(sql.WRITE_FLOOR, (floor,))
        if revision > head:
            connection.execute(sql.WRITE_HEAD, (revision,))
    except BatchFailed:
        _roll_back(connection)
        raise
    except Exception as error:  # no caller may be left waiting, whatever the error
        raise _nothing_written(file, error) from error
    try:
        end_transaction(connection)
    except Exception as error:
        # COMMIT writes the mark that makes a transaction valid last. If the disk refused a write, or another program
        # has locked the file, the mark was not written. A later failure, such as a failed flush, may have left it
        # there.
        code = code_of(error)
        if code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY) or code == sqlite3.SQLITE_IOERR_WRITE:
            raise _nothing_written(file, error) from error
        _roll_back(connection)
        raise _outcome_unknown(file, explained(error)) from error
    file.log.bound(connection)
    return revision


def end_transaction(connection: sqlite3.Connection) -> None:
    """Make the transaction durable."""
    connection.execute("COMMIT")


def read_fence(connection: sqlite3.Connection, controller: str, member: str) -> tuple[int, int, int]:
    """Return (term, number, checkpoint) of a fence; the initial ones if it has never been raised."""
    stored: tuple[int, int, int] | None = connection.execute(sql.READ_FENCE, (controller, member)).fetchone()
    if stored is not None:
        return stored
    (floor,) = connection.execute(sql.READ_TERM_FLOOR).fetchone()
    return floor, 0, 0


def _perform(connection: sqlite3.Connection, requests: Sequence[Request], head: int) -> int:
    revision, now = head, time.time()
    for request in requests:
        try:
            request.made_revision = request.check(connection)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001  # for its caller; a check changes nothing, so the others continue
            request.error = error
            continue
        request.revision = revision = revision + request.made_revision
        if request.made_revision or isinstance(request, CheckpointRequest | TouchRequest):
            request.apply(connection, now)
    return revision


def _refuse_strangers(file: OpenedFile, head: int) -> None:
    """Refuse to continue in a file that another program has written to, or that is no longer at its path."""
    (stored,) = file.writer.execute(sql.READ_HEAD).fetchone()
    if stored != head:
        why = f"is at revision {stored}, not at {head}: another program has written to it"
    elif file.is_moved:
        why = "was moved or removed while it was open"
    else:
        return
    text = f"{file.path} {why}. Nothing was written; open the store again"
    raise BatchFailed(lambda: StoreUnusable(text), unusable=True)


def _nothing_written(file: OpenedFile, why: Exception) -> BatchFailed:
    text = f"{file.path} could not be written to: {explained(why)}. Nothing was written"
    return BatchFailed(lambda: WriteRejected(text), unusable=not _roll_back(file.writer))


def _outcome_unknown(file: OpenedFile, why: str) -> BatchFailed:
    text = (
        f"{file.path} failed while a commit was being made durable: {why}. "
        "Its outcome is known when the store is opened again; until then every request fails"
    )
    return BatchFailed(lambda: OutcomeUnknown(text), unusable=True)


def _roll_back(connection: sqlite3.Connection) -> bool:
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return not connection.in_transaction


def _row(resource: pb.Resource) -> tuple[str, str, bytes]:
    owner_uid = resource.owner.uid if resource.owner is not None else ""
    return resource.id.uid, owner_uid, encode(resource)  # type: ignore[union-attr]  # stored ids are whole


def _check_put(connection: sqlite3.Connection, operation: Put, body: bytes) -> _Stored | None:
    """Check a put. Return the row that it replaces if that is stored as another version of the kind."""
    place = (*operation.kind, *operation.key)
    begins = _id_of(body)
    stored = connection.execute(sql.CHECK_PUT, (len(begins), begins, *place)).fetchone()
    if stored is not None and stored[0] != operation.resource.id.uid:  # type: ignore[union-attr]  # stored ids are whole
        raise WrongUid(f"{operation.key[2]} is stored with another uid")
    if (str(stored[1]) if stored is not None else "") != operation.expected:
        raise VersionConflict(f"{operation.key[2]} is not stored at version {operation.expected!r}")
    if stored is None or stored[2]:
        return None
    row = connection.execute(sql.READ_RESOURCE, place).fetchone()
    former = resource_from(*row)
    return (*row, former) if version_of(former) != version_of(operation.resource) else None


def _id_of(body: bytes) -> bytes:
    """Return the first bytes of a resource, up to the end of its id: tag, length and id."""
    size = shift = 0
    at = 1
    while True:
        byte = body[at]
        size |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return body[: at + size]


def _check_required(connection: sqlite3.Connection, required: Require) -> None:
    stored = connection.execute(sql.CHECK_RESOURCE, (*required.kind, *required.key)).fetchone()
    if stored is None or stored[0] != required.uid or (required.expected and str(stored[1]) != required.expected):
        raise VersionConflict(f"{required.key[2]} has changed since it was read")


def _check_owns_nothing(connection: sqlite3.Connection, uid: str) -> None:
    if connection.execute(sql.OWNS_SOMETHING, (uid,)).fetchone() is not None:
        raise StillOwns(f"{uid} still owns resources")


def _check_remove(connection: sqlite3.Connection, operation: Remove) -> _Stored | None:
    stored = connection.execute(sql.CHECK_REMOVED, (*operation.kind, *operation.key)).fetchone()
    if stored is None or stored[0] != operation.uid:
        return None
    if str(stored[1]) != operation.expected:
        raise VersionConflict(f"{operation.key[2]} is not stored at version {operation.expected!r}")
    return (*stored[1:], resource_from(*stored[1:]))


def _stored_fence(connection: sqlite3.Connection, fence: Fence) -> tuple[int, int, int]:
    return read_fence(connection, fence.controller, fence.member)


def _check_fence(connection: sqlite3.Connection, fence: Fence) -> None:
    term, number, _ = _stored_fence(connection, fence)
    check_borne(fence.controller, fence.member, (term, number), (fence.term, fence.number))

"""The errors that services raise, and the one table of their forms over gRPC, HTTP and the command line.

Most are public errors of `headway.errors`. The others are below, and a client turns each of them into a public one
(`client/_refusals.py`). An error without a row is a fault of the server: the operator gets it, and the caller gets
UNKNOWN, or 500, without its text.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from headway._gen.headway.refusal.v1 import Reason as Reason
from headway.errors import (
    AlreadyExists,
    CallerError,
    CommitRefused,
    Conflict,
    FailedPrecondition,
    Fenced,
    HeadwayError,
    HistoryCompacted,
    InvalidArgument,
    LeaseLost,
    NotFound,
    OutcomeUnknown,
    PartitionReserved,
    PayloadError,
    PermissionDenied,
    RateLimited,
    RemoteError,
    StoreChanged,
    StoreUnusable,
    Unauthenticated,
    Unavailable,
    UnknownTerm,
    WriteRejected,
    WrongUid,
)
from headway.resource import AnyMessage


class Code(enum.IntEnum):
    """The statuses of gRPC, without OK."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class NothingWritten(Unavailable):
    """A write has failed before anything was stored.

    Over a network, the status UNAVAILABLE alone leaves the outcome open, because the reply may have been lost.
    """


class Exhausted(Unavailable):
    """A bound other than a rate has refused the call, such as one on open streams or on the size of a list."""


class DeadlineExceeded(RemoteError):
    """The service did not answer within the timeout of the call, which may have taken effect."""


class MethodNotFound(HeadwayError):
    """The server has no method at this path."""


class ProgramFailed(HeadwayError):
    """The program's own code, such as a hook, has failed. Nothing was changed, unless this is a `ProgramFailedLate`.

    The cause is reported to the operator. Its text may contain what the caller must not know.

    Attributes:
        cause: what the code raised.
    """

    def __init__(self, message: str, cause: BaseException) -> None:
        super().__init__(message, cause)
        self.cause = cause

    def __str__(self) -> str:
        return str(self.args[0])


class ProgramFailedLate(ProgramFailed):
    """The program's own code has failed in a call that may have changed something already."""


class DetailedPrecondition(FailedPrecondition):
    """A failed precondition with messages about it, such as the address of the leader.

    Attributes:
        details: the messages.
    """

    def __init__(self, message: str, details: Sequence[AnyMessage]) -> None:
        super().__init__(message, details)
        self.details = tuple(details)

    def __str__(self) -> str:
        return str(self.args[0])


class Row(NamedTuple):
    """A row of the table: an error and its forms.

    Attributes:
        error: the error, or the base class of several.
        code: the status over gRPC.
        http: the code of HTTP.
        reason: says more than the status; None if the status says enough.
    """

    error: type[HeadwayError]
    code: Code
    http: int
    reason: Reason | None = None


def exit_of(error: type[HeadwayError]) -> int:
    """Return the exit status of the command line: 3 if something was not found, 5 if no server has answered, else 1."""
    if issubclass(error, NotFound):
        return 3
    return 5 if issubclass(error, RemoteError) else 1


ROWS = (
    Row(WrongUid, Code.FAILED_PRECONDITION, 409, Reason.WRONG_UID),
    Row(UnknownTerm, Code.FAILED_PRECONDITION, 409, Reason.UNKNOWN_TERM),
    Row(Fenced, Code.FAILED_PRECONDITION, 409, Reason.FENCED),
    Row(LeaseLost, Code.FAILED_PRECONDITION, 409, Reason.LEASE_LOST),
    Row(PartitionReserved, Code.FAILED_PRECONDITION, 409, Reason.COPIES),
    Row(FailedPrecondition, Code.FAILED_PRECONDITION, 409),
    Row(AlreadyExists, Code.ALREADY_EXISTS, 409),
    Row(Conflict, Code.ABORTED, 409),
    Row(NotFound, Code.NOT_FOUND, 404),
    Row(Unauthenticated, Code.UNAUTHENTICATED, 401),
    Row(PermissionDenied, Code.PERMISSION_DENIED, 403),
    # Not 429 or 5xx, after which clients repeat a request: that does not help here. The error itself has the reason.
    Row(CommitRefused, Code.RESOURCE_EXHAUSTED, 403),
    Row(RateLimited, Code.RESOURCE_EXHAUSTED, 429, Reason.LIMITED),
    Row(Exhausted, Code.RESOURCE_EXHAUSTED, 429),
    Row(DeadlineExceeded, Code.DEADLINE_EXCEEDED, 504),
    # The history after a position is no longer kept, or the position is of another store: begin with a snapshot.
    Row(HistoryCompacted, Code.OUT_OF_RANGE, 410),
    Row(StoreChanged, Code.DATA_LOSS, 410),
    Row(OutcomeUnknown, Code.INTERNAL, 500),
    Row(ProgramFailedLate, Code.INTERNAL, 500),
    Row(ProgramFailed, Code.INTERNAL, 500, Reason.NOTHING_WRITTEN),
    Row(WriteRejected, Code.UNAVAILABLE, 503, Reason.WRITE_REJECTED),
    Row(NothingWritten, Code.UNAVAILABLE, 503, Reason.NOTHING_WRITTEN),
    Row(StoreUnusable, Code.UNAVAILABLE, 503),
    Row(Unavailable, Code.UNAVAILABLE, 503),
    # Stores also raise these two, for a value that they cannot hold.
    Row(InvalidArgument, Code.INVALID_ARGUMENT, 400),
    Row(PayloadError, Code.INVALID_ARGUMENT, 400),
    Row(MethodNotFound, Code.UNIMPLEMENTED, 500),
)
"""The forms of each error. The first row that fits applies, so a subclass comes before its base class."""

_CERTAIN = (CallerError, HistoryCompacted, WriteRejected)
"""The errors whose status and reason tell a client that the call had no effect."""


def row_of(error: BaseException) -> Row | None:
    """Return the forms of an error, or None if a service may not raise it."""
    row = next((row for row in ROWS if isinstance(error, row.error)), None)
    if row is not None and isinstance(error, CommitRefused):
        return row._replace(reason=Reason.__members__.get(error.reason, Reason.COMMIT_REFUSED))
    return row


def error_of(code: int, reason: Reason | None) -> type[HeadwayError] | None:
    """Return the error that a status and a reason stand for, or None if the call may have had an effect.

    An unknown reason counts as none. RESOURCE_EXHAUSTED is None too: its errors need more than a message.
    """
    if code == Code.RESOURCE_EXHAUSTED:
        return None
    rows = [row for row in ROWS if row.code == code and issubclass(row.error, _CERTAIN)]
    return next((row.error for wanted in (reason, None) for row in rows if row.reason is wanted), None)

"""The one table of refusals: the errors of services, and their forms over gRPC and HTTP.

A program that must know more of a refusal than its status reads its reason. A client that does not know the reason
still has the status and the message.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from headway._gen.headway.refusal.v1 import Reason as Reason
from headway.errors import (
    AlreadyExists,
    CallerError,
    Conflict,
    FailedPrecondition,
    Fenced,
    HeadwayError,
    HistoryCompacted,
    InvalidArgument,
    LeaseLost,
    NotFound,
    NotHeadway,
    OutcomeUnknown,
    PayloadError,
    PermissionDenied,
    QuotaExceeded,
    RateLimited,
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
    """The statuses of gRPC."""

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
    """A write, or a read before its commit, failed before anything was stored.

    Over a network, the status of `Unavailable` leaves the outcome open. This says that nothing was written.
    """


class Exhausted(Unavailable):
    """A bound of the server refuses the call, for as long as others use what it bounds or the call asks for as much."""


class TooSlow(Unavailable):
    """The service has not answered within the time that the call had."""


class ProgramFailed(HeadwayError):
    """The program's own code, such as a hook, has failed before the call changed anything.

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
    """The same, but the call may have changed something before."""


class KeepsCopies(FailedPrecondition):
    """A write in a partition that is reserved for the copies of a peering."""


class Detailed(FailedPrecondition):
    """A refusal with messages for programs that know their types.

    Attributes:
        details: the messages.
    """

    def __init__(self, message: str, details: Sequence[AnyMessage]) -> None:
        super().__init__(message, details)
        self.details = tuple(details)

    def __str__(self) -> str:
        return str(self.args[0])


class Row(NamedTuple):
    """The forms of an error.

    Attributes:
        error: the error, or the base class of several.
        http: the code of HTTP.
    """

    error: type[HeadwayError]
    code: Code
    http: int
    reason: Reason | None = None


ROWS = (
    Row(WrongUid, Code.FAILED_PRECONDITION, 409, Reason.WRONG_UID),
    Row(UnknownTerm, Code.FAILED_PRECONDITION, 409, Reason.UNKNOWN_TERM),
    Row(Fenced, Code.FAILED_PRECONDITION, 409, Reason.FENCED),
    Row(LeaseLost, Code.FAILED_PRECONDITION, 409, Reason.LEASE_LOST),
    Row(KeepsCopies, Code.FAILED_PRECONDITION, 409, Reason.COPIES),
    Row(FailedPrecondition, Code.FAILED_PRECONDITION, 409),
    Row(AlreadyExists, Code.ALREADY_EXISTS, 409),
    Row(Conflict, Code.ABORTED, 409),
    Row(NotFound, Code.NOT_FOUND, 404),
    Row(Unauthenticated, Code.UNAUTHENTICATED, 401),
    Row(PermissionDenied, Code.PERMISSION_DENIED, 403),
    # Clients repeat a request after 429, and many after 5xx. That does not help here.
    Row(QuotaExceeded, Code.RESOURCE_EXHAUSTED, 403, Reason.QUOTA_EXCEEDED),
    Row(RateLimited, Code.RESOURCE_EXHAUSTED, 429, Reason.LIMITED),
    Row(Exhausted, Code.RESOURCE_EXHAUSTED, 429),
    Row(TooSlow, Code.DEADLINE_EXCEEDED, 504),
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
    # The store cannot hold a value that it was given, either.
    Row(InvalidArgument, Code.INVALID_ARGUMENT, 400),
    Row(PayloadError, Code.INVALID_ARGUMENT, 400),
    Row(NotHeadway, Code.UNIMPLEMENTED, 500),
)
"""The forms of each error. An error that has none is a fault of the server: UNKNOWN, and 500."""

_CERTAIN = (CallerError, HistoryCompacted, WriteRejected)
"""The errors of which a status says that the call had no effect."""


def row_of(error: BaseException) -> Row | None:
    """Return the forms of an error, or None if a service may not raise it."""
    return next((row for row in ROWS if isinstance(error, row.error)), None)


def error_of(code: int, reason: Reason | None) -> type[HeadwayError] | None:
    """Return the error that a status and its reason stand for, which says that the call had no effect.

    None stands for a status that leaves that open, or that other rules explain.
    """
    # Of what is exhausted, a quota says more than its reason, and other bounds may have let a part of the call pass.
    known = () if code == Code.RESOURCE_EXHAUSTED else ROWS
    found = [row for row in known if row.code == code and issubclass(row.error, _CERTAIN)]
    exact = [row.error for row in found if row.reason is reason]
    return next(iter(exact or [row.error for row in found if row.reason is None]), None)

"""Refusals as they appear on the wire: store errors mapped to statuses, and helpers for the usual ones.

A program that must know more of a refusal than its status reads its reason. The reason is a detail of the status: the
same in process and over a network, where a client that does not know it still has the status and the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from grpclib import GRPCError
from grpclib.const import Status

from headway._gen.headway.refusal.v1 import ExceededQuota as ExceededQuota
from headway._gen.headway.refusal.v1 import Reason as Reason
from headway._gen.headway.refusal.v1 import Refusal
from headway.errors import (
    HistoryCompacted,
    InvalidArgument,
    OutcomeUnknown,
    PayloadError,
    StoreUnusable,
    Unavailable,
    WriteRejected,
)
from headway.protobuf import decode, encode, field, message
from headway.resource import AnyMessage
from headway.rpc import HandlerFault, Limited
from headway.storage import (
    FenceLowered,
    QuotaExceeded,
    StoreMismatch,
    TermEnded,
    UnknownTerm,
    VersionConflict,
    WrongUid,
)

_WIRE: dict[type[Exception], tuple[Status, Reason | None]] = {
    VersionConflict: (Status.ABORTED, None),
    WrongUid: (Status.FAILED_PRECONDITION, Reason.WRONG_UID),
    FenceLowered: (Status.FAILED_PRECONDITION, Reason.FENCED),
    UnknownTerm: (Status.FAILED_PRECONDITION, Reason.UNKNOWN_TERM),
    QuotaExceeded: (Status.RESOURCE_EXHAUSTED, Reason.QUOTA_EXCEEDED),
    TermEnded: (Status.FAILED_PRECONDITION, Reason.LEASE_LOST),
    StoreMismatch: (Status.DATA_LOSS, None),
    HistoryCompacted: (Status.OUT_OF_RANGE, None),
    OutcomeUnknown: (Status.INTERNAL, None),
    # Before its base classes.
    WriteRejected: (Status.UNAVAILABLE, Reason.WRITE_REJECTED),
    StoreUnusable: (Status.UNAVAILABLE, None),
    Unavailable: (Status.UNAVAILABLE, None),
    # The last two mean that the store cannot hold a value that it was given.
    InvalidArgument: (Status.INVALID_ARGUMENT, None),
    PayloadError: (Status.INVALID_ARGUMENT, None),
}

STORE_ERRORS = tuple(_WIRE)
"""The errors that a store may raise."""

_URL = "type.googleapis.com/headway.refusal.v1.Refusal"
_RETRY_URL = "type.googleapis.com/google.rpc.RetryInfo"


@message(name="google.rpc.RetryInfo")
class _RetryInfo:
    """How long to wait before repeating a call, for clients that know only Google's details of a status."""

    retry_delay: timedelta = field(1)


def refusal_of(error: GRPCError) -> Refusal | None:
    """Return the detail of a refusal that says more than its status, or None if it has none."""
    for detail in error.details or ():
        if isinstance(detail, AnyMessage) and detail.type_url == _URL:
            try:
                return decode(Refusal, detail.value)
            except PayloadError:
                return None
    return None


def reason_of(error: GRPCError) -> Reason | None:
    """Return the reason of a refusal, or None if it has none. A newer server may give one that has no name here."""
    found = refusal_of(error)
    return None if found is None else found.reason


def invalid(message: str) -> GRPCError:
    """Return an error for an invalid request."""
    return GRPCError(Status.INVALID_ARGUMENT, message)


def denied(message: str) -> GRPCError:
    """Return an error for a caller without the permission."""
    return GRPCError(Status.PERMISSION_DENIED, message)


def not_found(message: str) -> GRPCError:
    """Return an error for a missing resource."""
    return GRPCError(Status.NOT_FOUND, message)


def conflict(message: str) -> GRPCError:
    """Return an error for a version that differs from the stored one."""
    return GRPCError(Status.ABORTED, message)


def taken(message: str) -> GRPCError:
    """Return an error for a resource that already exists."""
    return GRPCError(Status.ALREADY_EXISTS, message)


def precondition(message: str, reason: Reason | None = None) -> GRPCError:
    """Return an error for an operation that the stored resource forbids."""
    return GRPCError(Status.FAILED_PRECONDITION, message, _details(reason))


def failed(message: str, cause: BaseException) -> HandlerFault:
    """Return an error for a failure of the program's own code, before the store was changed.

    The cause is reported to the operator. Its text may contain what the caller must not know.
    """
    return HandlerFault(message, cause, _details(Reason.NOTHING_WRITTEN))


def authorizer_failed(cause: BaseException) -> HandlerFault:
    """Return an error for an authorizer that has raised ``cause``, before the store was changed."""
    return failed("the authorizer failed", cause)


def limited(message: str, seconds: float) -> Limited:
    """Return an error for a call that a limit refuses before anything is done, to be repeated after ``seconds``."""
    retry = AnyMessage(type_url=_RETRY_URL, value=encode(_RetryInfo(retry_delay=timedelta(seconds=seconds))))
    return Limited(message, seconds, (*(_details(Reason.LIMITED) or ()), retry))


def refusal(error: Exception, *, write: bool = False) -> GRPCError:
    """Return the wire form of one of STORE_ERRORS.

    ``write`` means that a commit, or a read before it, raised the error. Except for OutcomeUnknown, nothing was written
    then. The reason says so, because over a network UNAVAILABLE leaves the outcome open.
    """
    status, reason = next(wire for each, wire in _WIRE.items() if isinstance(error, each))
    if write and status is Status.UNAVAILABLE and reason is None:
        reason = Reason.NOTHING_WRITTEN
    quota: ExceededQuota | None = None
    if isinstance(error, QuotaExceeded):
        quota = ExceededQuota(name=error.quota, what=error.what, limit=error.limit, use=error.use, adds=error.adds)
    return GRPCError(status, str(error), _details(reason, quota))


@contextmanager
def store_errors_refused(*, write: bool = False) -> Iterator[None]:
    """Raise the wire form of a store error that leaves the block. ``write`` is as in `refusal`."""
    try:
        yield
    except STORE_ERRORS as error:
        raise refusal(error, write=write) from error


def _details(reason: Reason | None, quota: ExceededQuota | None = None) -> Sequence[AnyMessage] | None:
    if reason is None:
        return None
    return (AnyMessage(type_url=_URL, value=encode(Refusal(reason=reason, quota=quota))),)

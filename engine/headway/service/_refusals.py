"""Refusals as they appear on the wire: store errors mapped to statuses, and helpers for the usual ones."""

from __future__ import annotations

from grpclib import GRPCError
from grpclib.const import Status

from headway.errors import (
    HistoryCompacted,
    InvalidArgument,
    OutcomeUnknown,
    PayloadError,
    StoreUnusable,
    Unavailable,
    WriteRejected,
)
from headway.storage import FenceLowered, LeaseEnded, StoreMismatch, UnknownTerm, VersionConflict, WrongUid

FENCED = "fenced: "
"""The prefix of the message that refuses a write of a superseded run (status FAILED_PRECONDITION)."""

UNKNOWN_TERM = f"{FENCED}unknown term: "
"""The prefix for a fence whose term was never granted. A client that does not know it takes it for `FENCED`."""

LEASE_LOST = "lease lost: "
"""The prefix of the message for a term of a lease that has ended (status FAILED_PRECONDITION)."""

WRITE_REJECTED = "not stored: "
"""The prefix of the message for a write that was certainly not stored.

The status is UNAVAILABLE, which over a network otherwise leaves the outcome open.
"""

NOTHING_WRITTEN = "nothing written: "
"""The prefix of the message for a write that certainly did not happen, for a reason other than the store's disk.

The status is UNAVAILABLE if the store could not be written to, and INTERNAL if the write failed before the store was
called, such as in a hook.
"""

STORE_ERRORS = (
    VersionConflict,
    WrongUid,
    FenceLowered,
    UnknownTerm,
    LeaseEnded,
    StoreMismatch,
    HistoryCompacted,
    OutcomeUnknown,
    StoreUnusable,
    Unavailable,
    InvalidArgument,
    PayloadError,
)
"""The errors that a store may raise. The last two mean that it cannot hold a value that it was given."""


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


def precondition(message: str) -> GRPCError:
    """Return an error for an operation that the stored resource forbids."""
    return GRPCError(Status.FAILED_PRECONDITION, message)


class WrongIncarnation(GRPCError):
    """An error for a uid that differs from the stored one."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.FAILED_PRECONDITION, message)


def refusal(error: Exception, *, write: bool = False) -> GRPCError:
    """Return the wire form of one of STORE_ERRORS.

    ``write`` means that a commit, or a read before it, raised the error. Except for OutcomeUnknown, nothing was written
    then. The message says so, because over a network UNAVAILABLE leaves the outcome open.
    """
    text = str(error)
    if isinstance(error, InvalidArgument | PayloadError):
        return invalid(text)
    if isinstance(error, VersionConflict):
        return conflict(text)
    if isinstance(error, WrongUid):
        return WrongIncarnation(text)
    if isinstance(error, FenceLowered):
        return precondition(FENCED + text)
    if isinstance(error, UnknownTerm):
        return precondition(UNKNOWN_TERM + text)
    if isinstance(error, LeaseEnded):
        return precondition(LEASE_LOST + text)
    if isinstance(error, StoreMismatch):
        return GRPCError(Status.DATA_LOSS, text)
    if isinstance(error, HistoryCompacted):
        return GRPCError(Status.OUT_OF_RANGE, text)
    if isinstance(error, OutcomeUnknown):
        return GRPCError(Status.INTERNAL, text)
    if isinstance(error, WriteRejected):
        return GRPCError(Status.UNAVAILABLE, WRITE_REJECTED + text)
    return GRPCError(Status.UNAVAILABLE, NOTHING_WRITTEN + text if write else text)

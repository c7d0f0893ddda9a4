"""How a refusal looks on the wire: the store's errors as statuses, and short ways to say the usual ones."""

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
"""How the message of a refused write of a superseded run begins (its status is FAILED_PRECONDITION)."""

UNKNOWN_TERM = f"{FENCED}unknown term: "
"""How it begins when the fence bears a term that was never granted. A client that does not know it takes it for the one
above."""

LEASE_LOST = "lease lost: "
"""How the message begins when a term of a lease has ended (its status is FAILED_PRECONDITION)."""

WRITE_REJECTED = "not stored: "
"""How the message begins when a write has certainly not happened (its status is UNAVAILABLE, which else leaves that
open over a network)."""

NOTHING_WRITTEN = "nothing written: "
"""How the message begins when a store could not be written to, and certainly wasn't, for another reason than its disk
(its status is UNAVAILABLE, too); and when a write broke before the store was asked, such as in a hook (INTERNAL)."""

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
"""What a store may raise; the last two where it can't hold what it is given."""


def invalid(message: str) -> GRPCError:
    """The request is wrong."""
    return GRPCError(Status.INVALID_ARGUMENT, message)


def denied(message: str) -> GRPCError:
    """The caller may not do that."""
    return GRPCError(Status.PERMISSION_DENIED, message)


def not_found(message: str) -> GRPCError:
    """There is no such resource."""
    return GRPCError(Status.NOT_FOUND, message)


def conflict(message: str) -> GRPCError:
    """The version given is not the one stored."""
    return GRPCError(Status.ABORTED, message)


def taken(message: str) -> GRPCError:
    """The resource already exists."""
    return GRPCError(Status.ALREADY_EXISTS, message)


def precondition(message: str) -> GRPCError:
    """The stored resource forbids it."""
    return GRPCError(Status.FAILED_PRECONDITION, message)


class WrongIncarnation(GRPCError):
    """What is stored has another uid than the request names."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.FAILED_PRECONDITION, message)


def refusal(error: Exception, *, write: bool = False) -> GRPCError:
    """One of STORE_ERRORS as the wire has it.

    ``write``: it is what a commit, or a read before it, was refused with. But for OutcomeUnknown nothing was written,
    and a caller over a network, to whom UNAVAILABLE leaves that open, is told so.
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

"""The errors of failed calls: one of each row of the table of refusals, and those of a status."""

from __future__ import annotations

from typing import Any

from grpclib import GRPCError
from grpclib.const import Status

from headway.api import NotBegun, ProgramFailed, ProgramFailedLate, Reason, Row, call_of, code_of, row_of
from headway.errors import CommitRefused, HeadwayError, QuotaExceeded, RateLimited
from headway.rpc import told

_ARGUMENTS: dict[type[HeadwayError], tuple[Any, ...]] = {
    QuotaExceeded: ("a quota", "bytes", 3, 2, 1),
    RateLimited: (1.5,),
    ProgramFailed: (ValueError("broken"),),
    ProgramFailedLate: (ValueError("broken"),),
}
"""The further arguments of the errors that have more than a message."""


def an_error(row: Row) -> HeadwayError:
    """Return an error of a row, with the message "because"."""
    error = QuotaExceeded if row.error is CommitRefused else row.error
    return error("because", *_ARGUMENTS.get(error, ()))


def failed(status: Status, message: str | None = None, details: Any = None) -> HeadwayError:
    """Return what a caller learns of a call that has failed with this status."""
    return told(GRPCError(status, message, details))


def status_of(error: HeadwayError) -> Status:
    """Return the status of a failed call."""
    code = code_of(error)
    assert code is not None, f"no call has raised {error!r}"
    return Status(code)


def reason_of(error: HeadwayError) -> Reason | None:
    """Return the reason of a refusal, or None if it has none."""
    if isinstance(error, NotBegun):
        return Reason.NOTHING_WRITTEN
    row = row_of(error)
    return None if row is None else row.reason


def answer_of(error: HeadwayError) -> str:
    """Return what the server has said of a failed call."""
    call = call_of(error)
    assert call is not None, f"no call has raised {error!r}"
    return call.message

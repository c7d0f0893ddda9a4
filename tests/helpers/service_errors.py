"""An error of each row of the table of refusals, and the reasons of refusals."""

from __future__ import annotations

from typing import Any

from grpclib import GRPCError

from headway.api import ProgramFailed, ProgramFailedLate, Reason, Row
from headway.errors import HeadwayError, QuotaExceeded, RateLimited
from headway.rpc import refusal_of

_ARGUMENTS: dict[type[HeadwayError], tuple[Any, ...]] = {
    QuotaExceeded: ("a quota", "bytes", 3, 2, 1),
    RateLimited: (1.5,),
    ProgramFailed: (ValueError("broken"),),
    ProgramFailedLate: (ValueError("broken"),),
}
"""The further arguments of the errors that have more than a message."""


def an_error(row: Row) -> HeadwayError:
    """Return an error of a row, with the message "because"."""
    return row.error("because", *_ARGUMENTS.get(row.error, ()))


def reason_of(error: GRPCError) -> Reason | None:
    """Return the reason of a refusal, or None if it has none. A newer server may give one that has no name here."""
    found = refusal_of(error)
    return None if found is None else found.reason

"""The errors of a channel as those of the client: what a failed call means for a read, and for a write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from headway.api import (
    FAILED,
    Code,
    DetailedPrecondition,
    Interrupted,
    NotBegun,
    NotServed,
    code_of,
    described,
    ended_a_wait,
)
from headway.errors import FailedPrecondition, HeadwayError, NotHeadway, OutcomeUnknown, StoreChanged, Unavailable

LASTING = frozenset(
    (
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.FAILED_PRECONDITION,
        Code.PERMISSION_DENIED,
        Code.UNAUTHENTICATED,
        Code.UNIMPLEMENTED,
        Code.DATA_LOSS,
    )
)
"""The statuses after which the same request would fail again."""


def client_error(error: HeadwayError, *, write: bool = False, knows_outcomes: bool = False) -> HeadwayError:
    """Return the error of the client for a failed call. Errors that are public already stay as they are.

    A write that may have had an effect is OutcomeUnknown. UNAVAILABLE does not say that it had none, because the reply
    may have been lost, unless the channel ``knows_outcomes``.
    """
    if isinstance(error, Interrupted):
        code = code_of(error)
        if write and not (knows_outcomes and code is Code.UNAVAILABLE):
            return OutcomeUnknown(f"the call may have taken effect: {described(error)}")
        return StoreChanged(str(error)) if code is Code.DATA_LOSS else Unavailable(described(error))
    if isinstance(error, NotServed):
        return NotHeadway(str(error))
    if isinstance(error, DetailedPrecondition):
        return FailedPrecondition(str(error))
    return Unavailable(described(error)) if isinstance(error, NotBegun) else error


@contextmanager
def of_client(*, write: bool = False) -> Iterator[None]:
    """Turn an error of a channel that leaves the block into one of the client, which is of no call of the caller's."""
    try:
        yield
    except FAILED as error:
        raise client_error(error, write=write) from error
    except HeadwayError as error:
        error.failed_call = None
        raise


def in_doubt(error: BaseException, *, knows_outcomes: bool) -> bool:
    """Return True if a write that this error has ended may have been stored.

    Args:
        knows_outcomes: True if a call that is canceled in the channel certainly had no effect.
    """
    # A channel raises only errors of Headway, which say so, or Cancelled. After any other the outcome is unknown.
    if isinstance(error, HeadwayError):
        return False
    return not (isinstance(error, trio.Cancelled) and (knows_outcomes or ended_a_wait(error)))

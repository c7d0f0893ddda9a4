"""The translation of a channel's errors into Headway's."""

from __future__ import annotations

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway import rpc
from headway.api import Reason, error_of
from headway.errors import (
    Closed,
    HeadwayError,
    NotHeadway,
    OutcomeUnknown,
    QuotaExceeded,
    RateLimited,
    StoreChanged,
    TooLarge,
    Unavailable,
)

LASTING = frozenset(
    (
        Status.INVALID_ARGUMENT,
        Status.NOT_FOUND,
        Status.FAILED_PRECONDITION,
        Status.PERMISSION_DENIED,
        Status.UNAUTHENTICATED,
        Status.UNIMPLEMENTED,
        Status.DATA_LOSS,
    )
)
"""The statuses after which the same request would fail again."""


def client_error(error: GRPCError, *, write: bool = False, knows_outcomes: bool = False) -> HeadwayError:
    """Return the typed error for a failed call.

    For a write that is OutcomeUnknown, unless the write certainly had no effect. It had none in these cases:

    * The channel raised `rpc.NotBegun`, whatever the status.
    * The service gives the status only before it has done anything, for example INVALID_ARGUMENT.
    * The status is UNAVAILABLE and the channel ``knows_outcomes``. Otherwise the reply may have been lost.
    * The service gives the reason that nothing was written, as after a failed hook.
    """
    message = error.message or error.status.name
    if isinstance(error, rpc.ChannelClosed):
        return Closed(
            "the block that opened this client has ended: use the client inside `async with headway.open_engine(...)` "
            "or `async with headway.connect(...)`"
        )
    if isinstance(error, rpc.TooLarge):
        return TooLarge(message, error.size, error.limit)
    if isinstance(error, rpc.Limited):
        return RateLimited(message, error.seconds)
    refusal = rpc.refusal_of(error)
    reason = None if refusal is None else refusal.reason
    if refusal is not None and reason is Reason.QUOTA_EXCEEDED and (quota := refusal.quota) is not None:
        return QuotaExceeded(message, quota.name, quota.what, quota.limit, quota.use, quota.adds)
    if reason is Reason.NOTHING_WRITTEN:
        return Unavailable(f"{error.status.name}: {message}")
    if isinstance(error, rpc.NotHttp2 | rpc.NotGrpc):
        return NotHeadway(f"{message}: give the address of a Headway engine")
    if error.status is Status.UNIMPLEMENTED:
        where = f"the server at {error.where}" if isinstance(error, rpc.NotServed) else "the server"
        return NotHeadway(
            f"{where} is not a Headway engine, or is behind a proxy that doesn't forward the method: it answered "
            f"{message!r}; give the address of a Headway engine"
        )
    known = error_of(error.status.value, reason)
    if known is not None:
        return known(message)
    if isinstance(error, rpc.NotBegun):
        return Unavailable(f"{error.status.name}: {message}")
    if write and not (knows_outcomes and error.status is Status.UNAVAILABLE):
        return OutcomeUnknown(f"the call may have taken effect: {error.status.name}: {message}")
    if error.status is Status.DATA_LOSS:
        return StoreChanged(message)
    return Unavailable(f"{error.status.name}: {message}")


def in_doubt(error: BaseException, *, knows_outcomes: bool) -> bool:
    """Return True if a write that this error has ended may have been stored. The error is not a GRPCError.

    Args:
        knows_outcomes: True if a call that is canceled in the channel certainly had no effect.
    """
    # A channel raises only GRPCErrors, or Cancelled. After any other exception the outcome is unknown.
    return not (isinstance(error, trio.Cancelled) and (knows_outcomes or rpc.ended_a_wait(error)))

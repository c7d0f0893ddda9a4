"""What a caller learns of a call that has failed: the errors of gRPC as errors of Headway."""

from __future__ import annotations

from grpclib import GRPCError
from grpclib.const import Status

from headway.api import (
    Code,
    DetailedPrecondition,
    FailedCall,
    Interrupted,
    NotBegun,
    NotServed,
    Reason,
    error_of,
    of_call,
)
from headway.errors import Closed, FailedPrecondition, HeadwayError, NotHeadway, QuotaExceeded, RateLimited, TooLarge
from headway.rpc import _channel
from headway.rpc._limited import Limited
from headway.rpc._refusals import refusal_of


def told(error: GRPCError) -> HeadwayError:
    """Return the error of Headway for a failed call.

    It is `Interrupted` unless the call certainly had no effect. It had none in these cases:

    * The channel raised `_channel.NotBegun`, whatever the status.
    * The service gives the status only before it has done anything, for example INVALID_ARGUMENT.
    * The service gives the reason that nothing was written, as after a failed hook.
    """
    message, code = error.message or error.status.name, Code(error.status.value)
    obstacles = error if isinstance(error, _channel.NotReached) else None
    call = FailedCall(code, message, isinstance(error, _channel.NotBegun), obstacles)
    return of_call(_told(error, code, message), call)


def _told(error: GRPCError, code: Code, message: str) -> HeadwayError:
    if isinstance(error, _channel.ChannelClosed):
        return Closed(
            "the block that opened this client has ended: use the client inside `async with headway.open_engine(...)` "
            "or `async with headway.connect(...)`"
        )
    if isinstance(error, _channel.TooLarge):
        return TooLarge(message, error.size, error.limit)
    if isinstance(error, Limited):
        return RateLimited(message, error.retry_after)
    refusal = refusal_of(error)
    reason = None if refusal is None else refusal.reason
    if refusal is not None and reason is Reason.QUOTA_EXCEEDED and (quota := refusal.quota) is not None:
        return QuotaExceeded(message, quota.name, quota.what, quota.limit, quota.use, quota.adds)
    if reason is Reason.NOTHING_WRITTEN:
        return NotBegun(code, message)
    if isinstance(error, _channel.NotHttp2 | _channel.NotGrpc):
        return NotHeadway(f"{message}: give the address of a Headway engine")
    if error.status is Status.UNIMPLEMENTED:
        where = f"the server at {error.where}" if isinstance(error, _channel.NotServed) else "the server"
        return NotServed(
            f"{where} is not a Headway engine, or is behind a proxy that doesn't forward the method: it answered "
            f"{message!r}; give the address of a Headway engine"
        )
    known = error_of(code, reason)
    if known is FailedPrecondition and error.details and reason is None:
        return DetailedPrecondition(message, error.details)
    if known is not None:
        return known(message)
    return NotBegun(code, message) if isinstance(error, _channel.NotBegun) else Interrupted(code, message)

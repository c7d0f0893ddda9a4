"""What a caller learns of a call that has failed: the errors of gRPC as errors of Headway."""

from __future__ import annotations

from grpclib import GRPCError

from headway.api import Code, FailedCall, Interrupted, NotBegun, Reason, answer_of, closed, not_served, of_call
from headway.errors import CommitRefused, HeadwayError, NotHeadway, QuotaExceeded, RateLimited, TooLarge
from headway.rpc import _channel
from headway.rpc._limited import Limited
from headway.rpc._refusals import refusal_of


def told(error: GRPCError) -> HeadwayError:
    """Return the error of Headway for a failed call.

    The call also had no effect if the channel raised `_channel.NotBegun`, whatever the status.
    """
    message, code = error.message or error.status.name, Code(error.status.value)
    obstacles = error if isinstance(error, _channel.NotReached) else None
    call = FailedCall(code, message, isinstance(error, _channel.NotBegun), obstacles)
    return of_call(_told(error, code, message), call)


def _told(error: GRPCError, code: Code, message: str) -> HeadwayError:
    if isinstance(error, _channel.ChannelClosed):
        return closed()
    if isinstance(error, _channel.TooLarge):
        return TooLarge(message, error.size, error.limit)
    if isinstance(error, Limited):
        return RateLimited(message, error.retry_after)
    refusal = refusal_of(error)
    reason = None if refusal is None else refusal.reason
    if refusal is not None and reason is Reason.QUOTA_EXCEEDED and (quota := refusal.quota) is not None:
        return QuotaExceeded(message, quota.name, quota.what, quota.limit, quota.use, quota.adds)
    if reason is Reason.COMMIT_REFUSED:
        return CommitRefused(message)
    if isinstance(error, _channel.NotHttp2 | _channel.NotGrpc):
        return NotHeadway(f"{message}: give the address of a Headway engine")
    if isinstance(error, _channel.NotServed):
        return not_served(f"the server at {error.where}", message)
    found = answer_of(code, reason, message, error.details or ())
    return NotBegun(code, message) if isinstance(error, _channel.NotBegun) and type(found) is Interrupted else found

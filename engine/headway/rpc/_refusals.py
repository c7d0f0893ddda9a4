"""The errors of services as GRPCErrors, and the details that these carry."""

from __future__ import annotations

from datetime import timedelta

from grpclib import GRPCError
from grpclib.const import Status

from headway._gen.headway.refusal.v1 import ExceededQuota, Refusal
from headway.api import DetailedPrecondition, ProgramFailed, row_of
from headway.errors import PayloadError, QuotaExceeded, RateLimited
from headway.protobuf import decode, encode, field, message
from headway.resource import AnyMessage
from headway.rpc._channel import Report
from headway.rpc._limited import Limited

_URL = "type.googleapis.com/headway.refusal.v1.Refusal"
_RETRY_URL = "type.googleapis.com/google.rpc.RetryInfo"


@message(name="google.rpc.RetryInfo")
class _RetryInfo:
    """How long to wait before repeating a call, for clients that know only Google's details of a status."""

    retry_delay: timedelta = field(1)


def refused(path: str, error: Exception, report: Report) -> GRPCError:
    """Return the form over gRPC of what a service has raised, and report what is not a refusal."""
    if isinstance(error, GRPCError):
        return error
    found = grpc_error(error)
    if found is None or isinstance(error, ProgramFailed):
        report(path, error.cause if isinstance(error, ProgramFailed) else error)
    # grpclib's message when a handler raises an unexpected exception.
    return found or GRPCError(Status.UNKNOWN, "Internal Server Error")


def grpc_error(error: BaseException) -> GRPCError | None:
    """Return the form over gRPC of an error that a service may raise, and None for any other."""
    row = row_of(error)
    if row is None:
        return None
    details = error.details if isinstance(error, DetailedPrecondition) else ()
    if row.reason is not None:
        quota: ExceededQuota | None = None
        if isinstance(error, QuotaExceeded):
            quota = ExceededQuota(name=error.quota, what=error.what, limit=error.limit, use=error.use, adds=error.adds)
        details = (AnyMessage(type_url=_URL, value=encode(Refusal(reason=row.reason, quota=quota))),)
    if isinstance(error, RateLimited):
        retry = _RetryInfo(retry_delay=timedelta(seconds=error.retry_after))
        details = (*details, AnyMessage(type_url=_RETRY_URL, value=encode(retry)))
        return Limited(str(error), error.retry_after, details)
    return GRPCError(Status(row.code), str(error), details or None)


def refusal_of(error: GRPCError) -> Refusal | None:
    """Return the detail of a refusal that says more than its status, or None if it has none."""
    for detail in error.details or ():
        if isinstance(detail, AnyMessage) and detail.type_url == _URL:
            try:
                return decode(Refusal, detail.value)
            except PayloadError:
                return None
    return None

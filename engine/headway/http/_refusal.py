"""Refusals over HTTP: the statuses of the service as codes of HTTP, and the JSON of an error. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from grpclib import GRPCError
from grpclib.const import Status

from headway.rpc import Limited
from headway.service import Reason, reason_of

CODES: Mapping[Status, int] = {
    Status.INVALID_ARGUMENT: 400,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.ALREADY_EXISTS: 409,
    Status.ABORTED: 409,
    Status.FAILED_PRECONDITION: 409,
    # The history after a position is no longer kept, or the position is of another store: begin with a snapshot.
    Status.OUT_OF_RANGE: 410,
    Status.DATA_LOSS: 410,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}
"""The codes of HTTP by the status of the service. Any other status is 500."""

_FILTER = "metadata_filter"

_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"www-authenticate": "Bearer"},
    429: {"retry-after": "1"},
    503: {"retry-after": "1"},
}


class HttpRefusal(Exception):
    """An error that answers a request.

    Attributes:
        code: the code of HTTP.
        status: the name of the status, as over gRPC.
        reason: the name of the reason, if the status has one.
    """

    def __init__(
        self,
        code: int,
        status: str,
        message: str,
        *,
        reason: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.reason = reason
        self.headers = {**_HEADERS.get(code, {}), **(headers or {})}

    def body(self) -> dict[str, Any]:
        """Return the JSON of the answer."""
        body = {"code": self.status, "message": str(self)}
        return body if self.reason is None else {**body, "reason": self.reason}


def invalid(message: str) -> HttpRefusal:
    """Return an error for an invalid request."""
    return HttpRefusal(400, Status.INVALID_ARGUMENT.name, message)


def refusal_of(error: GRPCError) -> HttpRefusal:
    """Return the form over HTTP of an error of the service."""
    reason = reason_of(error)
    # Clients repeat a request after 429, and many after 5xx. That does not help here.
    code = 403 if reason is Reason.QUOTA_EXCEEDED else CODES.get(error.status, 500)
    headers = {"retry-after": str(math.ceil(error.seconds))} if isinstance(error, Limited) else None
    message = error.message or error.status.name
    if message.startswith(f"{_FILTER} "):
        # The parameter of a request over HTTP has a shorter name.
        message = message.replace(_FILTER, "filter", 1)
    return HttpRefusal(
        code,
        error.status.name,
        message,
        reason=None if reason is None else reason.name,
        headers=headers,
    )

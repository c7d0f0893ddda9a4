"""Errors over HTTP: the form of a service's error, and its JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headway.api import Code, row_of
from headway.errors import RateLimited

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
    return HttpRefusal(400, Code.INVALID_ARGUMENT.name, message)


def refusal_of(error: Exception) -> HttpRefusal | None:
    """Return the form over HTTP of an error of a service, or None if no service may raise it."""
    row = row_of(error)
    if row is None:
        return None
    headers = {"retry-after": str(math.ceil(error.retry_after))} if isinstance(error, RateLimited) else None
    message = str(error) or row.code.name
    if message.startswith(f"{_FILTER} "):
        # The parameter of a request over HTTP has a shorter name.
        message = message.replace(_FILTER, "filter", 1)
    return HttpRefusal(
        row.http,
        row.code.name,
        message,
        reason=None if row.reason is None else row.reason.name,
        headers=headers,
    )

"""Calls that a limit of the server refuses: their error, and its form in trailers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from grpclib.const import Status

from headway.rpc._channel import NOT_BEGUN, NotBegun

PUSHBACK = "grpc-retry-pushback-ms"
"""The trailer that gRPC defines for the time after which a client should repeat a call, in milliseconds."""

_LONGEST_PUSHBACK = 10
"""The number of digits of a valid time."""


class Limited(NotBegun):
    """A limit of the server refuses the call for now. It had no effect.

    Attributes:
        retry_after: the time, in seconds, until the server would accept it.
    """

    is_waited_for = True

    def __init__(self, message: str | None, seconds: float, details: Any = None) -> None:
        super().__init__(Status.RESOURCE_EXHAUSTED, message, details)
        self.retry_after = seconds

    def __reduce__(self) -> tuple[type[Limited], tuple[str | None, float, object]]:
        # An exception is copied from its args, which here begin with the status.
        return type(self), (self.message, self.retry_after, self.details)

    def trailers(self) -> dict[str, str]:
        """Return the trailers that carry this error."""
        return {NOT_BEGUN: "1", PUSHBACK: str(max(math.ceil(self.retry_after * 1000), 1))}


def limited_in(
    status: Status, message: str | None, trailers: Mapping[str, str], details: object = None
) -> Limited | None:
    """Return the error for a call that was not begun, if its trailers say that a limit refuses it."""
    given = trailers.get(PUSHBACK, "")
    if status is not Status.RESOURCE_EXHAUSTED or not (given.isascii() and given.isdigit()):
        return None
    return Limited(message, int(given) / 1000, details) if len(given) <= _LONGEST_PUSHBACK else None

"""The error of a handler that failed unexpectedly, and whose failure is reported to the operator."""

from __future__ import annotations

from grpclib import GRPCError
from grpclib.const import Status


class HandlerFault(GRPCError):
    """An INTERNAL error. The caller receives its message and details, and ``cause`` is reported as `HandlerFailed`."""

    def __init__(self, message: str, cause: BaseException, details: object = None) -> None:
        super().__init__(Status.INTERNAL, message, details)
        self.cause = cause

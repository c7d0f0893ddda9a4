"""A handler's answer to a failure of its own, which the operator hears of."""

from __future__ import annotations

from grpclib import GRPCError
from grpclib.const import Status


class HandlerFault(GRPCError):
    """The answer INTERNAL with this message to the caller of a method; ``cause`` is reported as HandlerFailed."""

    def __init__(self, message: str, cause: BaseException) -> None:
        super().__init__(Status.INTERNAL, message)
        self.cause = cause

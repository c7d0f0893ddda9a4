"""The errors of a channel. Some of them mean that the call certainly had no effect.

After any other error the outcome of the call is unknown: the status may come from a proxy, or the reply may have been
lost after the server had handled the call.
"""

from __future__ import annotations

from grpclib import GRPCError
from grpclib.const import Status

NOT_BEGUN = "headway-not-begun"
"""The trailer by which our servers say that no handler received the request, so the call had no effect."""

MESSAGE_LIMIT = "headway-message-limit"
"""The trailer that is added if the request was too large. Its value is the limit in bytes."""


class NotBegun(GRPCError):
    """The call failed before a server began to handle it. It has no effect, now or later."""


class ChannelClosed(NotBegun):
    """The channel is closed, because the block that opened it has ended."""

    def __init__(self) -> None:
        super().__init__(Status.UNAVAILABLE, "the block that opened this channel has ended")


class NotHttp2(NotBegun):
    """No address of the channel has ever answered as a gRPC server. Each speaks another protocol."""


class NotServed(NotBegun):
    """The server does not have the method that was called.

    Attributes:
        where: the address of the server.
    """

    def __init__(self, message: str | None, where: str) -> None:
        super().__init__(Status.UNIMPLEMENTED, message)
        self.where = where


class NotGrpc(GRPCError):
    """A web server rejected the call itself. It is not a gRPC server, and it passed nothing on to one."""


class TooLarge(NotBegun):
    """The request is larger than the server accepts. It was rejected before it was sent, or before it was read."""

    def __init__(self, size: int, limit: int) -> None:
        text = f"the request is a message of {size} bytes; the server takes {limit} at most"
        super().__init__(Status.RESOURCE_EXHAUSTED, text)
        self.size = size
        self.limit = limit


class Oversized(GRPCError):
    """The message being received is larger than the receiver's limit."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(Status.RESOURCE_EXHAUSTED, f"a message of {size} bytes is larger than the limit of {limit}")
        self.size = size
        self.limit = limit

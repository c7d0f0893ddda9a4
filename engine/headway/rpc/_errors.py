"""How a channel says that a failed call certainly had no effect.

Anything else that a call fails with says nothing of that: a status may come from a proxy, or stand for a reply that was
lost after the call had been done.
"""

from __future__ import annotations

from grpclib import GRPCError
from grpclib.const import Status

NOT_BEGUN = "headway-not-begun"
"""A trailer of our servers: no handler has been given the request, so that nothing of the call has been done."""

MESSAGE_LIMIT = "headway-message-limit"
"""Beside it, where the request was larger than this many bytes."""


class NotBegun(GRPCError):
    """A call failed before anybody began with it: nothing of it has been done, nor will be."""


class ChannelClosed(NotBegun):
    """The block that opened the channel has ended."""

    def __init__(self) -> None:
        super().__init__(Status.UNAVAILABLE, "the block that opened this channel has ended")


class NotHttp2(NotBegun):
    """None of a channel's addresses has ever been a gRPC server's: each answers in another protocol."""


class NotServed(NotBegun):
    """The server doesn't know the method that was called.

    Attributes:
        where: the server's address.
    """

    def __init__(self, message: str | None, where: str) -> None:
        super().__init__(Status.UNIMPLEMENTED, message)
        self.where = where


class NotGrpc(GRPCError):
    """A web server refuses the call by itself: what answers is no gRPC server, and nothing was passed on to one."""


class TooLarge(NotBegun):
    """A request is larger than its server takes; it was refused before it was read, or sent."""

    def __init__(self, size: int, limit: int) -> None:
        text = f"the request is a message of {size} bytes; the server takes {limit} at most"
        super().__init__(Status.RESOURCE_EXHAUSTED, text)
        self.size = size
        self.limit = limit


class Oversized(GRPCError):
    """A message that is being received is larger than the limit of who receives it."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(Status.RESOURCE_EXHAUSTED, f"a message of {size} bytes is larger than the limit of {limit}")
        self.size = size
        self.limit = limit

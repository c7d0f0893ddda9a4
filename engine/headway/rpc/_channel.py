"""The errors of channels, and a channel that adds metadata.

Some errors mean that the call certainly had no effect. After any other error the outcome of the call is unknown: the
status may come from a proxy, or the reply may have been lost after the server had handled the call.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from grpclib import GRPCError
from grpclib.const import Status
from typing_extensions import override

from headway.api import Channel, Metadata, PassingChannel

Report = Callable[[str, BaseException], None]
"""A function that is called with the path of a method, or another name, and an unexpected exception."""

NOT_BEGUN = "headway-not-begun"
"""The trailer by which our servers say that no handler received the request, so the call had no effect."""

MESSAGE_LIMIT = "headway-message-limit"
"""The trailer that is added if the request was too large. Its value is the limit in bytes."""


def ignore_error(path: str, error: BaseException) -> None:
    """Ignore the report."""


class NotBegun(GRPCError):
    """The call failed before a server began to handle it. It has no effect, now or later."""


class ChannelClosed(NotBegun):
    """The channel is closed, because the block that opened it has ended."""

    def __init__(self) -> None:
        super().__init__(Status.UNAVAILABLE, "the block that opened this channel has ended")


class Remedy(enum.Enum):
    """A change of a channel's options that may let it reach a server. The value is the advice to a program."""

    USE_TLS = "give tls=headway.rpc.client_tls(...)"
    LEAVE_OUT_TLS = "leave tls out"
    NAME_AUTHORITY = "give the authority's file with tls=headway.rpc.client_tls('ca.pem'), or --tls-authority"
    GIVE_CERTIFICATE = (
        "if it asks for a client's certificate, give one with tls=headway.rpc.client_tls(certificate='client.pem'), "
        "or --tls-certificate"
    )


class Obstacle(NamedTuple):
    """The reason why a server cannot be reached, and the remedy if there is one."""

    reason: str
    remedy: Remedy | None = None


class NotReached(NotBegun):
    """No address of the channel can be reached.

    Attributes:
        obstacles: the obstacle at each address.
    """

    def __init__(self, obstacles: Sequence[tuple[str, Obstacle]]) -> None:
        self.obstacles = obstacles
        super().__init__(Status.UNAVAILABLE, self.text({each: each.value for each in Remedy}))

    def __reduce__(self) -> tuple[type[NotReached], tuple[Sequence[tuple[str, Obstacle]]]]:
        # An exception is copied from its args, which here hold the status and the text instead of the obstacles.
        return type(self), (self.obstacles,)

    def text(self, advice: Mapping[Remedy, str]) -> str:
        """Return the message with this advice for each remedy."""
        parts = [
            f"{where}: {reason}" + ("" if remedy is None else f": {advice[remedy]}")
            for where, (reason, remedy) in self.obstacles
        ]
        return f"no server can be reached ({'; '.join(parts)})"


class NotHttp2(NotReached):
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
        text = f"the request is a message of {size} bytes; the server accepts at most {limit}"
        super().__init__(Status.RESOURCE_EXHAUSTED, text)
        self.size = size
        self.limit = limit


class Oversized(GRPCError):
    """The message being received is larger than the receiver's limit."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(Status.RESOURCE_EXHAUSTED, f"a message of {size} bytes is larger than the limit of {limit}")
        self.size = size
        self.limit = limit


class Compressed(GRPCError):
    """The message being received is compressed, which this package does not support."""

    def __init__(self) -> None:
        why = "compressed messages are not supported: send them as they are (grpc-encoding: identity)"
        super().__init__(Status.UNIMPLEMENTED, why)


class WithMetadata(PassingChannel):
    """A wrapper around a channel that adds metadata to every call. A call's own metadata takes precedence."""

    def __init__(self, inner: Channel, metadata: Metadata) -> None:
        super().__init__(inner)
        # Not copied: the token in it may be another one for each call.
        self._metadata = metadata

    @override
    async def unary(self, path: str, request: Any, reply_type: type[Any], *, metadata: Metadata | None = None) -> Any:
        return await self.inner.unary(path, request, reply_type, metadata={**self._metadata, **(metadata or {})})

    @override
    def stream(
        self, path: str, request: Any, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        return self.inner.stream(path, request, metadata={**self._metadata, **(metadata or {})})

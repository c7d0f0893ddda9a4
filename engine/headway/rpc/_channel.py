"""The protocol of channels, their errors, and the channels that wrap another one.

Some errors mean that the call certainly had no effect. After any other error the outcome of the call is unknown: the
status may come from a proxy, or the reply may have been lost after the server had handled the call.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from grpclib import GRPCError
from grpclib.const import Status
from typing_extensions import override

from headway.api import Channel, Metadata, timeout_of

Report = Callable[[str, BaseException], None]
"""A function that is called with the path of a method, or another name, and an unexpected exception."""

Reply = TypeVar("Reply")

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


class _Wrapper(Channel):
    def __init__(self, inner: Channel) -> None:
        self._inner = inner

    @property
    @override
    def knows_outcomes(self) -> bool:
        return self._inner.knows_outcomes

    @property
    def timeout(self) -> float:
        """The timeout of the inner channel's calls."""
        return timeout_of(self._inner)


class WithMetadata(_Wrapper):
    """A wrapper around a channel that adds metadata to every call. A call's own metadata takes precedence."""

    def __init__(self, inner: Channel, metadata: Metadata) -> None:
        super().__init__(inner)
        # Not copied: the token in it may be another one for each call.
        self._metadata = metadata

    @override
    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        return await self._inner.unary(path, request, reply_type, metadata={**self._metadata, **(metadata or {})})

    @override
    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        return self._inner.stream(path, request, metadata={**self._metadata, **(metadata or {})})


class CopyingChannel(_Wrapper):
    """A wrapper around a channel that copies requests and replies.

    Callers may modify replies, and requests that they have sent. ``copy`` is called with messages and with the items of
    streams.
    """

    def __init__(self, channel: Channel, copy: Callable[[Any], Any]) -> None:
        super().__init__(channel)
        self._copy = copy

    @override
    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        reply: Reply = self._copy(await self._inner.unary(path, self._copy(request), reply_type, metadata=metadata))
        return reply

    @override
    @asynccontextmanager
    async def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AsyncIterator[AsyncIterator[Any]]:
        async with self._inner.stream(path, self._copy(request), metadata=metadata) as items:
            yield _Copies(items, self._copy)


class _Copies:
    def __init__(self, items: AsyncIterator[Any], copy: Callable[[Any], Any]) -> None:
        self._items = items
        self._copy = copy

    def __aiter__(self) -> _Copies:
        return self

    async def __anext__(self) -> Any:
        return self._copy(await self._items.__anext__())

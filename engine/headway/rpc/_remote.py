"""A channel over a network: calls and watches on connections of their own, to several servers in turn."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Protocol, TypeVar

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway.errors import InvalidArgument
from headway.rpc._addresses import Address, addresses
from headway.rpc._channel import Metadata
from headway.rpc._errors import NotBegun
from headway.rpc._limits import MIB, Limits
from headway.rpc._loop import Carrier, open_carrier
from headway.rpc._plain_text import has_secret, plain_text_host, readable
from headway.rpc._pool import Avoids, Pool, never
from headway.rpc._remote_call import RemoteCall, Unsent
from headway.rpc._services import FastCodec
from headway.rpc._wire import Codec, StreamDecoder

Reply = TypeVar("Reply")
Report = Callable[[str, BaseException], None]

CHANNEL_LIMITS = Limits(
    message_size=64 * MIB,
    streams=100,
    stream_window=MIB,
    frame_size=64 << 10,
    keepalive_interval=30.0,
    keepalive_timeout=10.0,
)
"""What a channel accepts unless told otherwise: a list of everything is one message."""

# How often a call that certainly has not been begun is sent again.
_ATTEMPTS = 3


def _ignore(path: str, error: BaseException) -> None:
    """Report to nobody."""


class RemoteChannel:
    """Calls services on other machines. Made by `open_channel`.

    A failed connection is a GRPCError of status UNAVAILABLE. A call that a server certainly has not begun is sent
    again, to the next server if need be; one that it may have begun never is.

    Attributes:
        timeout: seconds for a unary call.
    """

    knows_outcomes = False

    def __init__(
        self,
        calls: Pool,
        watches: Pool,
        codec: Codec,
        decoders: Mapping[str, Callable[[], StreamDecoder]],
        timeout: float,
        plain_text: Address | None = None,
    ) -> None:
        self._calls = calls
        self._watches = watches
        self._codec = codec
        self._decoders = decoders
        self.timeout = timeout
        # Another host that is asked over plain TCP, to which no token may be sent.
        self._plain_text = plain_text

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Call a unary method within the channel's timeout, or what is left of the caller's own deadline, which
        the server is told.
        """
        self._check_metadata(metadata)
        body = self._codec.encode(request)
        # A request may ask the server to wait before it answers. That time comes on top.
        timeout = self.timeout + getattr(request, "wait_ms", 0) / 1000
        ends = min(trio.current_time() + timeout, trio.current_effective_deadline())
        with trio.CancelScope(deadline=ends):
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    async with self._calls.open_call() as call:
                        await call.begin(path, body, metadata, ends)
                        return self._reply(path, await call.one_message(), reply_type)
                except Unsent as error:
                    if attempt == _ATTEMPTS:
                        raise NotBegun(Status.UNAVAILABLE, str(error)) from error
        # A deadline of the caller's own raises its Cancelled here; this one is the channel's.
        await trio.lowlevel.checkpoint()
        raise GRPCError(Status.DEADLINE_EXCEEDED, f"{path} has not been answered in {timeout:g} s")

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a server stream. What it yields is what the decoder passed in for ``path`` makes of the messages."""
        self._check_metadata(metadata)
        return _Items(self._watches, path, self._codec.encode(request), metadata, self._decoder(path))

    def duplex(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[Duplex]:
        """Open a call in which both sides stream. It begins with ``request``; `Duplex.send` sends more."""
        self._check_metadata(metadata)
        decoder = self._decoder(path)
        return _Duplex(self._watches, path, self._codec.encode(request), metadata, decoder, self._codec)

    def _check_metadata(self, metadata: Metadata | None) -> None:
        if self._plain_text is not None and metadata and has_secret(metadata.items()):
            raise InvalidArgument(
                readable("a token", self._plain_text, "use tls=headway.rpc.client_tls(...), or insecure=True")
            )

    def _decoder(self, path: str) -> StreamDecoder:
        make = self._decoders.get(path)
        if make is None:
            raise GRPCError(Status.UNIMPLEMENTED, f"this channel has no decoder for {path}")
        return make()

    def _reply(self, path: str, body: bytes, reply_type: type[Reply]) -> Reply:
        try:
            reply: Reply = self._codec.decode(reply_type, body)
        except ValueError as error:
            raise GRPCError(Status.INTERNAL, f"{path} answered with what is {error}") from error
        return reply


class Duplex(Protocol):
    """A call in which both sides stream: its answers, as an iterator, and a way to ask on."""

    async def send(self, request: object) -> None:
        """Send one more request."""
        ...

    def __aiter__(self) -> AsyncIterator[Any]: ...


class _Items:
    """The items of a server stream: an async context manager that is its own iterator."""

    # Whether the first request is the last one.
    _ends = True

    def __init__(self, pool: Pool, path: str, body: bytes, metadata: Metadata | None, decoder: StreamDecoder) -> None:
        self._pool = pool
        self._path = path
        self._body = body
        self._metadata = metadata
        self._decoder = decoder
        self._opened: AbstractAsyncContextManager[RemoteCall] | None = None
        self._call: RemoteCall | None = None
        self._ready: deque[Any] = deque()

    async def __aenter__(self) -> _Items:
        for attempt in range(1, _ATTEMPTS + 1):
            opened = self._pool.open_call()
            try:
                call = await opened.__aenter__()
                self._opened = opened
                await call.begin(self._path, self._body, self._metadata, None, end=self._ends)
            except Unsent as error:
                await self._close()
                if attempt == _ATTEMPTS:
                    raise NotBegun(Status.UNAVAILABLE, str(error)) from error
            except BaseException:
                await self._close()
                raise
            else:
                self._call = call
                break
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close(kind, error, traceback)

    def __aiter__(self) -> _Items:
        return self

    async def __anext__(self) -> Any:
        if self._call is None:
            raise RuntimeError("a stream is read inside `async with channel.stream(...) as items:`")
        while not self._ready:
            try:
                bodies = await self._call.messages()
            except Unsent as error:
                raise NotBegun(Status.UNAVAILABLE, str(error)) from error
            if not bodies:
                raise StopAsyncIteration
            try:
                self._ready.extend(self._decoder(bodies))
            except ValueError as error:
                raise GRPCError(Status.INTERNAL, f"{self._path} sent what is {error}") from error
        return self._ready.popleft()

    async def _close(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        opened, self._opened, self._call = self._opened, None, None
        if opened is not None:
            await opened.__aexit__(kind, error, traceback)


class _Duplex(_Items):
    """The same where the client goes on asking."""

    _ends = False

    def __init__(
        self,
        pool: Pool,
        path: str,
        body: bytes,
        metadata: Metadata | None,
        decoder: StreamDecoder,
        codec: Codec,
    ) -> None:
        super().__init__(pool, path, body, metadata, decoder)
        self._codec = codec

    async def __aenter__(self) -> _Duplex:
        await super().__aenter__()
        return self

    async def send(self, request: object) -> None:
        """See `Duplex.send`."""
        if self._call is None:
            raise RuntimeError("a request is sent inside `async with channel.duplex(...) as call:`")
        await self._call.send(self._codec.encode(request))


@asynccontextmanager
async def open_channel(
    endpoints: str | Sequence[str],
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    decoders: Mapping[str, Callable[[], StreamDecoder]] | None = None,
    codec: Codec | None = None,
    limits: Limits = CHANNEL_LIMITS,
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    report: Report = _ignore,
    avoids: Avoids = never,
    insecure: bool = False,
) -> AsyncIterator[RemoteChannel]:
    """``async with open_channel("10.0.0.1:9000,10.0.0.2:9000", decoders={path: Decoder}) as channel: ...``

    No connection is made before the first call. All are closed when the block ends.

    Args:
        endpoints: the servers' addresses; any of them serves.
        tls: for TCP endpoints, as `client_tls` makes it.
        server_name: the name that the servers' certificates must have, if it isn't the endpoint's host.
        decoders: for each method that streams, what makes a decoder for one stream.
        timeout: seconds for a unary call, where the caller's own deadline is no shorter.
        connect_timeout: seconds for a connection to one endpoint.
        avoids: whether the failure of a call says that its server is to get no new ones for a time, if there is
            another.
        insecure: send tokens to other hosts over plain TCP, too. Otherwise a call that has one in its metadata raises
            InvalidArgument.
    """
    wanted = addresses(endpoints)
    plain_text = None if insecure else plain_text_host(wanted, tls)

    async def closing(_: Carrier) -> None:
        await calls.close()
        await watches.close()

    async with open_carrier(report, closing) as carrier:
        pools = [
            Pool(carrier, wanted, tls, server_name, limits, connect_timeout, report, avoids=avoids)
            for _ in ("calls", "watches")
        ]
        calls, watches = pools
        yield RemoteChannel(calls, watches, codec or FastCodec(), decoders or {}, timeout, plain_text)

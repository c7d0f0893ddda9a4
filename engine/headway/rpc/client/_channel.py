"""A channel over a network. Unary calls and streams use separate connections, and servers are tried in turn."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway.api import Channel, Code, Interrupted, LimitedWaits, Metadata
from headway.base import check_trio, current_run
from headway.errors import InvalidArgument
from headway.rpc._addresses import Address, addresses, has_secret, plain_text_host, readable
from headway.rpc._channel import NotBegun, Report, ignore_error
from headway.rpc._limited import Limited
from headway.rpc._limits import MIB, Limits, WireLimits
from headway.rpc._loop import Carrier, open_carrier
from headway.rpc._services import FastCodec
from headway.rpc._told import told
from headway.rpc._wire import Codec, StreamDecoder
from headway.rpc.client._admitted import Admission, Admits, OneConnection, OpensCall, reply_of
from headway.rpc.client._call import ATTEMPTS, RemoteCall, Unsent
from headway.rpc.client._pool import Avoids, Pool, never

Reply = TypeVar("Reply")

CHANNEL_LIMITS = Limits(
    message_size=64 * MIB,
    wire=WireLimits(
        streams=100,
        stream_window=MIB,
        frame_size=64 << 10,
        keepalive_interval=30.0,
        keepalive_timeout=10.0,
    ),
)
"""The default limits of a channel. Messages may be large because a list of all resources is one message."""


class RemoteChannel(Channel):
    """A channel to servers on other machines. Create it with `open_channel`.

    A failed connection raises Interrupted with the code UNAVAILABLE. A call is sent again, if necessary to the next
    server, only if the first server certainly has not begun to handle it.

    Attributes:
        timeout: the timeout in seconds of a unary call.
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
        # A remote host that is reached over plain TCP. No token may be sent to it.
        self._plain_text = plain_text
        # Connections belong to one run of Trio.
        self._home = current_run()

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Call a unary method and return its reply.

        The call ends at the channel's timeout or at the caller's own deadline, whichever is earlier. The server is
        given that deadline. A call that a limit of the server refuses is repeated until then.

        Raises:
            RateLimited: a limit of the server refuses the call, and would still do so at the channel's timeout.
            Interrupted: the call failed, and it may have had an effect.
            HeadwayError: the call failed and certainly had no effect.
        """
        try:
            return await self._unary(path, request, reply_type, metadata)
        except GRPCError as error:
            raise told(error) from error

    async def _unary(self, path: str, request: object, reply_type: type[Reply], metadata: Metadata | None) -> Reply:
        self._check_call(metadata)
        body = self._codec.encode(request)
        # A request may ask the server to wait before it answers. That time is added to the timeout.
        timeout = self.timeout + getattr(request, "wait_ms", 0) / 1000
        ends = trio.current_time() + timeout
        attempts, waits, begun = 0, LimitedWaits(timeout), False
        with trio.CancelScope(deadline=ends):
            while True:
                try:
                    async with self._calls.open_call(request, metadata) as call:
                        begun = True
                        # The caller's deadline may have been moved since an attempt that a limit has refused.
                        await call.begin(path, body, metadata, min(ends, trio.current_effective_deadline()))
                        return reply_of(self._codec, path, await call.one_message(), reply_type)
                except Unsent as error:
                    begun = False
                    attempts += 1
                    if attempts == ATTEMPTS:
                        raise NotBegun(Status.UNAVAILABLE, str(error)) from error
                except Limited as refused:
                    begun = False
                    await waits.wait(refused)
        # If the caller's own deadline has passed, this raises Cancelled. Otherwise it was the channel's timeout.
        await trio.lowlevel.checkpoint()
        raise (GRPCError if begun else NotBegun)(Status.DEADLINE_EXCEEDED, f"{path} timed out after {timeout:g} s")

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a server stream. It yields the messages as decoded by the channel's decoder for ``path``."""
        return self._open(path, request, metadata, end=True)

    def duplex(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[Duplex]:
        """Open a bidirectional stream. It begins with ``request``; `Duplex.send` sends more."""
        return self._open(path, request, metadata, end=False)

    def _open(
        self, path: str, request: object, metadata: Metadata | None, *, end: bool
    ) -> AbstractAsyncContextManager[Duplex]:
        """Return a stream to be opened. With ``end``, the request is the only one."""
        self._check_call(metadata)
        return self._opened(path, request, self._codec.encode(request), metadata, self._decoder(path), end)

    @asynccontextmanager
    async def _opened(
        self, path: str, request: object, body: bytes, metadata: Metadata | None, decoder: StreamDecoder, end: bool
    ) -> AsyncIterator[Duplex]:
        own: GRPCError | None = None
        try:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    async with self._watches.open_call(request, metadata) as call:
                        await call.begin(path, body, metadata, None, end=end)
                        stream = Duplex(call, path, self._codec, decoder)
                        try:
                            yield stream
                        except GRPCError as error:
                            own = error
                            raise
                        finally:
                            stream.close()
                        return
                except Unsent as error:
                    if attempt == ATTEMPTS:
                        raise NotBegun(Status.UNAVAILABLE, str(error)) from error
        except GRPCError as error:
            if error is own:
                # The program's own calls may fail in the block.
                raise
            raise told(error) from error
        finally:
            own = None

    def _check_call(self, metadata: Metadata | None) -> None:
        check_trio("a client of Headway", self._home)
        if self._plain_text is not None and metadata and has_secret(metadata.items()):
            raise InvalidArgument(
                readable("a token", self._plain_text, "use tls=headway.rpc.client_tls(...), or insecure=True")
            )

    def _decoder(self, path: str) -> StreamDecoder:
        make = self._decoders.get(path)
        if make is None:
            raise told(GRPCError(Status.UNIMPLEMENTED, f"this channel has no decoder for {path}"))
        return make()


class Duplex:
    """A bidirectional stream: an async iterator of replies, and a method to send more requests.

    A server stream is the same without the method.
    """

    def __init__(self, call: RemoteCall, path: str, codec: Codec, decoder: StreamDecoder) -> None:
        # None if the block that opened the stream has ended.
        self._call: RemoteCall | None = call
        self._path = path
        self._codec = codec
        self._decoder = decoder
        self._ready: deque[Any] = deque()

    async def send(self, request: object) -> None:
        """Send one more request."""
        if self._call is None:
            raise RuntimeError("the call is not open: send inside `async with channel.duplex(...) as call:`")
        try:
            await self._call.send(self._codec.encode(request))
        except Unsent as error:
            raise told(NotBegun(Status.UNAVAILABLE, str(error))) from error
        except GRPCError as error:
            raise told(error) from error

    def __aiter__(self) -> Duplex:
        return self

    async def __anext__(self) -> Any:
        if self._call is None:
            raise RuntimeError("the stream is not open: read it inside `async with channel.stream(...) as items:`")
        while not self._ready:
            try:
                bodies = await self._call.messages()
            except Unsent as error:
                raise told(NotBegun(Status.UNAVAILABLE, str(error))) from error
            except GRPCError as error:
                raise told(error) from error
            if not bodies:
                raise StopAsyncIteration
            try:
                self._ready.extend(self._decoder(bodies))
            except ValueError as error:
                raise Interrupted(Code.INTERNAL, f"invalid message from {self._path}: {error}") from error
        return self._ready.popleft()

    def close(self) -> None:
        """Reject later calls of the methods."""
        self._call = None


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
    report: Report = ignore_error,
    avoids: Avoids = never,
    admits: Admits | None = None,
    insecure: bool = False,
) -> AsyncIterator[RemoteChannel]:
    """Open a channel to one or more servers::

        async with open_channel("10.0.0.1:9000,10.0.0.2:9000", decoders={path: Decoder}) as channel:
            reply = await channel.unary(path, request, Reply)

    The first call makes the first connection. All connections are closed when the block ends.

    Args:
        endpoints: the servers' addresses. Any of them can answer any call.
        tls: the context for TCP endpoints, such as `client_tls` makes.
        server_name: the name in the servers' certificates, if it differs from the endpoint's host.
        decoders: for the path of each streaming method, a function that returns a decoder for one stream.
        codec: encodes requests and decodes unary replies. By default they are protobuf messages.
        limits: the limits on servers.
        timeout: the timeout in seconds of a unary call. A shorter deadline of the caller takes precedence.
        connect_timeout: the timeout in seconds of connecting to one endpoint.
        report: called with a name and the error when an unexpected exception is caught in the background.
        avoids: returns True if, after a call failed with the given error, its server should receive no new calls for a
            while. That only applies if there is another server.
        admits: returns the admission of a new connection. Calls that it does not admit at once wait for it.
        insecure: allow sending tokens to other hosts over plain TCP. Otherwise a call with a token in its metadata
            raises InvalidArgument.
    """
    wanted = addresses(endpoints)
    used = codec or FastCodec()
    plain_text = None if insecure else plain_text_host(wanted, tls)

    def admission(opens_call: OpensCall) -> Admission:
        assert admits is not None
        return admits(OneConnection(opens_call, used, timeout))

    async def closing(_: Carrier) -> None:
        await calls.close()
        await watches.close()

    async with open_carrier(report, closing) as carrier:
        pools = [
            Pool(
                carrier=carrier,
                endpoints=wanted,
                tls=tls,
                server_name=server_name,
                limits=limits,
                connect_timeout=connect_timeout,
                report=report,
                avoids=avoids,
                admits=None if admits is None else admission,
            )
            for _ in ("calls", "watches")
        ]
        calls, watches = pools
        yield RemoteChannel(calls, watches, used, decoders or {}, timeout, plain_text)

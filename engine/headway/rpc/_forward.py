"""A server that forwards every call to another server (the upstream), unchanged.

The forwarder knows neither services nor messages. It forwards bytes as they arrive, and only as fast as the receiver
reads, so that a call takes no more memory than its two windows. The client gets the upstream's response as it is. If
the upstream may have begun a call, the response never says that the call had no effect.
"""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import nullcontext

import trio
from grpclib import GRPCError
from grpclib.const import Status
from grpclib.exceptions import StreamTerminatedError
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from headway import events
from headway.base import async_block
from headway.rpc._addresses import Address, addresses, has_secret, plain_text_host, readable
from headway.rpc._channel import NotBegun, Report
from headway.rpc._limits import KIB, Limits, OpenStreams
from headway.rpc._loop import Carrier, open_carrier
from headway.rpc._services import Services
from headway.rpc.client import ATTEMPTS, CHANNEL_LIMITS, Pool, RemoteCall, Unsent
from headway.rpc.http2 import LITTLE
from headway.rpc.server import Server, ServerStream, open_server

Headers = list[tuple[str, str]]

UPSTREAM_LIMITS = dataclasses.replace(
    CHANNEL_LIMITS, wire=dataclasses.replace(CHANNEL_LIMITS.wire, stream_window=256 * KIB)
)
"""The limits of a forwarder on its upstream. The client limits the size of messages, because none are held here."""

# Headers that belong to one connection, or that are set again for the next one.
_OURS = frozenset(
    (
        "te",
        "host",
        "grpc-timeout",
        "content-length",
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    )
)
_HOPS = "x-headway-hops"
_MOST_HOPS = 8
_PREFIX = 5
# The streams that can be opened without a token, and how many of them the clients of a forwarder have at once. They are
# fewer than the upstream accepts, so that the forwarder makes room for a client before the upstream would refuse it.
_NO_TOKEN = ("/grpc.health.v1.Health/Watch", "/grpc.reflection.")
_STRANGERS = 900
# How many seconds a small part of a request waits for more, if the upstream accepts no more small frames.
_PATIENCE = 1.0


class Forwarder:
    """A handler that answers every call by making the same call over the connections of a pool."""

    def __init__(self, pool: Pool, plain_text: Address | None = None) -> None:
        self._pool = pool
        # A remote host that is reached over plain TCP. No token is forwarded to it.
        self._plain_text = plain_text
        self._strangers = OpenStreams(in_all=_STRANGERS)

    async def answer(self, stream: ServerStream, _: ServerStream) -> None:
        """Forward a call and its response."""
        # The upstream limits the streams that need no token, and sees one client: the forwarder.
        with self._strangers.one(stream) if stream.path.startswith(_NO_TOKEN) else nullcontext():
            await self._forward(stream)

    async def _forward(self, stream: ServerStream) -> None:
        headers = _request_headers(stream.headers)
        if self._plain_text is not None and has_secret(headers):
            remedy = "configure the forwarder with TLS to its server (--forward-tls), or with --forward-insecure"
            raise GRPCError(Status.FAILED_PRECONDITION, readable("a token", self._plain_text, remedy))
        # Assume a unary call. `_pass_data` changes that if the response turns out to be a stream.
        stream.streaming = False
        deadline = None
        if stream.deadline is not None:
            deadline = trio.current_time() + stream.deadline.time_remaining()
        request = stream.http2.buffer
        # Usually the request has arrived with the headers. It is then forwarded together with them.
        first = await request.take() if request.ready else b""
        whole = request.finished
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self._pool.open_call() as call:
                    # Invariant: it is set before anything is sent. While it is False, our trailers say that the call
                    # had no effect.
                    stream.begun = True
                    await call.begin_raw(stream.path, headers, first, deadline, end=whole)
                    request.done(len(first))
                    await (_pass_reply(stream, call) if whole else _pass_both(stream, call))
                return
            except Unsent as error:
                stream.begun = False
                if attempt == ATTEMPTS:
                    raise NotBegun(Status.UNAVAILABLE, str(error)) from error
            except NotBegun:
                stream.begun = False
                raise


async def _pass_both(stream: ServerStream, call: RemoteCall) -> None:
    """Forward the rest of the request and the response concurrently. The end of the response ends both."""
    failure: Exception | None = None

    async def pass_request() -> None:
        nonlocal failure
        try:
            while data := await _worth_sending(stream, call):
                await call.stream.send_data(data)
                stream.http2.buffer.done(len(data))
            await call.stream.end()
        except (StreamTerminatedError, ProtocolError):
            # The client or the upstream has gone. Forwarding the response notices it too.
            return
        except GRPCError as error:
            # Part of the request was discarded here. The upstream must not take its part for the whole request.
            failure = error
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_request)
        try:
            await _pass_reply(stream, call)
        except Unsent:
            # The forwarded part of the request can't be sent again. The client learns, as we did, that the call has
            # not begun.
            stream.http2.abandon(ErrorCodes.REFUSED_STREAM)
        except (GRPCError, StreamTerminatedError, ProtocolError) as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _worth_sending(stream: ServerStream, call: RemoteCall) -> bytes:
    """Wait for a part of the request and return it.

    If the upstream would end the connection because of one more small frame, wait for more data.
    """
    request = stream.http2.buffer
    data = await request.take()
    while data and len(data) < LITTLE and not request.finished and not call.is_solvent:
        with trio.move_on_after(_PATIENCE):
            data += await request.take()
    return data


async def _pass_reply(stream: ServerStream, call: RemoteCall) -> None:
    """Forward the response.

    Raises:
        GRPCError: the upstream sent no complete gRPC response.
        StreamTerminatedError: the client has gone.
    """
    head = await call.head()
    headers = [(":status", "200"), *_passed(head)]
    if any(name == "grpc-status" for name, _ in head):
        await stream.send_headers(headers, end=True)
    else:
        answer = call.stream.buffer
        data = await call.data() if answer.ready else None
        if data and answer.finished and call.stream.trailers is not None and stream.http2.hold(headers, data):
            # The whole response has arrived. It is sent in one write.
            data = b""
        else:
            await stream.send_headers(headers)
        await _pass_data(stream, call, data)
        await stream.send_headers(_passed(call.trailers()), end=True)
    # Anything that the client still sends is useless.
    stream.http2.abandon(ErrorCodes.NO_ERROR)


async def _pass_data(stream: ServerStream, call: RemoteCall, data: bytes | None) -> None:
    begun, size = b"", 0
    if data is None:
        data = await call.data()
    while data:
        await stream.send_data(data)
        begun, size = (begun + data)[:_PREFIX], size + len(data)
        # A call that goes on after its first message has more than one reply.
        if len(begun) == _PREFIX and size >= _PREFIX + int.from_bytes(begun[1:_PREFIX], "big"):
            stream.streaming = True
        data = await call.data()


def _passed(headers: Iterable[tuple[str, str]]) -> Headers:
    return [(name, value) for name, value in headers if name not in _OURS and not name.startswith(":")]


def _request_headers(headers: Headers) -> Headers:
    """Return the headers to forward, with the number of hops, so that servers can't forward in a circle forever."""
    hops = next((value for name, value in headers if name == _HOPS), "")
    passed = int(hops) + 1 if hops.isascii() and hops.isdigit() and len(hops) < _MOST_HOPS else 1
    if passed > _MOST_HOPS:
        raise GRPCError(
            Status.FAILED_PRECONDITION, f"forwarded {_MOST_HOPS} times: these servers forward to each other in a circle"
        )
    return [*(header for header in _passed(headers) if header[0] != _HOPS), (_HOPS, str(passed))]


@async_block
async def open_forwarder(
    endpoints: str | Sequence[str],
    listen: Sequence[str],
    *,
    upstream_tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    grace: float = 5.0,
    connect_timeout: float = 5.0,
    report: Report | None = None,
    notify: Callable[[object], None] = events.ignore,
    insecure: bool = False,
) -> AsyncIterator[Server]:
    """Open a server that forwards every call, of any service, to other servers::

        async with open_forwarder("10.0.0.1:9000,10.0.0.2:9000", ["127.0.0.1:9000"]) as server:
            print(server.addresses)

    Streams, metadata, deadlines, cancellation and statuses are forwarded. The first call makes the first connection.
    If the upstream can't be reached or the connection to it is lost, the call fails with UNAVAILABLE and a message with
    the address. The outcome of a write is then unknown to the client, as after a lost connection of its own.

    Args:
        endpoints: the addresses of the upstream servers. Any of them can answer any call; if one fails, the next is
            used.
        listen: the addresses. Port 0 picks a free port.
        upstream_tls: the context for the TCP addresses among ``endpoints``, such as `client_tls` makes.
        server_name: the name in the upstream servers' certificates, if it differs from the endpoint's host.
        tls: the context for the TCP addresses among ``listen``, such as `server_tls` makes.
        limits: the limits on clients.
        grace: the seconds that calls get to finish when the block ends. Streams end at once.
        connect_timeout: the timeout in seconds of connecting to one endpoint.
        report: as for `open_server`.
        notify: as for `open_server`.
        insecure: allow forwarding tokens to other hosts over plain TCP. Otherwise a call with a token is rejected with
            FAILED_PRECONDITION if an endpoint is another host and ``upstream_tls`` is not given.

    Raises:
        InvalidArgument: an address is invalid.
        OSError: an address cannot be bound.
    """
    wanted = addresses(endpoints)
    plain_text = None if insecure else plain_text_host(wanted, upstream_tls)

    def failed(path: str, error: BaseException) -> None:
        # No connection is made before the server exists.
        server.report(path, error)

    async def closing(_: Carrier) -> None:
        await pool.close()

    async with open_carrier(failed, closing) as carrier:
        pool = Pool(carrier, wanted, upstream_tls, server_name, UPSTREAM_LIMITS, connect_timeout, failed, patient=False)
        services = Services(otherwise=Forwarder(pool, plain_text).answer)
        async with open_server(
            services, listen, tls=tls, limits=limits, grace=grace, report=report, notify=notify
        ) as server:
            yield server

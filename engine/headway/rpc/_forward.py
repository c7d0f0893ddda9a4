"""A server that answers by asking another one: calls go through as they are, whatever they mean.

Neither services nor messages are known here. Bytes are passed on as they come, and only as fast as who gets them
reads, so that a call takes no more memory than its two windows. What the upstream says is what the client hears. Of
a call that the upstream may have begun nothing is said that could be taken for "it was not done".
"""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import trio
from grpclib import GRPCError
from grpclib.const import Status
from grpclib.exceptions import StreamTerminatedError
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from headway import events
from headway.rpc._addresses import Address, addresses
from headway.rpc._errors import NotBegun
from headway.rpc._frames import LITTLE
from headway.rpc._limits import KIB, Limits
from headway.rpc._loop import Carrier, open_carrier
from headway.rpc._plain_text import has_secret, plain_text_host, readable
from headway.rpc._pool import Pool
from headway.rpc._remote import CHANNEL_LIMITS
from headway.rpc._remote_call import RemoteCall, Unsent
from headway.rpc._server import Server, open_server
from headway.rpc._server_stream import ServerStream
from headway.rpc._services import Services

Report = Callable[[str, BaseException], None]
Headers = list[tuple[str, str]]

UPSTREAM_LIMITS = dataclasses.replace(CHANNEL_LIMITS, stream_window=256 * KIB)
"""What a forwarder accepts from its upstream. A message is as large as the client takes it: none is held here."""

# What belongs to one connection, or is said anew for the next.
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
# How often a call that the upstream certainly has not begun is sent again.
_ATTEMPTS = 3
_PREFIX = 5
# Seconds for which little of a request waits for more of it, where the upstream takes no more small frames.
_PATIENCE = 1.0


class Forwarder:
    """Answers every call by making the same one over the connections of a pool."""

    def __init__(self, pool: Pool, plain_text: Address | None = None) -> None:
        self._pool = pool
        # Another host that is asked over plain TCP, to which no token is passed on.
        self._plain_text = plain_text

    async def answer(self, stream: ServerStream) -> None:
        """A handler for whatever is called."""
        headers = _request_headers(stream.headers)
        if self._plain_text is not None and has_secret(headers):
            remedy = "set the forwarder up with TLS towards its server (--forward-tls), or with --forward-insecure"
            raise GRPCError(Status.FAILED_PRECONDITION, readable("a token", self._plain_text, remedy))
        # Unless the answer shows that it is a stream, in `_pass_data`.
        stream.streaming = False
        deadline = None
        if stream.deadline is not None:
            deadline = trio.current_time() + stream.deadline.time_remaining()
        request = stream.http2.buffer
        # Of most calls the request has come with the headers, and goes on with them.
        first = await request.take() if request.ready else b""
        whole = request.finished
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self._pool.open_call() as call:
                    # Invariant: without it our trailers say that nothing of the call has been done.
                    stream.begun = True
                    await call.begin_raw(stream.path, headers, first, deadline, end=whole)
                    request.done(len(first))
                    await (_pass_reply(stream, call) if whole else _pass_both(stream, call))
                return
            except Unsent as error:
                stream.begun = False
                if attempt == _ATTEMPTS:
                    raise NotBegun(Status.UNAVAILABLE, str(error)) from error
            except NotBegun:
                stream.begun = False
                raise


async def _pass_both(stream: ServerStream, call: RemoteCall) -> None:
    """Pass on the rest of the request, and meanwhile the reply; who has the reply needs no more of the request."""
    failure: Exception | None = None

    async def pass_request() -> None:
        nonlocal failure
        try:
            while data := await _worth_sending(stream, call):
                await call.stream.send_data(data)
                stream.http2.buffer.done(len(data))
            await call.stream.end()
        except (StreamTerminatedError, ProtocolError):
            # One of the two has gone: who passes the reply on sees it too.
            return
        except GRPCError as error:
            # Some of the request was thrown away here: what the upstream has of it must not look like all of it.
            failure = error
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_request)
        try:
            await _pass_reply(stream, call)
        except Unsent:
            # What has been passed on is gone. The client is told, as we were, that nothing of the call has been begun.
            stream.http2.abandon(ErrorCodes.REFUSED_STREAM)
        except (GRPCError, StreamTerminatedError, ProtocolError) as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _worth_sending(stream: ServerStream, call: RemoteCall) -> bytes:
    """Return some of the request. Little of it waits for more while the upstream would end the connection for it."""
    request = stream.http2.buffer
    data = await request.take()
    while data and len(data) < LITTLE and not request.finished and not call.is_solvent:
        with trio.move_on_after(_PATIENCE):
            data += await request.take()
    return data


async def _pass_reply(stream: ServerStream, call: RemoteCall) -> None:
    """Raises a GRPCError for what the upstream didn't say, StreamTerminatedError when the client has gone."""
    head = await call.head()
    headers = [(":status", "200"), *_passed(head)]
    if any(name == "grpc-status" for name, _ in head):
        await stream.send_headers(headers, end=True)
    else:
        answer = call.stream.buffer
        data = await call.data() if answer.ready else None
        if data and answer.finished and call.stream.trailers is not None and stream.http2.hold(headers, data):
            # All of it is there: it goes out in one write.
            data = b""
        else:
            await stream.send_headers(headers)
        await _pass_data(stream, call, data)
        await stream.send_headers(_passed(call.trailers()), end=True)
    # What the client still wanted to send is of no use now.
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
    """Those that the upstream gets. Servers that forward to each other would do so for ever: they count."""
    hops = next((value for name, value in headers if name == _HOPS), "")
    passed = int(hops) + 1 if hops.isascii() and hops.isdigit() and len(hops) < _MOST_HOPS else 1
    if passed > _MOST_HOPS:
        raise GRPCError(
            Status.FAILED_PRECONDITION, f"forwarded {_MOST_HOPS} times: these servers forward to each other in a circle"
        )
    return [*(header for header in _passed(headers) if header[0] != _HOPS), (_HOPS, str(passed))]


@asynccontextmanager
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
    """``async with open_forwarder("10.0.0.1:9000,10.0.0.2:9000", ["127.0.0.1:9000"]) as server: server.addresses``

    A server that answers every call, of whatever service, by what another server answers: streams, metadata,
    deadlines, cancellation and statuses go through. Nothing is connected before the first call. When the upstream
    can't be reached, or the connection to it is lost, the status is UNAVAILABLE, and says which address that is; a
    write whose reply is lost between the two is thus as unknown to a client as one whose reply is lost on its own way.

    Args:
        endpoints: the servers to ask; any of them serves, and the next one is asked when one fails.
        listen: addresses; port 0 takes a free one.
        upstream_tls: for the TCP addresses among ``endpoints``, as `client_tls` makes it.
        server_name: the name that their certificates must have, if it isn't the endpoint's host.
        tls: for the TCP addresses among ``listen``, as `server_tls` makes it.
        limits: what clients are held to.
        grace: seconds that calls have to finish when the block ends; streams end at once.
        connect_timeout: seconds for a connection to one endpoint.
        report, notify: as of `open_server`.
        insecure: pass tokens on to other hosts over plain TCP, too. Otherwise a call that bears one is refused with
            FAILED_PRECONDITION where the server that is asked is another host, and ``upstream_tls`` is not given.

    Raises InvalidArgument for an address that is none, OSError for one that can't be had.
    """
    wanted = addresses(endpoints)
    plain_text = None if insecure else plain_text_host(wanted, upstream_tls)

    def failed(path: str, error: BaseException) -> None:
        # Nothing is carried before the server is there.
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

"""A server of an ASGI application that unauthenticated clients cannot exhaust, because it limits its connections.

Hypercorn implements HTTP. Its public `serve` accepts connections without limit, and its accept loop logs a traceback
for each connection that finds no free file descriptor. This module therefore accepts connections itself, and passes
each to Hypercorn's `TCPServer`, without HTTP/2 (`_http1.py`). The names of Hypercorn that are used are in
`_hypercorn.py`.
"""

from __future__ import annotations

import math
import os
import re
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app

from headway.base import silence_in_forked_child
from headway.http._address import host_and_port
from headway.http._bounds import Bounds
from headway.http._handshake import Input, InputTurns, handshaken
from headway.http._http1 import Http1Server, Turn
from headway.rpc import peer_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Tls = Callable[[], ssl.SSLContext]
"""A function that returns the TLS context of the next connection."""

CLOSE = "headway.close"
"""The extension of ASGI that is a function without arguments, which closes the connection of a request at once."""

# A client that has read nothing of its answer for this many seconds may lose its place to a new one.
_DEAF = 10.0
# The delay, in seconds, before it accepts again when no file descriptor was free.
_PAUSE = 0.1


class HttpServer:
    """A server of an ASGI application for a limited number of connections at once.

    Every connection is accepted. If there are then too many, of the new one's host or in all, one is closed:

    - a connection whose request has not arrived completely: the oldest one of the host that has the most of these;
    - else one whose client has read nothing of its answer for some seconds, chosen in the same way;
    - else, with ``evict_answering``, the oldest;
    - else the new one.

    Before that, of too many connections in their TLS handshake the oldest is closed: of those of the new one's host, or
    in all, of the host that has the most.

    Args:
        app: the application.
        bounds: the limits.
        tls: returns the TLS context for a new connection; None for plain text.
    """

    def __init__(self, app: App, bounds: Bounds, tls: Tls | None = None) -> None:
        self._app = app
        self._bounds = bounds
        self._tls = tls
        self._open: dict[_Connection, None] = {}
        self._turns = InputTurns()
        self._context = WorkerContext(None)
        self._config = Config()
        self._config.errorlog = None
        self._config.include_server_header = False
        self._config.h11_max_incomplete_size = bounds.header_size
        self._config.keep_alive_timeout = bounds.patience

    async def serve(self, listener: trio.SocketListener, ending: trio.Event, grace: float) -> None:
        """Serve until ``ending`` is set, then until everything is answered, for ``grace`` seconds at most."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end, ending, grace)
            async with trio.open_nursery() as handling:
                try:
                    async with trio.open_nursery() as accepting:
                        accepting.start_soon(self._accept, listener, handling)
                        await ending.wait()
                        accepting.cancel_scope.cancel()
                finally:
                    listener.socket.close()
            nursery.cancel_scope.cancel()

    async def _end(self, ending: trio.Event, grace: float) -> None:
        """Close all open connections when the grace period is over, or when this is canceled."""
        try:
            await ending.wait()
            # Hypercorn then closes the idle ones.
            await self._context.terminated.set()
            for connection in [*self._open]:
                if not connection.read:
                    self._close(connection)
            await trio.sleep(grace)
        finally:
            for connection in [*self._open]:
                self._close(connection)

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError:
                # No descriptor is free, or the connection was lost. This is not logged, because clients could then fill
                # the log.
                await trio.sleep(_PAUSE)
                continue
            connection = _Connection(self._app, stream, self._bounds)
            self._open[connection] = None
            connection.handshaking = self._tls is not None
            self._end_handshakes(connection.host)
            if self._make_room(connection.host):
                nursery.start_soon(self._run, connection)
            if self._bounds.evict_answering and len(self._open) >= self._bounds.connections:
                # Few are open, so a flood would close each before its request is read: the next one waits for that.
                await self._turns.take(listener)

    def _end_handshakes(self, host: str) -> None:
        """Close a connection in its handshake if a new one of this host is one too many of them."""
        *others, _ = self._open
        among = [each for each in others if each.handshaking]
        of_host = [each for each in among if each.host == host]
        if len(of_host) >= self._bounds.peer_handshakes:
            self._close(of_host[0])
        elif len(among) >= self._bounds.handshakes and (chosen := _oldest_of_most(among)) is not None:
            self._close(chosen)

    def _make_room(self, host: str) -> bool:
        """Close a connection if a new one of this host is one too many. Return False if the new one was closed."""
        # The dict has the oldest first, and the new connection last.
        of_host = [each for each in self._open if each.host == host]
        if len(of_host) > self._bounds.peer_connections:
            among = of_host
        elif len(self._open) > self._bounds.connections:
            among = [*self._open]
        else:
            return True
        now = trio.current_time()
        *others, new = among
        chosen = _oldest_of_most([each for each in others if each.answering_until <= now])
        if chosen is None:
            chosen = _oldest_of_most([each for each in others if each.sending_since <= now - _DEAF])
        if chosen is None:
            # Without others, the limit is below 1.
            chosen = others[0] if others and self._bounds.evict_answering else new
        self._close(chosen)
        return chosen is not new

    async def _run(self, connection: _Connection) -> None:
        async def turn() -> None:
            await self._turns.take((connection.host, connection.begun), first=not connection.begun)

        try:
            with connection.scope:
                with trio.fail_after(self._bounds.patience if self._tls is None else self._bounds.handshake):
                    await trio.lowlevel.wait_readable(connection.stream.socket)
                await turn()
                await self._served(connection, turn)
        except* Exception:  # noqa: BLE001
            # Some bytes make Hypercorn raise, such as a request in a WebSocket. This must only end their connection.
            pass
        finally:
            self._close(connection)

    async def _served(self, connection: _Connection, turn: Turn) -> None:
        app = wrap_app(connection, self._config.wsgi_max_body_size, "asgi")  # type: ignore[arg-type]  # its own types of ASGI's messages
        connection.read = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._close_late, connection)
            stream: Any = Input(connection.stream, turn)
            if self._tls is not None:
                # Hypercorn finds it finished.
                stream = await handshaken(stream, self._tls(), self._bounds)
                connection.handshaking = False
            server = Http1Server(app, self._config, self._context, ConnectionState({}), stream, turn=turn)
            connection.ask_for_content = server.ask_for_content
            await server
            nursery.cancel_scope.cancel()

    async def _close_late(self, connection: _Connection) -> None:
        """Close the connection when its time is over."""
        with connection.time:
            await trio.sleep_forever()
        self._close(connection)

    def _close(self, connection: _Connection) -> None:
        # Hypercorn shields its sends from cancellation, so the socket must be closed as well.
        connection.stream.socket.close()
        connection.scope.cancel()
        self._open.pop(connection, None)


class _Connection:
    """A connection, and the application that answers it.

    Attributes:
        host: the peer, as limits count it.
        handshaking: True until its TLS handshake is finished.
        read: True once its input is read.
        begun: True once the head of a request has arrived.
        answering_until: the time until which it is protected from a newer one. It is in the past while no request, or
            only a part of one, has arrived.
        ask_for_content: tells a client that waits for that to send the content of its request.
        sending_since: the time since which the client has not read what is being sent to it; infinity if nothing is.
    """

    def __init__(self, app: App, stream: trio.SocketStream, bounds: Bounds) -> None:
        self.stream = stream
        silence_in_forked_child(stream.socket)
        self.host = _host(stream)
        self.handshaking = False
        self.read = False
        self.begun = False
        self.ask_for_content = trio.lowlevel.checkpoint
        self.scope = trio.CancelScope()
        self.time = trio.CancelScope(deadline=trio.current_time() + bounds.patience)
        self.answering_until = -math.inf
        self.sending_since = math.inf
        self._answers = 0
        self._sends = 0
        self._answers_began = -math.inf
        self._answers_end = math.inf
        self._app = app
        self._bounds = bounds

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI application."""

        waits = _waits(scope)

        async def receive_all() -> Message:
            nonlocal waits
            if waits:
                waits = False
                await self.ask_for_content()
            message = await receive()
            if not message.get("more_body"):
                self._protect()
            return message

        async def send_in_time(message: Message) -> None:
            if waits and message["type"] == "http.response.start":
                # The content does not come, so no other request can follow.
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            with self._sending():
                await send(message)

        scope.setdefault("extensions", {})[CLOSE] = self.time.cancel
        now = trio.current_time()
        if not self._answers:
            self.time.deadline = self._answers_end = now + self._bounds.answer
            self._answers_began = now
        self._answers += 1
        self.begun = True
        if not _has_body(scope):
            self._protect()
        try:
            await self._app(with_target(scope), receive_all, send_in_time)
        finally:
            self._answers -= 1
            if not self._answers:
                self.answering_until = -math.inf
                self.time.deadline = trio.current_time() + self._bounds.patience

    def _protect(self) -> None:
        """Protect the connection from newer ones, because its request has arrived and is being answered."""
        if self._answers:
            # Pages do so only for as long as an honest client needs to read an answer.
            limit = self._bounds.patience if self._bounds.evict_answering else math.inf
            self.answering_until = self._answers_began + limit

    @contextmanager
    def _sending(self) -> Iterator[None]:
        """Close the connection if the client does not read in time what is sent during the block."""
        # Hypercorn shields its sends from cancellation, so the deadline is the connection's own.
        if not self._sends:
            self.sending_since = trio.current_time()
        self._sends += 1
        self.time.deadline = min(self._answers_end, trio.current_time() + self._bounds.stall)
        try:
            yield
        finally:
            self._sends -= 1
            # Something of the answer has been read.
            self.sending_since = trio.current_time() if self._sends else math.inf
            if not self._sends:
                self.time.deadline = self._answers_end


def _host(stream: trio.SocketStream) -> str:
    try:
        return peer_of(stream.socket.getpeername())
    except OSError:
        # It has left already.
        return ""


def _has_body(scope: Message) -> bool:
    """Return True if more than the head of a request has to arrive."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
        for name, value in scope.get("headers", ())
    )


def _waits(scope: Message) -> bool:
    """Return True if the client sends the content of its request when it is told to."""
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in scope.get("headers", ()))


def _oldest_of_most(among: Sequence[_Connection]) -> _Connection | None:
    """Return the first connection of the host that has the most of them, or None."""
    if not among:
        return None
    [(host, _)] = Counter(each.host for each in among).most_common(1)
    return next(each for each in among if each.host == host)


def listener(address: str) -> socket.socket:
    """Return a socket that listens at ``HOST:PORT``. Raises InvalidArgument and OSError."""
    host, port = host_and_port(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Surplus connections wait in the kernel, where they need no file descriptor. A client that is turned away would
    # retry only after a second.
    try:
        listening = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        # Python adds to the text of the system.
        why = error.strerror if error.errno is None else os.strerror(error.errno)
        raise OSError(error.errno, f"cannot listen on {address}: {why}") from error
    silence_in_forked_child(listening)
    return listening


def listening_at(bound: socket.socket) -> str:
    """Return the address of a listening socket, with its actual port."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# A client of a proxy names the whole address (RFC 9112, section 3.2.2).
_ABSOLUTE = re.compile(rb"https?://([^/]*)(.*)", re.IGNORECASE | re.DOTALL)


def with_target(scope: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return the scope of a request whose path is as the client has sent it, without a scheme and a host.

    Hypercorn decodes the path. Two targets would then be one path, such as ``/a%2fb`` and ``/a/b``, and a rule of a
    proxy in front of the server would miss one of them. The parts of a target that may be encoded are decoded when they
    have been found.

    A host in the target takes the place of the header, as RFC 9112 requires.
    """
    raw: bytes = scope["raw_path"]
    headers = scope["headers"]
    if (absolute := _ABSOLUTE.match(raw)) is not None:
        host, raw = absolute[1], absolute[2] or b"/"
        headers = [(b"host", host), *((name, value) for name, value in headers if name != b"host")]
    return {**scope, "path": raw.decode("ascii"), "raw_path": raw, "headers": headers}

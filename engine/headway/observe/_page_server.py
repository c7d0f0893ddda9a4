"""A server of pages over HTTP that unauthenticated clients cannot exhaust, because it limits its connections.

Hypercorn implements HTTP. Its public `serve` accepts connections without limit, and its accept loop logs a traceback
for each connection for which no file descriptor is free. This module therefore accepts connections itself, and passes
each to Hypercorn's `TCPServer`. The names of Hypercorn that it uses are in tests/observe/test_private_names.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

# Half of the 32 or more file descriptors that the network leaves to the rest of the process.
CONNECTIONS = 16
# The time, in seconds, for each request to arrive. An answer in progress protects its connection for as long.
_PATIENCE = 5.0
# The number of such periods that a connection may have answers in progress. Otherwise a peer that reads no answer,
# or that has asked for another protocol, would keep its place forever.
_ANSWERS = 2
# The delay, in seconds, before it accepts again when no file descriptor was free.
_PAUSE = 0.1


class PageServer:
    """A server of an ASGI application for at most ``connections`` connections at once.

    A new connection is always accepted. If there are too many, the oldest that is not being answered is closed, or the
    oldest if all are. A connection without a request for ``patience`` seconds is closed, and so is one with answers in
    progress for twice as long without a pause.
    """

    def __init__(self, app: App, connections: int = CONNECTIONS, patience: float = _PATIENCE) -> None:
        self._app = app
        self._connections = connections
        self._patience = patience
        self._open: dict[_Connection, None] = {}
        self._context = WorkerContext(None)
        self._config = Config()
        self._config.errorlog = None

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
            if len(self._open) >= self._connections:
                now = trio.current_time()
                # The dict has the oldest first, and `min` returns the first.
                self._close(min(self._open, key=lambda each: each.answering_until > now))
            connection = _Connection(self._app, stream, self._patience)
            self._open[connection] = None
            nursery.start_soon(self._run, connection)

    async def _run(self, connection: _Connection) -> None:
        app = wrap_app(connection, self._config.wsgi_max_body_size, "asgi")  # type: ignore[arg-type]  # its own types of ASGI's messages
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._close_late, connection)
                with connection.scope:
                    await TCPServer(app, self._config, self._context, ConnectionState({}), connection.stream)  # type: ignore[arg-type]  # it says SSLStream, and takes both
                nursery.cancel_scope.cancel()
        except* Exception:  # noqa: BLE001
            # Some bytes make Hypercorn raise, such as a request in a WebSocket. This must only end their connection.
            pass
        finally:
            self._close(connection)

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
    """A connection, and the application that answers it."""

    def __init__(self, app: App, stream: trio.SocketStream, patience: float) -> None:
        self.stream = stream
        self.scope = trio.CancelScope()
        self.time = trio.CancelScope(deadline=trio.current_time() + patience)
        self.answering_until = 0.0
        self._answers = 0
        self._app = app
        self._patience = patience

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI application."""
        now = trio.current_time()
        if not self._answers:
            self.time.deadline = now + self._patience * _ANSWERS
        self._answers += 1
        self.answering_until = now + self._patience
        try:
            await self._app(scope, receive, send)
        finally:
            self._answers -= 1
            if not self._answers:
                self.answering_until = 0.0
                self.time.deadline = trio.current_time() + self._patience

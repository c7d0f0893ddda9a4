"""A server of pages over HTTP that strangers cannot fill: it keeps few connections at once.

Hypercorn speaks HTTP. Its public `serve` accepts without a bound, and its accept loop logs a traceback for each
connection that it gets no descriptor for. So this module accepts, and hands each connection to Hypercorn's `TCPServer`.
tests/observe/test_private_names.py has the names of Hypercorn that this uses.
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

# Half of the 32 descriptors that the network leaves, at least, to the rest of the process.
CONNECTIONS = 16
# Seconds for a request to come, the next one too; and for which an answer under way protects its connection.
_PATIENCE = 5.0
# How many times as long all answers under way may take. A peer that takes none, or that has asked for another protocol,
# would otherwise hold its place for good.
_ANSWERS = 2
# Seconds until it accepts again after it got no descriptor.
_PAUSE = 0.1


class PageServer:
    """Serves an ASGI application to at most ``connections`` at once.

    A new connection is always accepted. One too many closes the oldest that is not being answered, or the oldest if
    all are. A connection on which no request comes for ``patience`` seconds is closed, and so is one on which answers
    are under way for twice as long without a pause.
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
        """Serve until ``ending`` is set, then until all is answered, for ``grace`` seconds at most."""
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
        """Close what is still open when the grace is over, or when this is canceled."""
        try:
            await ending.wait()
            # Hypercorn closes the idle ones then.
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
                # No descriptor is free, or the connection was lost. Nothing logs it: strangers could fill the log.
                await trio.sleep(_PAUSE)
                continue
            if len(self._open) >= self._connections:
                now = trio.current_time()
                # The dict has the oldest first, and `min` takes the first.
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
            # Some bytes make Hypercorn raise, such as a request in a WebSocket. They may end their connection alone.
            pass
        finally:
            self._close(connection)

    async def _close_late(self, connection: _Connection) -> None:
        """Close the connection when its time is over."""
        with connection.time:
            await trio.sleep_forever()
        self._close(connection)

    def _close(self, connection: _Connection) -> None:
        # Hypercorn shields what it sends from being canceled, so the socket must be closed, too.
        connection.stream.socket.close()
        connection.scope.cancel()
        self._open.pop(connection, None)


class _Connection:
    """One connection, and the application that answers it."""

    def __init__(self, app: App, stream: trio.SocketStream, patience: float) -> None:
        self.stream = stream
        self.scope = trio.CancelScope()
        self.time = trio.CancelScope(deadline=trio.current_time() + patience)
        self.answering_until = 0.0
        self._answers = 0
        self._app = app
        self._patience = patience

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """See ASGI's specification."""
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

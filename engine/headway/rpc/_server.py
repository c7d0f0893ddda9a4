"""A gRPC server on Trio: TCP and Unix sockets, TLS, limits, and an end that clients can resume from."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from headway import events
from headway._bounded_report import BoundedReport
from headway.rpc._addresses import Address, address
from headway.rpc._budget import Budget
from headway.rpc._calls import Calls
from headway.rpc._limits import Limits
from headway.rpc._loop import Carrier, open_carrier
from headway.rpc._protocol import Http2Protocol
from headway.rpc._services import Services
from headway.rpc._tls import speaking_http2

Report = Callable[[str, BaseException], None]

_BACKLOG = 1024
_LISTEN_TIMEOUT = 30.0
# Seconds for calls to be told that they have ended, once the grace has passed, and then for clients to read it.
_LAST_WORDS = 1.0


def _ignore(path: str, error: BaseException) -> None:
    """Report to nobody."""


class Server:
    """A server that listens. Made by `open_server`.

    Attributes:
        addresses: where it listens, with the ports that it was given.
    """

    def __init__(self, services: Services, limits: Limits, report: Report, grace: float, notify: BoundedReport) -> None:
        self.addresses: list[str] = []
        self._services = services
        self._limits = limits
        self._report = report
        self._notify = notify
        # Held by the connection that goes on with what it has been sent.
        self._turn = trio.Lock()
        self._grace = grace
        self._listeners: list[asyncio.Server] = []
        self._paths: list[str] = []
        # A message of the greatest size must have room in them.
        self._least_budget = 2 * limits.message_size
        self._budget = Budget(max(limits.server_requests_size, self._least_budget))
        self._connections: dict[Http2Protocol, Calls] = {}
        self._changed = trio.Event()
        self._stopping = False

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def listen(self, carrier: Carrier, where: Address, tls: ssl.SSLContext | None) -> None:
        """Begin to listen. Raises OSError when the address can't be had."""
        loop, factory = carrier.loop, functools.partial(self._protocol, carrier.nursery)
        options: dict[str, Any] = {"ssl": tls, "backlog": _BACKLOG}
        if tls is not None:
            options["ssl_handshake_timeout"] = self._limits.handshake_timeout
        if where.path:
            listener = await loop.run_aio_coroutine(loop.create_unix_server(factory, where.path, **options))
            self._paths.append(where.path)
            self.addresses.append(str(where))
        else:
            listener = await loop.run_aio_coroutine(loop.create_server(factory, where.host, where.port, **options))
            for socket in listener.sockets:
                host, port, *_ = socket.getsockname()
                self.addresses.append(str(Address(host, port, "")))
        self._listeners.append(listener)

    async def stop(self, carrier: Carrier) -> None:
        """Take no more calls, end the streams, let the other calls finish within the grace."""
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)
        with trio.move_on_after(self._grace):
            for calls in self._connections.values():
                calls.stop()
            await self._until(lambda: not any(self._connections.values()))
        await self._end_connections()
        await carrier.loop.synchronize()

    async def _end_connections(self) -> None:
        for calls in self._connections.values():
            calls.stop(unary=True)
        with trio.move_on_after(_LAST_WORDS):
            await self._until(lambda: not any(self._connections.values()))
        for protocol in list(self._connections):
            protocol.say_goodbye()
            protocol.processor.close("the server has stopped")
        with trio.move_on_after(_LAST_WORDS):
            # Until the clients have read it all and closed, too.
            await self._until(lambda: not self._connections)
        for protocol in list(self._connections):
            protocol.give_up()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed = trio.Event()
            await self._changed.wait()

    def _protocol(self, nursery: trio.Nursery) -> Http2Protocol:
        calls = Calls(nursery, self._services, self._limits, self._report, self._wake)
        return Http2Protocol(
            calls,
            self._limits,
            nursery=nursery,
            turn=self._turn,
            client_side=False,
            started=functools.partial(self._started, nursery),
            ended=self._ended,
            report=self._report,
            notify=self._notify,
            budget=Budget(max(self._limits.requests_size, self._least_budget), self._budget),
            accepts=None if self._services.forwards else self._limits.message_size,
        )

    def _started(self, nursery: trio.Nursery, protocol: Http2Protocol) -> None:
        if self._stopping or len(self._connections) >= self._limits.connections:
            protocol.give_up()
            return
        handler = protocol.handler
        assert isinstance(handler, Calls)
        self._connections[protocol] = handler
        nursery.start_soon(protocol.keep_alive, name="rpc connection")

    def _ended(self, protocol: Http2Protocol) -> None:
        self._connections.pop(protocol, None)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()


@asynccontextmanager
async def open_server(
    services: Services,
    listen: Sequence[str],
    *,
    tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    grace: float = 5.0,
    report: Report = _ignore,
    notify: events.Report = events.ignore,
) -> AsyncIterator[Server]:
    """``async with open_server(services, ["127.0.0.1:0", "unix:/run/headway.sock"]) as server: server.addresses``

    When the block ends, the server takes no more calls, ends the streams with UNAVAILABLE, from which a client
    resumes, and gives the other calls ``grace`` seconds to finish.

    Args:
        listen: addresses; port 0 takes a free one.
        tls: for the TCP addresses, as `server_tls` makes it. A Unix socket is guarded by its file's permissions.
        limits: what clients are held to.
        report: hears, with the method's path, of handlers that raised something unexpected.
        notify: is called with the events of `headway.events` that peers cause, each kind at most once a second.

    Raises InvalidArgument for an address that is none, OSError for one that can't be had.
    """
    wanted = [address(each) for each in listen]
    if tls is not None:
        speaking_http2(tls)
    server = Server(services, limits or Limits(), report, grace, BoundedReport(notify))
    async with open_carrier(report, server.stop) as carrier:
        with trio.fail_after(_LISTEN_TIMEOUT):
            for each in wanted:
                await server.listen(carrier, each, None if each.path else tls)
        yield server

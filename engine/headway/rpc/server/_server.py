"""A gRPC server on Trio: TCP and Unix sockets, TLS, limits, and a graceful shutdown."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from headway import events
from headway.base import BoundedReport, safe_report
from headway.events import CertificateRefused, CertificateRenewed, ConnectionRefused, HandlerFailed
from headway.rpc._addresses import Address, address, named
from headway.rpc._admission import Admission, Visitor, peer_of
from headway.rpc._channel import Report
from headway.rpc._limits import Budget, Limits
from headway.rpc._loop import Carrier, open_carrier
from headway.rpc._services import Services
from headway.rpc._system import MemoryReturn, accept, bind, free_descriptors, is_scarce
from headway.rpc._tls import ServerTls, speaking_http2
from headway.rpc.http2 import Http2Protocol
from headway.rpc.server._calls import Calls, StreamEnds
from headway.rpc.server._tls_protocol import READ_AT_ONCE, TlsProtocol
from headway.rpc.server._transport import Outbox, SocketTransport

_BACKLOG = 1024
_LISTEN_TIMEOUT = 30.0
# After the grace period: seconds to send the calls' final statuses, and then as long again for clients to read them.
_FINAL_TIMEOUT = 1.0
# The share of an unfinished request's memory that is its bytes. Python's objects, the allocator and the frame reader
# take the rest: in a test with 60 connections, each sending 32 MiB, they took a sixteenth more.
_BYTES_SHARE = 7 / 8
# In bytes: the memory of a connection in its TLS handshake, the memory of an idle connection (both measured), and the
# least amount of freed memory that is worth returning to the system.
_HANDSHAKE, _CONNECTION, _WORTH = 64 << 10, 28 << 10, 4 << 20


def _nothing(_: str) -> None:
    """Do nothing, because the connection is already closed."""


class Server:
    """A listening server. Create it with `open_server`.

    Attributes:
        addresses: the addresses that it listens on, with their actual ports.
    """

    def __init__(
        self,
        services: Services,
        limits: Limits,
        report: Report | None,
        grace: float,
        notify: events.Report,
        replies: Budget | None = None,
    ) -> None:
        self.addresses: list[str] = []
        self._services = services
        self._limits = limits
        self._report = report or self._failed
        self._notify_each = notify
        self._notify = BoundedReport(notify)
        # Held by a connection while it handles leftover frames, and by a call while it decodes a large request.
        self._turn = trio.Lock()
        self._grace = grace
        self._accepting: list[trio.CancelScope] = []
        # The files of Unix sockets. Another server may have put its own in the place of one.
        self._files: dict[str, os.stat_result] = {}
        # A budget must have room for a message of the maximum size.
        self._least_budget = 2 * limits.message_size
        self._budget = Budget(max(int(limits.server_requests_size * _BYTES_SHARE), self._least_budget))
        self._admission = Admission(limits, free_descriptors())
        # Set when a connection arrives while no other one is in its handshake.
        self._handshake_begun = trio.Event()
        self._buffer = bytearray(READ_AT_ONCE)
        self._outbox = Outbox()
        self._stream_ends = StreamEnds()
        self._memory = MemoryReturn(_WORTH)
        self._replies = replies or Budget(limits.server_replies_size, freed=self._memory.freed)
        self._connections: dict[Http2Protocol, Calls] = {}
        self._changed = trio.Event()
        self._stopping = False

    @property
    def connections(self) -> int:
        """The number of open connections, without those in their TLS handshake."""
        return len(self._connections)

    def report(self, path: str, error: BaseException) -> None:
        """Report a handler that raised an unexpected exception."""
        self._report(path, error)

    def _failed(self, path: str, error: BaseException) -> None:
        # Bounded, because a client could otherwise fill the log by calling a failing method.
        self._notify(HandlerFailed, path=path, error=error)

    async def listen(self, carrier: Carrier, where: Address, tls: ssl.SSLContext | None, *, share: bool) -> None:
        """Start to listen.

        Raises:
            OSError: the address cannot be bound.
        """
        listeners = await bind(where, _BACKLOG, share=share)
        if where.path:
            self._files[where.path] = os.stat(where.path)
            self.addresses.append(str(where))
        else:
            for each in listeners:
                host, port, *_ = each.getsockname()
                self.addresses.append(str(Address(host, port, "")))
        for each in listeners:
            carrier.nursery.start_soon(self._accept, carrier, each, tls, name="rpc listener")

    async def _accept(self, carrier: Carrier, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        # The listener must not be closed while the task waits for it.
        with listener, trio.CancelScope() as scope:
            self._accepting.append(scope)
            accepted = functools.partial(self._accepted, carrier, tls)
            await accept(listener, accepted, self._starved, carrier.loop.synchronize)

    def _starved(self, error: OSError) -> None:
        """Make room after the process ran out of descriptors or memory for a new connection."""
        self._admission.make_room()
        self._notify(ConnectionRefused, peer="", why=f"no connection could be accepted: {error.strerror}")

    def _accepted(
        self, carrier: Carrier, tls: ssl.SSLContext | None, connection: socket.socket, address: object
    ) -> None:
        """Serve a new connection, unless there are too many."""
        visitor = Visitor(peer_of(address), trio.current_time(), lambda _: connection.close())
        why = self._admission.enter(visitor, scarce=is_scarce(connection.fileno()))
        if why:
            connection.close()
            self._notify(ConnectionRefused, peer=named(address), why=why)
            return
        calls = self._calls(carrier.nursery, visitor)
        protocol = self._protocol(carrier.nursery, visitor, calls)
        beneath: Any = protocol
        if tls is not None:
            beneath = TlsProtocol(
                carrier.loop,
                protocol,
                tls,
                self._certificate(tls),
                handshake_size=self._limits.wire.handshake_size,
                handshake_timeout=self._limits.handshake_timeout,
                buffer=self._buffer,
                lost=functools.partial(self._lost, visitor),
            )
        transport = SocketTransport(
            connection,
            beneath,
            address,
            self._outbox,
            carrier.nursery,
            self._report,
            read_at_once=READ_AT_ONCE,
            lead=calls.lead,
        )
        carrier.nursery.start_soon(transport.run, name="rpc socket")

        def end(why: str) -> None:
            if protocol in self._connections:
                protocol.send_goaway()
            transport.abort()
            if not self._stopping:
                self._notify(ConnectionRefused, peer=named(address), why=why)

        visitor.end = end
        self._handshake_begun.set()

    def _certificate(self, tls: ssl.SSLContext) -> ssl.SSLContext:
        """Return the context with the certificate that is on disk now."""
        if not isinstance(tls, ServerTls):
            return tls
        try:
            if tls.follow():
                self._notify_each(CertificateRenewed(tls.certificate))
        except OSError as error:
            self._notify_each(CertificateRefused(tls.certificate, error))
        return tls.current

    def start(self, nursery: trio.Nursery) -> None:
        """Start the background tasks."""
        nursery.start_soon(self._end_late, name="rpc handshakes")
        nursery.start_soon(self._memory.run, name="rpc memory")
        nursery.start_soon(self._outbox.run, name="rpc outbox")
        nursery.start_soon(self._notify.report_rest, name="rpc reports")

    async def _end_late(self) -> None:
        """Close connections whose handshake takes too long, until canceled."""
        patience = self._limits.handshake_timeout
        why = f"the handshake was not finished within {patience:g} s"
        while True:
            late = self._admission.next_late
            if late is None:
                self._handshake_begun = trio.Event()
                await self._handshake_begun.wait()
            else:
                await trio.sleep_until(late.since + patience)
                self._admission.end_late(trio.current_time() - patience, why)

    async def stop(self, carrier: Carrier) -> None:
        """Accept no more calls, end the streams, and let the other calls finish within the grace period."""
        self._stopping = True
        for scope in self._accepting:
            scope.cancel()
        for path, own in self._files.items():
            with contextlib.suppress(OSError):
                if os.path.samestat(own, os.stat(path)):
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
        with trio.move_on_after(_FINAL_TIMEOUT):
            await self._until(lambda: not any(self._connections.values()))
        for protocol in list(self._connections):
            protocol.send_goaway()
            protocol.processor.close("the server has stopped")
        self._admission.end_late(trio.current_time(), "the server has stopped")
        with trio.move_on_after(_FINAL_TIMEOUT):
            # Wait until the clients have read everything and closed their connections.
            await self._until(lambda: not self._connections)
        for protocol in list(self._connections):
            protocol.abort()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed = trio.Event()
            await self._changed.wait()

    def _calls(self, nursery: trio.Nursery, visitor: Visitor) -> Calls:
        return Calls(
            nursery,
            self._services,
            self._limits,
            self._report,
            begun=functools.partial(self._admission.begin_call, visitor),
            ended=functools.partial(self._call_ended, visitor),
            turn=self._turn,
            replies=Budget(self._limits.wire.replies_size, self._replies),
            stream_ends=self._stream_ends,
        )

    def _protocol(self, nursery: trio.Nursery, visitor: Visitor, calls: Calls) -> Http2Protocol:
        return Http2Protocol(
            calls,
            self._limits,
            nursery=nursery,
            turn=self._turn,
            client_side=False,
            started=functools.partial(self._started, nursery),
            ended=functools.partial(self._ended, visitor),
            report=self._report,
            notify=self._notify,
            budget=Budget(max(self._limits.wire.requests_size, self._least_budget), self._budget),
            accepts=None if self._services.forwards else self._limits.message_size,
            established=functools.partial(self._admission.establish, visitor),
            start=calls.start,
        )

    def _started(self, nursery: trio.Nursery, protocol: Http2Protocol) -> None:
        if self._stopping:
            protocol.abort()
            return
        handler = protocol.handler
        assert isinstance(handler, Calls)
        self._connections[protocol] = handler
        nursery.start_soon(protocol.keep_alive, name="rpc connection")

    def _ended(self, visitor: Visitor, protocol: Http2Protocol) -> None:
        self._lost(visitor)
        budget = protocol.connection.budget if hasattr(protocol, "connection") else None
        # The calls hold their requests a little longer, until they end.
        self._memory.freed(_CONNECTION + (0 if budget is None else budget.taken))
        self._connections.pop(protocol, None)
        self._changed.set()

    def _lost(self, visitor: Visitor) -> None:
        if not visitor.established:
            self._memory.freed(_HANDSHAKE)
        self._admission.leave(visitor)
        # Break the reference cycle between connection and visitor, so that both are freed immediately.
        visitor.end = _nothing

    def _call_ended(self, visitor: Visitor) -> None:
        self._admission.end_call(visitor)
        self._changed.set()


@asynccontextmanager
async def open_server(
    services: Services,
    listen: Sequence[str],
    *,
    tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    grace: float = 5.0,
    report: Report | None = None,
    notify: events.Report = events.ignore,
    share_ports: bool = False,
    replies: Budget | None = None,
) -> AsyncIterator[Server]:
    """Open a server that listens on the given addresses::

        async with open_server(services, ["127.0.0.1:0", "unix:/run/headway.sock"]) as server:
            print(server.addresses)

    When the block ends, the server accepts no more calls. It ends the streams with UNAVAILABLE, so that clients resume
    them elsewhere, and gives the other calls ``grace`` seconds to finish.

    Args:
        services: the services to serve.
        listen: the addresses. Port 0 picks a free port.
        tls: the context for the TCP addresses. If `server_tls` made it, a certificate that is renewed on disk is used
            without a restart. Unix sockets don't use TLS; the permissions of their files protect them.
        limits: the limits on clients.
        grace: the seconds that unary calls get to finish.
        report: called with the method's path and the error when a handler raises an unexpected exception. By default
            it becomes a `HandlerFailed` event.
        notify: called with the events of `headway.events` that peers cause, at most once a second for each kind.
        share_ports: let other processes of the user listen on the same TCP ports (SO_REUSEPORT). Linux then spreads new
            connections over them.
        replies: the budget for replies that wait for their clients, if others in the process share it. By default it is
            this server's own, of ``limits.server_replies_size``.

    Raises:
        InvalidArgument: an address is invalid.
        OSError: an address cannot be bound.
    """
    wanted = [address(each) for each in listen]
    if tls is not None:
        speaking_http2(tls)
    failed = None if report is None else safe_report(report)
    server = Server(services, limits or Limits(), failed, grace, safe_report(notify), replies)
    async with open_carrier(server.report, server.stop) as carrier:
        with trio.fail_after(_LISTEN_TIMEOUT):
            for each in wanted:
                await server.listen(carrier, each, None if each.path else tls, share=share_ports)
        server.start(carrier.nursery)
        yield server

"""UDP and TCP. Each client costs a bounded time, size and number of connections.

| limit | value |
| --- | --- |
| connections over TCP | `CONNECTIONS`; a further one takes the place of the one that was silent for longest |
| silence on a connection, and the time for a whole query or answer | `IDLE` seconds |
| life of a connection | `LIFE` seconds |
| a query over TCP | `LARGEST_QUERY` bytes |
"""

from __future__ import annotations

import ipaddress
import math
import socket
import sys
import traceback
from contextlib import suppress
from typing import NamedTuple

import trio

from catalog.dns.packets import LARGEST_QUERY, Responder, failure

CONNECTIONS, IDLE, LIFE = 128, 5.0, 60.0

_TURN = 64
"""The packets that are answered before other tasks have their turn."""
_LARGEST_PACKET = 65_535
_TRIES = 20
_BETWEEN_REPORTS, _SHOWN = 10.0, 600
"""The seconds between two reports of queries that failed, and the bytes of the query in one."""


class Listening(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


class DNSServer:
    """Answers DNS queries over UDP and TCP, on one port of one address."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        # The connections over TCP, the one that was silent for longest first.
        self._connections: dict[trio.CancelScope, None] = {}
        self._reported_at = -math.inf

    async def run(
        self, host: str, port: int, *, task_status: trio.TaskStatus[Listening] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until canceled.

        Args:
            host: an IP address.
            port: the port; 0 for a free one.

        Raises:
            ValueError: the host is not an IP address, or the port is not from 0 to 65535.
            OSError: the address cannot be bound.
        """
        listener, udp = await _bind(host, port)
        where = Listening(host, listener.socket.getsockname()[1])
        with udp:
            async with listener, trio.open_nursery() as nursery:
                nursery.start_soon(self._serve_udp, udp, name="DNS over UDP")
                nursery.start_soon(self._serve_tcp, listener, nursery, name="DNS over TCP")
                task_status.started(where)

    def _answer(self, packet: bytes, *, tcp: bool = False) -> bytes | None:
        try:
            return self._responder.answer(packet, tcp=tcp)
        except Exception:  # noqa: BLE001  # one packet must not end the answers to all others
            # A mistake in the program. Whoever found a packet that meets it may send many.
            now = trio.current_time()
            if now - self._reported_at >= _BETWEEN_REPORTS:
                self._reported_at = now
                print(f"a query of {len(packet)} bytes failed: {packet[:_SHOWN].hex()}", file=sys.stderr)
                traceback.print_exc()
            return failure(packet)

    # --- UDP ---

    async def _serve_udp(self, udp: socket.socket) -> None:
        while True:
            await trio.lowlevel.wait_readable(udp)
            # Many at once: waiting costs more than an answer.
            for _ in range(_TURN):
                try:
                    packet, sender = udp.recvfrom(_LARGEST_PACKET)
                except BlockingIOError:
                    break
                except OSError:
                    continue
                answer = self._answer(packet)
                if answer is not None:
                    # The sender is whatever the packet says, such as port 0. If the buffer is full, it asks again.
                    with suppress(OSError):
                        udp.sendto(answer, sender)

    # --- TCP ---

    async def _serve_tcp(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError:
                # No descriptor is left, or the client is gone.
                self._close_oldest()
                await trio.sleep(0.01)
                continue
            if len(self._connections) >= CONNECTIONS:
                self._close_oldest()
            scope = trio.CancelScope(deadline=trio.current_time() + LIFE)
            self._connections[scope] = None
            nursery.start_soon(self._serve_connection, stream, scope)

    def _close_oldest(self) -> None:
        oldest = next(iter(self._connections), None)
        if oldest is not None:
            del self._connections[oldest]
            oldest.cancel()

    async def _serve_connection(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            with scope, suppress(trio.BrokenResourceError):
                async with stream:
                    await self._serve_queries(stream, scope)
        finally:
            self._connections.pop(scope, None)

    async def _serve_queries(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        received = bytearray()
        while True:
            with trio.move_on_after(IDLE) as patience:
                query = await _read_query(stream, received)
                if query is None:
                    return
                answer = self._answer(query, tcp=True)
                if answer is None:
                    return
                await stream.send_all(len(answer).to_bytes(2, "big") + answer)
            if patience.cancelled_caught:
                return
            if scope in self._connections:
                # It is now the one that was silent for the shortest time.
                self._connections[scope] = self._connections.pop(scope)


async def _read_query(stream: trio.SocketStream, received: bytearray) -> bytes | None:
    """Return the next query; None at the end and for one that is too large. The rest stays in ``received``."""
    while True:
        if len(received) >= 2:
            size = int.from_bytes(received[:2], "big")
            if size > LARGEST_QUERY:
                return None
            if len(received) >= 2 + size:
                query = bytes(received[2 : 2 + size])
                del received[: 2 + size]
                return query
        piece = await stream.receive_some(2 + LARGEST_QUERY)
        if not piece:
            return None
        received += piece


async def _bind(host: str, port: int) -> tuple[trio.SocketListener, socket.socket]:
    """Bind one port for TCP and UDP."""
    # The system would bind another port, without a word.
    if not 0 <= port <= 65_535:
        raise ValueError(f"port {port} does not exist: use one from 1 to 65535, or 0 for a free one")
    for left in reversed(range(_TRIES)):
        [listener] = await trio.open_tcp_listeners(port, host=str(ipaddress.ip_address(host)))
        udp = socket.socket(listener.socket.family, socket.SOCK_DGRAM)
        udp.setblocking(False)
        try:
            udp.bind((host, listener.socket.getsockname()[1]))
        except OSError:
            udp.close()
            await listener.aclose()
            # A port that is free for TCP may be in use for UDP.
            if port or not left:
                raise
        else:
            return listener, udp
    raise AssertionError("the last try raises")

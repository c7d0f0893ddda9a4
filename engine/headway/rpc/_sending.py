"""Sending on one connection: transports that can be written to until the end, and the wait for its window."""

from __future__ import annotations

import contextlib
from typing import Any

from h2.connection import H2Connection

from headway.rpc._signal import Signal

# Streams that a window wakes at once. Each passes it on to the next one.
_WOKEN_AT_ONCE = 16


class WindowQueue:
    """The streams of a connection that wait until its window opens, the longest waiting first.

    A frame that opens it wakes a few of them, however many wait: otherwise a peer could wake a thousand tasks by each
    window of one byte. A stream that has sent, or that has given up, passes the rest of the window on.
    """

    __slots__ = ("_h2", "_waiting")

    def __init__(self, h2: H2Connection) -> None:
        self._h2 = h2
        self._waiting: dict[Signal, None] = {}

    async def wait(self, updated: Signal) -> None:
        """Wait until a stream may send. It may have to wait again. ``updated`` is set when its own window opens."""
        updated.clear()
        if self._h2.outbound_flow_control_window > 0:
            # The stream's own window is shut. It leaves the connection's to others.
            self.pass_on()
            await updated.wait()
            return
        self._waiting[updated] = None
        try:
            await updated.wait()
        finally:
            del self._waiting[updated]

    def pass_on(self) -> None:
        """Wake the next streams, if the window is open."""
        if not self._waiting or self._h2.outbound_flow_control_window <= 0:
            return
        for _, updated in zip(range(_WOKEN_AT_ONCE), self._waiting, strict=False):
            updated.set()


class WhileOpen:
    """A transport that drops what is written to it once it is closing. asyncio's logs each such write."""

    __slots__ = ("_transport",)

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def is_closing(self) -> bool:
        """The transport's."""
        closing: bool = self._transport.is_closing()
        return closing

    def write(self, data: bytes) -> None:
        """Write, or drop."""
        if not self._transport.is_closing():
            self._transport.write(data)


class HalfOf:
    """A transport of which `close` closes our half."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def close(self) -> None:
        """Close our half, once everything is sent."""
        if not self._transport.is_closing():
            # The peer may have reset the connection, which its reader has not been told yet.
            with contextlib.suppress(OSError):
                self._transport.write_eof()

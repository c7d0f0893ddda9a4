"""Sending on one connection: the queue for its window, and wrappers of its transport."""

from __future__ import annotations

import contextlib
from typing import Any

from h2.connection import H2Connection

from headway.rpc._signal import Signal

# The number of streams that an opened window wakes at once. Each passes the rest on to the next ones.
_WOKEN_AT_ONCE = 16


class WindowQueue:
    """A FIFO queue of the streams that wait for the connection's window to open.

    Opening the window wakes only a few streams. Otherwise a peer could wake a thousand tasks with each window of one
    byte. A stream that has sent its data, or was canceled, passes the rest of the window on.
    """

    __slots__ = ("_h2", "_waiting")

    def __init__(self, h2: H2Connection) -> None:
        self._h2 = h2
        self._waiting: dict[Signal, None] = {}

    async def wait(self, updated: Signal) -> None:
        """Wait until the stream may be able to send. The caller must check again.

        ``updated`` is the stream's signal, which is also set when its own window opens.
        """
        updated.clear()
        if self._h2.outbound_flow_control_window > 0:
            # Only the stream's own window is closed. Leave the connection's window to others.
            self.pass_on()
            await updated.wait()
            return
        self._waiting[updated] = None
        try:
            await updated.wait()
        finally:
            del self._waiting[updated]

    def pass_on(self) -> None:
        """Wake the next streams if the window is open."""
        if not self._waiting or self._h2.outbound_flow_control_window <= 0:
            return
        for _, updated in zip(range(_WOKEN_AT_ONCE), self._waiting, strict=False):
            updated.set()


class WhileOpen:
    """A wrapper of a transport that drops writes once it is closing. asyncio's transport logs each such write."""

    __slots__ = ("_transport",)

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def is_closing(self) -> bool:
        """Return True if the transport is closing."""
        closing: bool = self._transport.is_closing()
        return closing

    def write(self, data: bytes) -> None:
        """Write the data, or drop it if the transport is closing."""
        if not self._transport.is_closing():
            self._transport.write(data)


class HalfOf:
    """A wrapper of a transport whose `close` closes only our half of the connection."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def close(self) -> None:
        """Close our half when everything has been sent."""
        if not self._transport.is_closing():
            # The peer may have reset the connection without the transport having noticed yet.
            with contextlib.suppress(OSError):
                self._transport.write_eof()

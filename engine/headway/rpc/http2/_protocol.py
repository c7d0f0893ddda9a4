"""The HTTP/2 protocol of one connection, client or server: settings, incoming frames, keepalive and shutdown."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import trio
from grpclib.config import Configuration
from grpclib.exceptions import StreamTerminatedError
from grpclib.protocol import AbstractHandler, H2Protocol
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from hyperframe.frame import GoAwayFrame

from headway.base import BoundedReport
from headway.events import ConnectionEnded
from headway.rpc._addresses import named
from headway.rpc._channel import Report
from headway.rpc._limits import Budget, Flooded, Limits
from headway.rpc.http2._connection import Http2Connection, Http2Processor
from headway.rpc.http2._direct import DirectFrames
from headway.rpc.http2._frames import FrameAccount, FrameCutter, FrameTooLarge
from headway.rpc.http2._h2 import CountingH2, h2_configuration, with_message_size

_PING = b"headway!"
# The type of the frame that begins a call.
_HEADERS = 1
MOST_DISCARDED = 1 << 20
"""Bytes to read and discard on a closed connection before it is aborted."""

# The share of one connection in one turn: seconds to handle frames, and calls that it may begin. The calls are handled
# after the frames, and cost more.
_SLICE = 0.001
_CALLS_AT_ONCE = 8
# Reading from the transport pauses while more bytes than this wait for their turn.
_LEFT = 16 << 10
# Fewer bytes of unfinished frames than this are not charged to the budget.
_COUNTED = 1 << 10


def _nothing() -> None:
    """Do nothing."""


class Http2Protocol(H2Protocol):
    """grpclib's protocol with our connection and processor.

    Args:
        nursery: runs the tasks that continue with work left over from a turn.
        turn: a lock that only one connection of the server holds at a time, to continue with leftover work. A turn of
            the loop therefore takes no longer when many connections flood the server.
        started: called with this protocol when the connection is made.
        ended: called with this protocol when the connection is lost.
        notify: receives an event when this end closes the connection because of its peer.
        budget: accounts for the bytes held of incomplete requests.
        established: called when the peer's settings arrive, which completes the handshake.
        start: called when calls have begun that no task which reads will answer.
        accepts: the size in bytes of the largest accepted message, announced to the peer. None announces no limit.
    """

    connection: Http2Connection
    processor: Http2Processor

    def __init__(
        self,
        handler: AbstractHandler,
        limits: Limits,
        *,
        nursery: trio.Nursery,
        turn: trio.Lock,
        client_side: bool,
        started: Callable[[Http2Protocol], None],
        ended: Callable[[Http2Protocol], None],
        report: Report,
        notify: BoundedReport | None = None,
        budget: Budget | None = None,
        accepts: int | None = None,
        established: Callable[[], None] | None = None,
        start: Callable[[], None] = _nothing,
    ) -> None:
        config = Configuration()
        config = config.__for_client__() if client_side else config.__for_server__()
        super().__init__(
            handler,
            config,
            h2_configuration(client_side=client_side),
        )
        self._limits = limits.wire
        self._message_size = limits.message_size
        self._handshake_timeout = limits.handshake_timeout
        self._nursery = nursery
        self._turn = turn
        self._notify = notify
        self._budget = budget
        self._client_side = client_side
        self._accepts = accepts
        self._started = started
        self._ended = ended
        self._report = report
        self._established = established
        self._start = start
        self._last_received = 0.0
        # Bytes that the peer has sent before its settings.
        self._before_settings = 0
        self._discarded = 0
        # TLS records without content that have arrived while the processor was halted.
        self._uncharged = 0
        self._alive = trio.CancelScope()
        self._cutter = FrameCutter(limits.wire.frame_size, preface=not client_side)
        # True when the connection is lost. Its transport can do nothing more.
        self._lost = False
        # Bytes of unfinished frames and header blocks, as the budget counts them.
        self._held = 0

    def connection_made(self, transport: Any) -> None:
        """Send our settings, before anything is received."""
        self._last_received = trio.current_time()
        self._account = FrameAccount(self._limits, self._last_received, client_side=self._client_side)
        h2 = CountingH2(self.h2_config, self._limits, self._account)
        self.connection = Http2Connection(h2, transport, config=self.config, limits=self._limits, budget=self._budget)
        self._transport = transport
        self.processor = Http2Processor(self.handler, self.connection, self._account, self._later)
        self._direct = None if self._client_side else DirectFrames(h2, self.processor, self._cutter, self._message_size)
        first = h2.data_to_send()
        transport.write(first if self._accepts is None else with_message_size(first, self._accepts))
        self._started(self)

    @property
    def is_solvent(self) -> bool:
        """True while this client's own count is within the server's limits for empty frames and long headers."""
        return self._account.is_solvent(trio.current_time())

    def data_received(self, data: bytes) -> None:
        """Handle what has arrived, as far as one turn allows. A task continues with the rest."""
        if self.connection.is_closing():
            self._discard(len(data))
            return
        if not self.connection.settings_received.is_set() and not self._may_send_more(len(data)):
            return
        if self._uncharged:
            self.receive_empty_records(0)
            if self.connection.is_closing():
                return
        self._last_received = trio.current_time()
        self._cutter.feed(data)
        connection = self.connection
        if not (connection.behind or self._take_turn()):
            if self.processor.halted:
                # Its share of the turn is not used up. So it need not wait for other connections.
                self._nursery.start_soon(self._go_on_at_once, name="rpc turns")
            else:
                self._later(self._go_on)
        if connection.behind and self._cutter.left > _LEFT:
            self._transport.pause_reading()
        # `_go_on` counts when the task that reads waits for its call.
        if not (connection.behind and self.processor.halted):
            self._count()
        if not connection.behind:
            # TLS passes on what it has kept, when reading resumes, in a task that answers nothing.
            self._start()

    def receive_empty_records(self, count: int) -> None:
        """Charge for empty TLS records. Too many end the connection."""
        self._uncharged += count
        if self.processor.halted:
            # They are charged when the client sends more.
            return
        count, self._uncharged = self._uncharged, 0
        try:
            self._account.receive_empty_records(count, trio.current_time())
        except Flooded as error:
            if not self.connection.is_closing():
                self._end(str(error), ErrorCodes.ENHANCE_YOUR_CALM)

    def _go_on(self) -> bool:
        """Handle more of the rest. Resume reading if little is left, and return True if anything is left."""
        finished = self._take_turn()
        if (self._cutter.left <= _LEFT or finished) and not self._lost:
            self._transport.resume_reading()
        self._count()
        self._start()
        return not finished

    async def _go_on_at_once(self) -> None:
        if self._go_on():
            await self._by_turns(self._go_on)

    def _count(self) -> None:
        """Charge incomplete frames and header blocks to the budget. That may end this connection or another one."""
        size = self._cutter.left + self._account.block
        self._hold(size if size >= _COUNTED else 0)

    def _hold(self, size: int) -> None:
        if size != self._held and self._budget is not None:
            before, self._held = self._held, size
            self._budget.held(self, before, size)

    def refuse(self) -> None:
        """End the connection because its incomplete frames are among the largest."""
        if self.connection.is_closing():
            self._forget()
        else:
            self._end("incomplete requests take too much memory", ErrorCodes.ENHANCE_YOUR_CALM)

    def _forget(self) -> None:
        """Discard incomplete frames and header blocks."""
        self._cutter.clear()
        self._account.block = 0
        self.connection.h2.forget_header_block()
        self._hold(0)

    def _later(self, function: Callable[[], bool]) -> None:
        self._nursery.start_soon(self._by_turns, function, name="rpc turns")

    async def _by_turns(self, function: Callable[[], bool]) -> None:
        """Call the function until it returns False, taking turns with other connections."""
        more = True
        while more:
            async with self._turn:
                more = function()

    def _take_turn(self) -> bool:
        """Handle frames for one turn, and return True if none are left. Then a draining connection may close."""
        connection, processor = self.connection, self.processor
        connection.behind = True
        connection.behind = not (connection.is_closing() or self._take())
        if processor.ended and not connection.behind:
            processor.close_when_drained()
        return not connection.behind

    def _take(self) -> bool:
        """Handle frames for at most one turn, and return True if none are left.

        Invalid input ends this connection and nothing else.
        """
        connection, processor, direct = self.connection, self.processor, self._direct
        until, calls = time.perf_counter() + _SLICE, processor.calls + _CALLS_AT_ONCE
        now, cutter = trio.current_time(), self._cutter
        connection.gathering = True
        finished = False
        try:
            if preface := cutter.preface():
                connection.feed(preface)
            while not (finished := (frame := cutter.next()) is None):
                self._account.receive(frame, now)
                if direct is None or not direct.receive(frame, now):
                    for event in connection.feed(frame):
                        processor.process(event)
                    if connection.is_closing():
                        return True
                # The last call of a turn gets its request, if it has arrived, so that its task need not wait for it.
                enough = processor.calls >= calls and cutter.begins_call
                late = time.perf_counter() > until and (cutter.begins_call or frame[3] != _HEADERS)
                if cutter.left and (enough or processor.halted or late):
                    break
        except Flooded as error:
            self._end(str(error), ErrorCodes.ENHANCE_YOUR_CALM)
        except FrameTooLarge as error:
            self._end(str(error), ErrorCodes.FRAME_SIZE_ERROR)
        except ProtocolError as error:
            # h2 has already queued a GOAWAY that says what was wrong.
            self._end(f"Protocol error: {error}", None)
        except UnicodeDecodeError:
            # h2 decodes names and values as text and doesn't handle bytes that are not UTF-8.
            self._end("Protocol error: a header is not UTF-8", ErrorCodes.PROTOCOL_ERROR)
        except Exception as error:  # noqa: BLE001  # a peer must not end more than its own connection
            self._report("HTTP/2", error)
            self._end("Internal error", ErrorCodes.INTERNAL_ERROR)
        else:
            connection.gathering = False
            connection.flush()
            if connection.unsent() > self._limits.unsent:
                if processor.halted:
                    return False
                self._report_end("the peer does not read the data sent to it")
                self.abort()
            return finished
        return True

    def _report_end(self, why: str) -> None:
        """Report that this end ends the connection."""
        if self._notify is not None:
            self._notify(ConnectionEnded, peer=named(self._transport.get_extra_info("peername")), why=why)

    def _may_send_more(self, size: int) -> bool:
        """Return False and abort if the peer exceeds the size of a handshake without sending its settings."""
        self._before_settings += size
        if self._before_settings > self._limits.handshake_size:
            self._report_end(f"the handshake is larger than {self._limits.handshake_size} bytes")
            self.abort()
            return False
        return True

    def _discard(self, size: int) -> None:
        """Discard bytes that arrive after the close, because the peer may not know of it yet."""
        self._discarded += size
        if self._discarded > MOST_DISCARDED:
            self.abort()

    def _end(self, why: str, error_code: ErrorCodes | None) -> None:
        connection = self.connection
        connection.gathering = False
        self._forget()
        self._report_end(why)
        connection.flush()
        if error_code is not None:
            self.send_goaway(error_code, why)
        self.processor.close(why)

    def send_goaway(self, error_code: ErrorCodes = ErrorCodes.NO_ERROR, why: str = "") -> None:
        """Send GOAWAY, bypassing h2, which would let no stream continue after a GOAWAY of its own."""
        connection = self.connection
        if not connection.is_closing():
            last = connection.h2.highest_inbound_stream_id
            frame = GoAwayFrame(0, last_stream_id=last, error_code=error_code, additional_data=why.encode())
            self._transport.write(frame.serialize())

    def fileno(self) -> int:
        """Return the descriptor of the connection's socket, or -1 if there is none."""
        socket = self._transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    def abort(self) -> None:
        """Abort the connection without waiting for its peer."""
        self._transport.abort()

    def eof_received(self) -> None:
        """Let a client handle the rest of what has arrived: it may have the last answers of the server, and a GOAWAY.

        There is no later turn, because the connection is closed after this.
        """
        while self._client_side and self.connection.behind:
            self._take_turn()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Clean up after the connection was lost, whichever end closed it."""
        self._alive.cancel()
        self._lost = True
        if hasattr(self, "processor"):
            super().connection_lost(exc)
        self._ended(self)
        if hasattr(self, "processor"):
            self._forget()

    async def keep_alive(self) -> None:
        """Abort the connection if its peer doesn't complete the handshake, doesn't answer a ping, or, after the
        close, doesn't read what is left to send.
        """
        with self._alive:
            if await self._until_closed():
                # Not lost yet: data is still unsent, or the peer hasn't closed its half.
                await trio.sleep(self._limits.keepalive_timeout)
            else:
                self._report_end("the peer did not complete the handshake or did not answer a ping in time")
            self.abort()

    async def _until_closed(self) -> bool:
        """Wait until the connection is closed and return True, or return False if its peer doesn't respond."""
        limits, connection = self._limits, self.connection
        with trio.move_on_after(self._handshake_timeout) as beginning, contextlib.suppress(StreamTerminatedError):
            await connection.settings_received.wait()
        if beginning.cancelled_caught:
            return False
        if self._established is not None:
            self._established()
        heard = self._last_received
        # Compare the same sum each time: a difference of times may be rounded below the interval when it has passed.
        while not await self._closed_by(heard + limits.keepalive_interval):
            if self._last_received > heard:
                heard = self._last_received
                continue
            asked = trio.current_time()
            connection.h2.ping(_PING)
            connection.flush()
            if await self._closed_by(asked + limits.keepalive_timeout):
                break
            if self._last_received < asked:
                return False
            heard = self._last_received
        return True

    async def _closed_by(self, deadline: float) -> bool:
        with trio.move_on_at(deadline):
            await self.connection.closed.wait()
        return self.connection.closed.is_set()

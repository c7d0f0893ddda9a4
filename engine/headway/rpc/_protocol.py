"""One connection of either end: its settings, what arrives, its keepalive, its end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import trio
from grpclib.config import Configuration
from grpclib.exceptions import StreamTerminatedError
from grpclib.protocol import AbstractHandler, H2Protocol
from h2.config import H2Configuration
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame, SettingsFrame

from headway._bounded_report import BoundedReport
from headway.events import ConnectionEnded
from headway.rpc._addresses import named
from headway.rpc._budget import Budget
from headway.rpc._frames import FrameAccount, FrameCutter, FrameTooLarge
from headway.rpc._h2 import BoundedDecoder, CountingH2
from headway.rpc._http2 import Http2Connection, Http2Processor
from headway.rpc._limits import Flooded, Limits

_FIRST_WINDOW = 65_535
_PING = b"headway!"
# Of the settings that HTTP/2 leaves to experiments; whoever doesn't know it ignores it.
_MESSAGE_SIZE = 0xF048
UNHEARD = 1 << 20
"""Bytes that are read and thrown away after a connection was closed, before it is given up."""

# What one connection gets at once: seconds to handle frames, and calls that it may begin. The calls are handled after
# the frames, and cost more.
_SLICE = 0.001
_CALLS_AT_ONCE = 4
# Bytes that wait for their turn, above which no more is read from the transport.
_LEFT = 16 << 10
# Bytes of unfinished frames from which on they are counted.
_COUNTED = 1 << 10


class _Announced(Settings):
    """Our settings. h2 ends the connection when a peer opens a stream too many, which one does that has not heard
    of the limit yet; the processor refuses the stream alone, so that h2 is told of a higher limit than the peer.
    """

    @property
    def max_concurrent_streams(self) -> int:
        return super().max_concurrent_streams * 2 + 100

    @max_concurrent_streams.setter
    def max_concurrent_streams(self, value: int) -> None:
        self[SettingCodes.MAX_CONCURRENT_STREAMS] = value


def _goaway(frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
    """In place of h2's, after which it takes nothing more, not even the ends of calls that have begun."""
    event = ConnectionTerminated()
    event.error_code = frame.error_code
    event.last_stream_id = frame.last_stream_id
    return [], [event]


class Http2Protocol(H2Protocol):
    """grpclib's protocol with our connection and processor.

    Args:
        nursery: for the task that goes on with what there was no time for at once.
        turn: is held by the one connection of a server that goes on in a turn of the loop. They hold it one after the
            other, so that a turn takes no longer however many connections flood the server.
        started: called with this when the connection is made.
        ended: called with this when it is lost.
        notify: hears of it when this end ends the connection because of its peer.
        budget: for what is held of requests that are not whole yet.
        settled: called when the peer's settings have come, which end the handshake.
        accepts: bytes of the largest message that is taken, as the peer is told; None tells it nothing.
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
        report: Callable[[str, BaseException], None],
        notify: BoundedReport | None = None,
        budget: Budget | None = None,
        accepts: int | None = None,
        settled: Callable[[], None] | None = None,
    ) -> None:
        config = Configuration()
        config = config.__for_client__() if client_side else config.__for_server__()
        super().__init__(
            handler,
            config,
            H2Configuration(
                client_side=client_side,
                header_encoding="utf-8",
                validate_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_inbound_headers=False,
                normalize_outbound_headers=False,
            ),
        )
        self._limits = limits
        self._nursery = nursery
        self._turn = turn
        self._notify = notify
        self._budget = budget
        self._client_side = client_side
        self._accepts = accepts
        self._started = started
        self._ended = ended
        self._report = report
        self._settled = settled
        self._heard = 0.0
        # Bytes that the peer has sent before its settings.
        self._unsettled = 0
        self._unheard = 0
        self._alive = trio.CancelScope()
        self._cutter = FrameCutter(limits.frame_size, preface=not client_side)
        # Whether a task goes on with what has arrived.
        self._behind = False
        # Bytes of unfinished frames and header blocks, as the budget counts them.
        self._held = 0

    def connection_made(self, transport: Any) -> None:
        """Say what we accept, before anything is received."""
        self._heard = trio.current_time()
        self._account = FrameAccount(self._limits, self._heard, client_side=self._client_side)
        self.connection = Http2Connection(
            self._h2(), transport, config=self.config, limits=self._limits, budget=self._budget
        )
        self._transport = transport
        self.processor = Http2Processor(self.handler, self.connection, self._account, self._later)
        transport.write(self.connection.h2.data_to_send() + self._more_settings())
        self._started(self)

    def _more_settings(self) -> bytes:
        """A setting of our own, in a frame of its own: hyperframe writes no number above 255."""
        if self._accepts is None:
            return b""
        body = _MESSAGE_SIZE.to_bytes(2, "big") + min(self._accepts, (1 << 32) - 1).to_bytes(4, "big")
        return len(body).to_bytes(3, "big") + bytes([SettingsFrame.type, 0, 0, 0, 0, 0]) + body

    def _h2(self) -> CountingH2:
        limits = self._limits
        h2 = CountingH2(config=self.h2_config)
        h2.account = self._account
        h2.local_settings = _Announced(
            client=self._client_side,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_size,
                SettingCodes.INITIAL_WINDOW_SIZE: limits.stream_window,
                SettingCodes.MAX_FRAME_SIZE: limits.frame_size,
            },
        )
        h2._frame_dispatch_table[GoAwayFrame] = _goaway
        h2.decoder = BoundedDecoder(limits.header_size)
        h2.max_inbound_frame_size = limits.frame_size
        h2.initiate_connection()
        if limits.connection_window > _FIRST_WINDOW:
            h2.increment_flow_control_window(limits.connection_window - _FIRST_WINDOW)
        return h2

    @property
    def message_limit(self) -> int | None:
        """Bytes of the largest message that the peer takes, if it has said so."""
        limit: int | None = self.connection.h2.remote_settings.get(_MESSAGE_SIZE)
        return limit

    @property
    def metadata_limit(self) -> int | None:
        """Bytes of headers that the peer takes, if it has said so."""
        limit: int | None = self.connection.h2.remote_settings.max_header_list_size
        return limit

    @property
    def is_solvent(self) -> bool:
        """True if the server takes more frames without content and long headers, as far as this client knows."""
        return self._account.is_solvent(trio.current_time())

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, as much of it as there is time for at once."""
        if self.connection.is_closing():
            self._read_in_vain(len(data))
            return
        if not self.connection.settings_received.is_set() and not self._may_send_more(len(data)):
            return
        self._heard = trio.current_time()
        self._cutter.feed(data)
        if not (self._behind or self._take()):
            self._behind = True
            self._later(self._go_on)
        if self._behind and self._cutter.left > _LEFT:
            self._transport.pause_reading()
        self._count()

    def receive_empty_records(self, count: int) -> None:
        """Charge for TLS records that have brought nothing. Too many end the connection."""
        try:
            self._account.receive_empty_records(count, trio.current_time())
        except Flooded as error:
            if not self.connection.is_closing():
                self._end(str(error), ErrorCodes.ENHANCE_YOUR_CALM)

    def _go_on(self) -> bool:
        """Take more of the rest, and return True if there is still some. Further bytes are read only while little is
        left.
        """
        self._behind = not (self.connection.is_closing() or self._take())
        if self._cutter.left <= _LEFT or not self._behind:
            self._transport.resume_reading()
        self._count()
        return self._behind

    def _count(self) -> None:
        """Count what has come of frames and header blocks that are not whole, which may make this or another end."""
        size = self._cutter.left + self._account.block
        self._hold(size if size >= _COUNTED else 0)

    def _hold(self, size: int) -> None:
        if size != self._held and self._budget is not None:
            before, self._held = self._held, size
            self._budget.held(self, before, size)

    def refuse(self) -> None:
        """See `Holder`: end the connection, whose unfinished frames are among the largest."""
        if self.connection.is_closing():
            self._forget()
        else:
            self._end("too much is held of requests that are not whole", ErrorCodes.ENHANCE_YOUR_CALM)

    def _forget(self) -> None:
        """Throw away what has come of frames and header blocks that are not whole."""
        self._cutter.clear()
        self._account.block = 0
        self.connection.h2.forget_header_block()
        self._hold(0)

    def _later(self, function: Callable[[], bool]) -> None:
        self._nursery.start_soon(self._by_turns, function, name="rpc turns")

    async def _by_turns(self, function: Callable[[], bool]) -> None:
        """Call it until it returns False, by turns with other connections."""
        more = True
        while more:
            async with self._turn:
                more = function()

    def _take(self) -> bool:
        """Handle frames for a moment, and return True if none is left. Whatever has come, it ends this connection at
        the worst.
        """
        connection, processor = self.connection, self.processor
        until, calls = time.perf_counter() + _SLICE, processor.calls + _CALLS_AT_ONCE
        connection.gathering = True
        finished = False
        try:
            if preface := self._cutter.preface():
                connection.feed(preface)
            while not (finished := (frame := self._cutter.next()) is None):
                self._account.receive(frame, trio.current_time())
                for event in connection.feed(frame):
                    processor.process(event)
                if connection.is_closing():
                    return True
                if self._cutter.left and (processor.calls >= calls or time.perf_counter() > until):
                    break
        except Flooded as error:
            self._end(str(error), ErrorCodes.ENHANCE_YOUR_CALM)
        except FrameTooLarge as error:
            self._end(str(error), ErrorCodes.FRAME_SIZE_ERROR)
        except ProtocolError as error:
            # h2 has a GOAWAY ready that says what was wrong.
            self._end(f"Protocol error: {error}", None)
        except UnicodeDecodeError:
            # h2 takes names and values as text and doesn't expect that they are none.
            self._end("Protocol error: a header is not UTF-8", ErrorCodes.PROTOCOL_ERROR)
        except Exception as error:  # noqa: BLE001  # no peer may end more than its own connection
            self._report("HTTP/2", error)
            self._end("Internal error", ErrorCodes.INTERNAL_ERROR)
        else:
            connection.gathering = False
            connection.flush()
            if connection.unsent() > self._limits.unsent:
                self._say("the peer does not read what it is sent")
                self.give_up()
            return finished
        return True

    def _say(self, why: str) -> None:
        """Report that this end ends the connection."""
        if self._notify is not None:
            self._notify(ConnectionEnded, peer=named(self._transport.get_extra_info("peername")), why=why)

    def _may_send_more(self, size: int) -> bool:
        """Return True unless the peer has sent more than a handshake may take, and still not its settings."""
        self._unsettled += size
        if self._unsettled > self._limits.handshake_size:
            self._say(f"the handshake is larger than {self._limits.handshake_size} bytes")
            self.give_up()
            return False
        return True

    def _read_in_vain(self, size: int) -> None:
        """It is closed, and its peer may not know yet."""
        self._unheard += size
        if self._unheard > UNHEARD:
            self.give_up()

    def _end(self, why: str, error_code: ErrorCodes | None) -> None:
        connection = self.connection
        connection.gathering = False
        self._forget()
        self._say(why)
        connection.flush()
        if error_code is not None:
            self.say_goodbye(error_code, why)
        self.processor.close(why)

    def say_goodbye(self, error_code: ErrorCodes = ErrorCodes.NO_ERROR, why: str = "") -> None:
        """Send GOAWAY. h2 would not let a stream go on after its own, so that this one goes past it."""
        connection = self.connection
        if not connection.is_closing():
            last = connection.h2.highest_inbound_stream_id
            frame = GoAwayFrame(0, last_stream_id=last, error_code=error_code, additional_data=why.encode())
            self._transport.write(frame.serialize())

    def give_up(self) -> None:
        """End the connection without waiting for its peer."""
        self._transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is gone, whoever ended it."""
        self._alive.cancel()
        if hasattr(self, "processor"):
            super().connection_lost(exc)
        self._ended(self)
        if hasattr(self, "processor"):
            self._forget()

    async def keep_alive(self) -> None:
        """Give the connection up when its peer doesn't begin, when it is silent and doesn't say that it is there,
        and when it is closed and doesn't take what is left.
        """
        with self._alive:
            if await self._until_closed():
                # But not yet lost: something waits to be sent, or the peer hasn't closed its half.
                await trio.sleep(self._limits.keepalive_timeout)
            else:
                self._say("the peer does not begin, or does not answer any more")
            self.give_up()

    async def _until_closed(self) -> bool:
        """Whether it has been closed; False when its peer isn't there."""
        limits, connection = self._limits, self.connection
        with trio.move_on_after(limits.handshake_timeout) as beginning, contextlib.suppress(StreamTerminatedError):
            await connection.settings_received.wait()
        if beginning.cancelled_caught:
            return False
        if self._settled is not None:
            self._settled()
        while not await self._closed_within(self._heard + limits.keepalive_interval - trio.current_time()):
            asked = trio.current_time()
            if asked - self._heard < limits.keepalive_interval:
                continue
            connection.h2.ping(_PING)
            connection.flush()
            if await self._closed_within(limits.keepalive_timeout):
                break
            if self._heard < asked:
                return False
        return True

    async def _closed_within(self, seconds: float) -> bool:
        with trio.move_on_after(max(seconds, 0)):
            await self.connection.closed.wait()
        return self.connection.closed.is_set()

"""h2's state machine with our settings and limits."""

from __future__ import annotations

from typing import Any

import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event
from h2.settings import SettingCodes, Settings
from h2.stream import StreamState
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, SettingsFrame, WindowUpdateFrame

from headway.rpc._limits import WireLimits
from headway.rpc.http2._frames import LITTLE, FrameAccount
from headway.rpc.http2._hpack import BoundedDecoder, RepeatingEncoder

_HEADER = 9
_FIRST_WINDOW = 65_535
# A setting from the range that HTTP/2 reserves for experiments. A peer that doesn't know the setting ignores it.
_MESSAGE_SIZE = 0xF048


def _ignore(headers: object) -> None:  # h2's name
    """Ignore content-length. The processor checks it."""


class _Values(list[Any]):
    """The values of one setting: the present one, and those that are not acknowledged yet."""

    def popleft(self) -> Any:  # h2's name
        return self.pop(0)


class _Settings(Settings):
    """Settings that take a fifth of the memory. h2 has a deque of 760 bytes for each value, so 10 KiB a connection."""

    def __init__(self, *, client: bool, initial_values: dict[SettingCodes, int] | None = None) -> None:
        super().__init__(client, initial_values)
        self._settings: dict[Any, Any] = {code: _Values(values) for code, values in self._settings.items()}

    def __setitem__(self, key: SettingCodes | int, value: int) -> None:
        # As h2 does it: None stands for a setting without a value until the first one is acknowledged.
        self._settings.setdefault(key, _Values([None]))
        super().__setitem__(key, value)


class _Announced(_Settings):
    """Our settings, with a higher limit on streams for h2 than for the peer.

    A peer that has not received our limit yet may open too many streams. h2 would end the connection; the processor
    refuses only the stream.
    """

    @property
    def max_concurrent_streams(self) -> int:
        return super().max_concurrent_streams * 2 + 100

    @max_concurrent_streams.setter
    def max_concurrent_streams(self, value: int) -> None:
        self[SettingCodes.MAX_CONCURRENT_STREAMS] = value


def _goaway(frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
    """Handle GOAWAY in place of h2's handler.

    After its own handler h2 accepts nothing more, not even the ends of calls that have begun.
    """
    event = ConnectionTerminated()
    event.error_code = frame.error_code
    event.last_stream_id = frame.last_stream_id
    return [], [event]


def h2_configuration(*, client_side: bool) -> H2Configuration:
    """Return the configuration of an h2 connection. h2 does not validate headers, because `_frames` does."""
    return H2Configuration(
        client_side=client_side,
        header_encoding="utf-8",
        validate_inbound_headers=False,
        validate_outbound_headers=False,
        normalize_inbound_headers=False,
        normalize_outbound_headers=False,
    )


def with_message_size(first: bytes, limit: int) -> bytes:
    """Return a server's first bytes with the size of the largest accepted message added to their SETTINGS frame.

    In a frame of its own it could arrive after the other settings, and after a client has sent a larger message. It is
    built by hand: hyperframe cannot write ids above 255.
    """
    length = int.from_bytes(first[:3], "big")
    assert first[3] == SettingsFrame.type, "a server begins with its settings"
    setting = _MESSAGE_SIZE.to_bytes(2, "big") + min(limit, (1 << 32) - 1).to_bytes(4, "big")
    end = _HEADER + length
    return (length + len(setting)).to_bytes(3, "big") + first[3:end] + setting + first[end:]


class _QuietData(DataFrame):
    """A DATA frame whose text has no content. h2 makes the text of each frame for its log, from twice its data."""

    def __repr__(self) -> str:
        return f"DataFrame(stream_id={self.stream_id}, {len(self.data)} bytes)"


class CountingH2(H2Connection):
    """h2's state machine with our settings. It records in the peer's account each frame that it sends.

    Attributes:
        account: the peer's account.
    """

    decoder: BoundedDecoder
    encoder: RepeatingEncoder

    def __init__(self, config: H2Configuration, limits: WireLimits, account: FrameAccount) -> None:
        super().__init__(config)
        self.account = account
        self.remote_settings = _Settings(client=not config.client_side)
        self.local_settings = _Announced(
            client=config.client_side,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_size,
                SettingCodes.INITIAL_WINDOW_SIZE: limits.stream_window,
                SettingCodes.MAX_FRAME_SIZE: limits.frame_size,
            },
        )
        self._frame_dispatch_table[GoAwayFrame] = _goaway
        self._frame_dispatch_table[_QuietData] = self._receive_data_frame
        self.decoder = BoundedDecoder(limits.header_size)
        self.encoder = RepeatingEncoder()
        self.max_inbound_frame_size = limits.frame_size
        self.initiate_connection()
        if limits.connection_window > _FIRST_WINDOW:
            self.increment_flow_control_window(limits.connection_window - _FIRST_WINDOW)

    @property
    def has_output(self) -> bool:
        """True if there is something to send."""
        return bool(self._data_to_send)

    @property
    def message_limit(self) -> int | None:
        """The size in bytes of the largest message that the peer accepts, or None if it has announced no limit."""
        limit: int | None = self.remote_settings.get(_MESSAGE_SIZE)
        return limit

    @property
    def metadata_limit(self) -> int | None:
        """The size in bytes of the headers that the peer accepts, or None if it has announced no limit."""
        limit: int | None = self.remote_settings.max_header_list_size
        return limit

    def _begin_new_stream(self, stream_id: int, allowed_ids: Any) -> Any:
        """Begin a stream that ignores content-length. In h2, a wrong one ends the connection and all of its calls."""
        stream = super()._begin_new_stream(stream_id, allowed_ids)
        stream._initialize_content_length = _ignore  # type: ignore[method-assign]
        return stream

    def _receive_frame(self, frame: Frame) -> list[Event]:
        if frame.__class__ is DataFrame:
            frame.__class__ = _QuietData
        return super()._receive_frame(frame)

    def send_headers(self, stream_id: int, headers: Any, end_stream: bool = False, *priority: Any, **more: Any) -> None:
        """Send headers, and record them in the account."""
        before = len(self._data_to_send)
        super().send_headers(stream_id, headers, end_stream, *priority, **more)
        self.account.sent_headers()
        if self.config.client_side:
            self.account.charge_self(trio.current_time(), len(self._data_to_send) - before)

    def send_data(self, stream_id: int, data: Any, end_stream: bool = False, pad_length: int | None = None) -> None:
        """Send data, and record it in the account."""
        super().send_data(stream_id, data, end_stream, pad_length)
        self.account.sent_data(len(data))
        if len(data) < LITTLE and self.config.client_side:
            self.account.charge_self(trio.current_time())

    def reset_stream(self, stream_id: int, error_code: ErrorCodes | int = 0) -> None:
        """Reset a stream, and record it in the account."""
        super().reset_stream(stream_id, error_code)
        if self.config.client_side:
            self.account.charge_self(trio.current_time())

    def acknowledge(self, size: int, stream_id: int) -> None:
        """Reopen the windows by ``size`` bytes of a stream's data, when it is worth a frame."""
        stream = self.streams.get(stream_id)
        if stream is not None and stream.state_machine.state is not StreamState.HALF_CLOSED_REMOTE:
            self.acknowledge_received_data(size, stream_id)
            return
        # Nothing more comes on the stream. Only the connection's window counts.
        increment = self._inbound_flow_control_window_manager.process_bytes(size)
        if increment:
            frame = WindowUpdateFrame(0)
            frame.window_increment = increment
            self._data_to_send += frame.serialize()

    def forget_header_block(self) -> None:
        """Discard the frames of an incomplete header block."""
        self.incoming_buffer._headers_buffer.clear()

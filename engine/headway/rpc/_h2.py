"""h2's state machine and hpack's decoder, with limits that they lack."""

from __future__ import annotations

from typing import Any

import trio
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from hpack import Decoder, HPACKDecodingError

from headway.rpc._frames import LITTLE, FrameAccount

# To the smallest size that the table had since the last block, and to its current size (RFC 7541, section 4.2).
_RESIZES = 2


class BoundedDecoder(Decoder):
    """hpack's decoder with a limit on the resizes of its table in one header block.

    hpack alone would accept ten thousand resizes of a microsecond each.
    """

    _resizes = 0

    def decode(self, data: bytes, raw: bool = False) -> Any:
        """Decode a header block."""
        self._resizes = 0
        return super().decode(data, raw)

    def _update_encoding_context(self, data: Any) -> int:
        self._resizes += 1
        if self._resizes > _RESIZES:
            raise HPACKDecodingError(f"more than {_RESIZES} resizes of the table in one header block")
        return super()._update_encoding_context(data)


def _ignore(headers: object) -> None:  # h2's name
    """Ignore content-length. The processor checks it."""


class CountingH2(H2Connection):
    """h2's state machine. It records in the peer's account each frame that it sends."""

    account: FrameAccount

    def _begin_new_stream(self, stream_id: int, allowed_ids: Any) -> Any:
        """Begin a stream that ignores content-length. In h2, a wrong one ends the connection and all of its calls."""
        stream = super()._begin_new_stream(stream_id, allowed_ids)
        stream._initialize_content_length = _ignore  # type: ignore[method-assign]
        return stream

    def send_headers(self, stream_id: int, headers: Any, end_stream: bool = False, *priority: Any, **more: Any) -> None:
        """Send headers, and record them in the account."""
        before = len(self._data_to_send)
        super().send_headers(stream_id, headers, end_stream, *priority, **more)
        self.account.sent_headers()
        if self.config.client_side:
            self.account.owe(trio.current_time(), len(self._data_to_send) - before)

    def send_data(self, stream_id: int, data: Any, end_stream: bool = False, pad_length: int | None = None) -> None:
        """Send data, and record it in the account."""
        super().send_data(stream_id, data, end_stream, pad_length)
        self.account.sent_data(len(data))
        if len(data) < LITTLE and self.config.client_side:
            self.account.owe(trio.current_time())

    def reset_stream(self, stream_id: int, error_code: ErrorCodes | int = 0) -> None:
        """Reset a stream, and record it in the account."""
        super().reset_stream(stream_id, error_code)
        if self.config.client_side:
            self.account.owe(trio.current_time())

    def forget_header_block(self) -> None:
        """Discard the frames of an incomplete header block."""
        self.incoming_buffer._headers_buffer.clear()

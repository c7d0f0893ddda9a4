"""h2's state machine and hpack's decoder with bounds that they don't have."""

from __future__ import annotations

from typing import Any

import trio
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from hpack import Decoder, HPACKDecodingError

from headway.rpc._frames import LITTLE, FrameAccount

# To the least size that the table has had, and to the one that it has now (RFC 7541, section 4.2).
_RESIZES = 2


class BoundedDecoder(Decoder):
    """hpack's decoder, which takes no more resizes of its table than a block may have. It would take ten thousand,
    a microsecond each.
    """

    _resizes = 0

    def decode(self, data: bytes, raw: bool = False) -> Any:
        """hpack's."""
        self._resizes = 0
        return super().decode(data, raw)

    def _update_encoding_context(self, data: Any) -> int:
        self._resizes += 1
        if self._resizes > _RESIZES:
            raise HPACKDecodingError(f"more than {_RESIZES} resizes of the table in one header block")
        return super()._update_encoding_context(data)


def _ignore(headers: object) -> None:  # h2's name
    """Expect no length. Who reads the request does."""


class CountingH2(H2Connection):
    """h2's state machine, which tells the peer's account of each frame that carries an answer or a call."""

    account: FrameAccount

    def _begin_new_stream(self, stream_id: int, allowed_ids: Any) -> Any:
        """h2's. Its streams leave content-length alone: a wrong one would end the connection with all of its calls."""
        stream = super()._begin_new_stream(stream_id, allowed_ids)
        stream._initialize_content_length = _ignore  # type: ignore[method-assign]
        return stream

    def send_headers(self, stream_id: int, headers: Any, end_stream: bool = False, *priority: Any, **more: Any) -> None:
        """h2's."""
        before = len(self._data_to_send)
        super().send_headers(stream_id, headers, end_stream, *priority, **more)
        self.account.sent_headers()
        if self.config.client_side:
            self.account.owe(trio.current_time(), len(self._data_to_send) - before)

    def send_data(self, stream_id: int, data: Any, end_stream: bool = False, pad_length: int | None = None) -> None:
        """h2's."""
        super().send_data(stream_id, data, end_stream, pad_length)
        self.account.sent_data(len(data))
        if len(data) < LITTLE and self.config.client_side:
            self.account.owe(trio.current_time())

    def reset_stream(self, stream_id: int, error_code: ErrorCodes | int = 0) -> None:
        """h2's."""
        super().reset_stream(stream_id, error_code)
        if self.config.client_side:
            self.account.owe(trio.current_time())

    def forget_header_block(self) -> None:
        """Throw away the frames of a header block that has begun and not ended."""
        self.incoming_buffer._headers_buffer.clear()

"""Cuts what a peer sends into frames, and holds the peer to what it may send that carries nothing. Pure."""

from __future__ import annotations

from headway.rpc._limits import Allowance, Flooded, Limits, Rate

_HEADER = 9
_PREFACE = 24
_DATA, _HEADERS, _SETTINGS, _PING, _CONTINUATION = 0, 1, 4, 6, 9
_ACK, _END_HEADERS = 0x1, 0x4
# Bytes of a header block that cost as much as one more frame: to decode a full one takes milliseconds.
_DECODED = 256
# What a TLS record that changes the keys costs, in frames: it takes longer than most of them.
_NEW_KEYS = 8
# What traffic pays back, in frames: a frame with a message or with headers as much as `_MOST`, a smaller one less.
_MOST, _WORTH = 4.0, 16
LITTLE = _WORTH
"""Bytes of content that pay for their frame."""
# What a client lets a server charge its connection for frames that carry nothing: half of what a server takes before it
# ends the connection, and with it the calls of everybody else on it.
_OWED = Rate(2500, 100)


class FrameTooLarge(Exception):
    """A frame is announced as larger than this end has said that it accepts."""


class FrameCutter:
    """Gives out what has arrived one whole frame at a time, so that a long read can be handled in parts.

    Args:
        most: bytes of the largest frame that is accepted. A larger one is refused by its header; h2 would first hold
            all of it.
        preface: whether the peer begins with HTTP/2's preface, as clients do.
    """

    __slots__ = ("_at", "_data", "_most", "_preface")

    def __init__(self, most: int, *, preface: bool) -> None:
        self._most = most
        self._preface = _PREFACE if preface else 0
        self._data = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Add what has arrived."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that have not been given out."""
        return len(self._data) - self._at

    def clear(self) -> None:
        """Forget everything that has not been given out."""
        self._data, self._at = b"", 0

    def preface(self) -> bytes:
        """Return what has arrived of the preface, which may come in pieces. Call it before `next`."""
        begin = self._at
        self._at = min(begin + self._preface, len(self._data))
        self._preface -= self._at - begin
        return self._data[begin : self._at]

    def next(self) -> bytes | None:
        """Return the next whole frame, or None if it has not arrived yet. Raises FrameTooLarge."""
        data, at = self._data, self._at
        left = len(data) - at
        if left < _HEADER:
            self._keep_part()
            return None
        length = int.from_bytes(data[at : at + 3], "big")
        if length > self._most:
            raise FrameTooLarge(f"frame of {length} bytes; at most {self._most} are accepted")
        size = _HEADER + length
        if left < size:
            self._keep_part()
            return None
        self._at = at + size
        if self._at == len(data):
            # Nothing of it is left: a connection that goes silent must not keep all of its last read.
            self.clear()
        return data[at : at + size]

    def _keep_part(self) -> None:
        """Keep the part of a frame alone, and not the read that it came in, of which it may be the last byte."""
        if self._at:
            self._data, self._at = self._data[self._at :], 0


class FrameAccount:
    """What one peer may still send. Frames cost; calls and their bytes pay back.

    Each kind of frame has an `Allowance`. Traffic renews the one of pings, since stock gRPC clients measure a
    connection with a ping whenever they have received something. It pays back into the one of all other frames, so
    that a connection which carries calls never runs out, however long it lives. An answer pays back a reset, too: a
    stream that was answered may be canceled.

    Attributes:
        block: bytes of the header block that has begun and not ended.
    """

    def __init__(self, limits: Limits, now: float, *, client_side: bool) -> None:
        self._resets = Allowance(limits.resets, now)
        self._pings = Allowance(limits.pings, now)
        self._settings = Allowance(limits.settings, now)
        self._others = Allowance(limits.others, now)
        self._client_side = client_side
        # Huffman's code makes a header longer at the worst by so much.
        self._most_headers = 4 * limits.header_size
        self.block = 0
        # What the other end charges this one.
        self._owed = Allowance(_OWED, now)

    def receive(self, frame: bytes, now: float) -> None:
        """Charge for a frame before it is handled. Raises Flooded when the peer has sent too many of its kind."""
        kind, flags, length = frame[3], frame[4], len(frame) - _HEADER
        if kind == _DATA:
            if not (self._client_side and length):
                self._others.spend(now, "frames without content")
            else:
                self._owed.earn(min(length / _WORTH, _MOST))
        elif kind in (_HEADERS, _CONTINUATION):
            self._header_block(flags, length, now)
        elif kind == _PING and not flags & _ACK:
            self._pings.spend(now, "pings")
        elif kind == _SETTINGS and not flags & _ACK:
            self._settings.spend(now, "settings")
        else:
            self._others.spend(now, "frames without content")

    def _header_block(self, flags: int, length: int, now: float) -> None:
        self.block += length
        if self.block > self._most_headers:
            raise Flooded(f"header block of more than {self._most_headers} bytes")
        # What a server answers may be long because of another caller who shares the connection.
        self._others.spend(now, "frames without content", 1 if self._client_side else 1 + length / _DECODED)
        if flags & _END_HEADERS:
            self.block = 0
            self._owed.earn(_MOST)

    def receive_empty_records(self, count: int, now: float) -> None:
        """Charge for TLS records without content, such as those that change the keys. Raises Flooded."""
        self._others.spend(now, "TLS records without content", count * _NEW_KEYS)

    def reset(self, now: float) -> None:
        """Charge for a stream that the peer has reset, or that this end had to reset because of what the peer sent.

        A frame that resets a stream once more costs as others do: some clients answer so to each frame that was on its
        way when they canceled the stream.
        """
        self._resets.spend(now, "resets")

    def took(self, size: int) -> None:
        """Pay back for content that a call has received."""
        self._others.earn(min(size / _WORTH, _MOST))

    def is_solvent(self, now: float) -> bool:
        """Return True if a server would take more from this client that carries nothing."""
        return self._owed.left(now) > 0

    def owe(self, now: float, size: int = 0) -> None:
        """Note what a server charges for a frame without content from this client, with so many bytes of headers."""
        self._owed.charge(now, 1 + size / _DECODED)

    def sent_headers(self) -> None:
        """Pay back for headers that this end has sent: its answer, or a call of its own."""
        self._pings.renew()
        self._resets.earn(1)
        self._others.earn(_MOST)

    def sent_data(self, size: int) -> None:
        """Pay back for content that this end has sent. A peer whose windows make it tiny earns little."""
        self._pings.renew()
        self._others.earn(min(size / _WORTH, _MOST))

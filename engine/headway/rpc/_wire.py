"""gRPC's message framing, and the types of codecs and of a service's own stream encodings. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import grpclib

from headway.rpc._channel import Compressed, Oversized

_PREFIX = 5
# A piece smaller than this is joined with the next one. Many one-byte pieces would take many times their size.
_SMALL = 1 << 10

StreamEncoder = Callable[[Any], Iterable[bytes]]
"""A function that encodes a message of a handler as framed messages, in pieces of about `PIECE` bytes.

Each piece holds whole messages, usually many.
"""

StreamDecoder = Callable[[list[bytes]], list[Any]]
"""A function that decodes the bodies of messages that arrived together into the items of a stream."""

PIECE = 64 << 10


class Encoded:
    """A message that a handler has encoded itself, in pieces, so that a large message need not be one bytes object.

    Attributes:
        pieces: the framed message.
        size: its length in bytes, without the frame.
    """

    __slots__ = ("pieces", "size")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.size = sum(map(len, pieces))
        self.pieces = [_head(self.size), *pieces]


class Framed:
    """Messages of a stream that are encoded already, in pieces of whole messages. ``size`` is their length in bytes."""

    __slots__ = ("pieces", "size")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))


class Codec(Protocol):
    """An encoding of single messages."""

    def encode(self, message: Any) -> bytes:
        """Return the message as bytes, without framing."""
        ...

    def decode(self, cls: type[Any], data: bytes) -> Any:
        """Return the message that the bytes encode.

        Raises:
            ValueError: the bytes are invalid. The message of the error says why.
        """
        ...


def framed(body: bytes) -> bytes:
    """Return a message with its gRPC prefix: a flag (not compressed) and the length."""
    return _head(len(body)) + body


def _head(size: int) -> bytes:
    return size.to_bytes(_PREFIX, "big")


class MessageParser:
    """A parser that cuts the data of one stream into messages.

    A message of more than ``limit`` bytes is rejected with RESOURCE_EXHAUSTED as soon as its length has been read.
    """

    __slots__ = ("_held", "_held_size", "_limit", "_wanted")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._held_size = 0
        # The bytes needed to complete the next message or its prefix. Invariant: held_size < wanted.
        self._wanted = _PREFIX

    def feed(self, data: bytes) -> list[bytes]:
        """Add data and return the bodies of the messages that are now complete."""
        size = self._held_size + len(data)
        if size < self._wanted:
            # Join the pieces once, when the message is complete. Joining each time would take quadratic time.
            if self._held and len(self._held[-1]) < _SMALL:
                self._held[-1] += data
            else:
                self._held.append(data)
            self._held_size = size
            return []
        if self._held:
            self._held.append(data)
            data = b"".join(self._held)
        bodies: list[bytes] = []
        begin, wanted = 0, _PREFIX
        while begin + _PREFIX <= size:
            length = int.from_bytes(data[begin + 1 : begin + _PREFIX], "big")
            if data[begin] or length > self._limit:
                raise self._refused(data[begin], length)
            end = begin + _PREFIX + length
            if end > size:
                wanted = _PREFIX + length
                break
            bodies.append(data[begin + _PREFIX : end])
            begin = end
        self._held = [data[begin:]] if begin < size else []
        self._held_size = size - begin
        self._wanted = wanted
        return bodies

    @property
    def held(self) -> int:
        """The number of bytes buffered for a message that is still incomplete."""
        return self._held_size

    def _refused(self, flag: int, length: int) -> grpclib.GRPCError:
        if flag:
            return Compressed()
        return Oversized(length, self._limit)

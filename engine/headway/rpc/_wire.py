"""Messages to bytes and back: gRPC's framing, and the seam where a service brings an encoding of its own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import grpclib
from grpclib.const import Status

from headway.rpc._errors import Oversized

_PREFIX = 5
# A piece smaller than this is joined to the next: many of a byte each would take many times their size.
_SMALL = 1 << 10

StreamEncoder = Callable[[Any], Iterable[bytes]]
"""What a handler sends, as framed messages: each piece holds whole ones, many to a piece, of about `PIECE` bytes."""

StreamDecoder = Callable[[list[bytes]], list[Any]]
"""The bodies of messages that came together, as items for who iterates."""

PIECE = 64 << 10


class Encoded:
    """A message that a handler has encoded by itself, in pieces: a large one is never made in one go."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: Sequence[bytes]) -> None:
        size = sum(map(len, pieces))
        self.pieces = [_head(size), *pieces]


class Codec(Protocol):
    """How one message becomes bytes, and a message again."""

    def encode(self, message: Any) -> bytes:
        """The message without framing."""
        ...

    def decode(self, cls: type[Any], data: bytes) -> Any:
        """Raises a ValueError that says what is wrong."""
        ...


def framed(body: bytes) -> bytes:
    """A message as it stands in a stream: whether it is compressed (no), its length, itself."""
    return _head(len(body)) + body


def _head(size: int) -> bytes:
    return size.to_bytes(_PREFIX, "big")


class MessageParser:
    """Cuts what arrives on one stream into messages.

    A message of more than ``limit`` bytes is refused as soon as its length has been read: RESOURCE_EXHAUSTED.
    """

    __slots__ = ("_held", "_held_size", "_limit", "_wanted")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._held_size = 0
        # Invariant: held_size < wanted, the bytes without which no further message is whole.
        self._wanted = _PREFIX

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies of the messages that are whole now."""
        size = self._held_size + len(data)
        if size < self._wanted:
            # Joined once, when it is whole: joining each time would take the square of its length.
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
        """Bytes of a message that has begun and is not whole."""
        return self._held_size

    def _refused(self, flag: int, length: int) -> grpclib.GRPCError:
        if flag:
            return grpclib.GRPCError(Status.UNIMPLEMENTED, "compressed messages are not understood; send them plain")
        return Oversized(length, self._limit)

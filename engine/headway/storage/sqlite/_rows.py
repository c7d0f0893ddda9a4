"""The rows of resources: a message and a seal that detects damage, and the chunks in which rows are read.

SQLite detects damage to the structure of its pages, but not to their contents.
"""

from __future__ import annotations

import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

import trio

from headway.errors import StoreUnusable
from headway.protobuf import decode
from headway.resource import Within, decode_resource, pb
from headway.storage._reads import SNAPSHOT_CHUNK


def seal(version: int, body: bytes) -> int:
    """Return the checksum of a body and of the version that its row gives it."""
    return zlib.crc32(body, version & 0xFFFFFFFF)


def resource_from(version: int, sealed: int, body: bytes) -> pb.Resource:
    """Return a stored resource from its row. Raises StoreUnusable if it is not what was written."""
    # A damaged row may hold values of other types.
    whole = isinstance(version, int) and isinstance(body, bytes)  # type: ignore[redundant-expr]
    if not whole or seal(version, body) != sealed:
        raise StoreUnusable(
            f"the resource stored at revision {version} is damaged{_describe(body)}: its row is not as it was written. "
            "Other resources can be read; `headway store check` finds all damage, and "
            "`headway restore` restores a backup"
        )
    resource = decode_resource(body)
    resource.version = str(version)
    return resource


def id_bytes(body: bytes) -> bytes:
    """Return the first bytes of a resource, up to the end of its id: tag, length and id."""
    size = shift = 0
    at = 1
    while True:
        byte = body[at]
        size |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return body[: at + size]


_METADATA = 0x2A


def metadata_bytes(body: bytes) -> bytes:
    """Return the part of a body that holds its metadata. Fields are in order of their numbers, as they are encoded."""
    at, end = 0, len(body)
    while at < end and body[at] < _METADATA:
        at = _behind(body, at)
    begin = at
    while at < end and body[at] == _METADATA:
        at = _behind(body, at)
    return body[begin:at]


def _behind(body: bytes, at: int) -> int:
    """Return the index behind a field with a length."""
    size = shift = 0
    while True:
        at += 1
        # A damaged body may end anywhere.
        byte = body[at] if at < len(body) else 0
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return at + 1 + size


def _describe(body: bytes) -> str:
    try:
        id = decode(pb.Resource, body).id
    except Exception:  # noqa: BLE001  # whatever a decoder makes of damaged bytes
        return ""
    if id is None or id.type is None:
        return ""
    return f" ({id.type.kind} {id.name!r}, as far as it can be read)"


_EVERYTHING = Within()

Row = tuple[int, int, bytes]
"""(revision, seal, body) of a stored resource."""


class RowChunk:
    """Some rows in few objects: freeing a million rows one by one would stop the loop for 150 ms."""

    __slots__ = ("_bodies", "_numbers", "_rest")

    def __init__(self, rows: Sequence[Row]) -> None:
        # Three numbers per row: revision, seal, and the length of its body. Damaged rows may have values of other
        # types.
        self._rest = None if all(map(_is_whole, rows)) else list(rows)
        self._numbers = array("q")
        if self._rest is None:
            for revision, sealed, body in rows:
                self._numbers.extend((revision, sealed, len(body)))
        self._bodies = b"" if self._rest is not None else b"".join([body for _, _, body in rows])

    def decode(self) -> list[pb.Resource]:
        """Return the resources. Raises StoreUnusable for a damaged one."""
        if self._rest is not None:
            return [resource_from(*row) for row in self._rest]
        decoded: list[pb.Resource] = []
        end = 0
        numbers = iter(self._numbers)
        for revision, sealed, length in zip(numbers, numbers, numbers, strict=True):
            decoded.append(resource_from(revision, sealed, self._bodies[end : end + length]))
            end += length
        return decoded


def _is_whole(row: tuple[object, object, object]) -> bool:
    return isinstance(row[0], int) and isinstance(row[1], int) and isinstance(row[2], bytes)


class Rows:
    """The rows of a read, in chunks. They are decoded in worker threads. Each chunk is released when it is decoded.

    Args:
        rows: the rows. They may include some whose metadata does not match.
        within: the filter of the read.
    """

    def __init__(self, rows: Iterable[Row], within: Within = _EVERYTHING) -> None:
        self._chunks: deque[RowChunk] = deque()
        self._within = within
        rest = iter(rows)
        while chunk := list(islice(rest, SNAPSHOT_CHUNK)):
            self._chunks.append(RowChunk(chunk))

    async def all(self) -> list[pb.Resource]:
        """Return the resources of all chunks."""
        decoded: list[pb.Resource] = []
        while self._chunks:
            decoded += await trio.to_thread.run_sync(self._next)
        return decoded

    def _next(self) -> list[pb.Resource]:
        decoded = self._chunks.popleft().decode()
        return self._within.select(decoded) if self._within.metadata else decoded

"""hpack's decoder and encoder, with limits that they lack and shorter ways for what calls repeat. No I/O."""

from __future__ import annotations

from typing import Any

from hpack import Decoder, Encoder, HPACKDecodingError, OversizedHeaderListError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

# A header block may resize the table twice: to the smallest size since the last block, and to the current size
# (RFC 7541, section 4.2).
_RESIZES = 2
# The size of each header in addition to its bytes (RFC 7541, section 4.1).
_ENTRY = 32
# A header by its index, in one byte. The index 0 is invalid, and 127 has more bytes.
_INDEXED, _LONG = 0x80, 0xFF
# A new entry of the table, with the name of another one by its index, in one byte in the same way.
_NEW, _NEW_LONG = 0x40, 0x7F

Pairs = tuple[tuple[str, str], ...]


class BoundedDecoder(Decoder):
    """hpack's decoder with a limit on the resizes of its table in one header block.

    hpack alone would accept ten thousand resizes of a microsecond each.
    """

    _resizes = 0

    def __init__(self, max_header_list_size: int) -> None:
        super().__init__(max_header_list_size)
        self.header_table = self._table = _CountedTable()

    @property
    def changes(self) -> int:
        """The number of changes of the table."""
        return self._table.changes

    def decode(self, data: bytes, raw: bool = False) -> Any:
        """Decode a header block."""
        self._resizes = 0
        return super().decode(data, raw)

    def read(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Decode a header block as `decode` does with ``raw``, faster if most of its headers are in the table.

        hpack decodes only the others, but for a short value with a name of the table, such as a timeout. It sees one
        header at a time, so the size and the order are checked here.
        """
        self._resizes = 0
        headers: list[tuple[bytes, bytes]] = []
        at, size, end = 0, 0, len(data)
        table = self.header_table
        added, known = table.dynamic_entries, table.STATIC_TABLE_LENGTH
        while at < end:
            first = data[at]
            header: Any
            if _INDEXED < first < _LONG:
                # As the table's own method, without a call.
                index, used = first - _INDEXED - 1, 1
                if index < known:
                    header = table.STATIC_TABLE[index]
                else:
                    header = added[index - known] if index - known < len(added) else table.get_by_index(index + 1)
            elif _NEW < first < _NEW_LONG and at + 1 < end and (used := 2 + (data[at + 1] & 0x7F)) < 0x7F:
                value = data[at + 2 : at + used]
                if len(value) != used - 2:
                    raise HPACKDecodingError("Truncated header block")
                header = table.get_by_index(first & 0x3F)[0], decode_huffman(value) if data[at + 1] & 0x80 else value
                table.add(*header)
            else:
                header, used = self._other(data[at:], first)
                if header is None and headers:
                    raise HPACKDecodingError("Table size update not at the start of the block")
            at += used
            if header is None:
                continue
            headers.append(header)
            size += len(header[0]) + len(header[1]) + _ENTRY
            if size > self.max_header_list_size:
                raise OversizedHeaderListError(
                    f"A header list larger than {self.max_header_list_size} has been received"
                )
        self._assert_valid_table_size()
        return headers

    def _other(self, data: bytes, first: int) -> tuple[Any, int]:
        """Decode one header that is not an index of one byte. It is None for a resize of the table."""
        if first & 0x80:
            return self._decode_indexed(data)
        if first & 0x60 == 0x20:
            return None, self._update_encoding_context(data)
        (name, value), used = self._decode_literal_index(data) if first & 0x40 else self._decode_literal_no_index(data)
        # A plain tuple: Python's garbage collector would traverse hpack's subclass while the call is open.
        return (name, value), used

    def _update_encoding_context(self, data: Any) -> int:
        self._resizes += 1
        if self._resizes > _RESIZES:
            raise HPACKDecodingError(f"more than {_RESIZES} resizes of the table in one header block")
        return super()._update_encoding_context(data)


class _CountedTable(HeaderTable):
    """hpack's table with a count of its changes."""

    changes = 0

    def add(self, name: bytes, value: bytes) -> None:
        """Add an entry, which may remove others."""
        self.changes += 1
        super().add(name, value)

    @property
    def maxsize(self) -> int:
        """The size of the table. A change may remove entries."""
        return self._maxsize

    @maxsize.setter
    def maxsize(self, newmax: int) -> None:
        self.changes += 1
        setter: Any = HeaderTable.maxsize
        setter.__set__(self, newmax)


class RepeatingEncoder(Encoder):
    """hpack's encoder, which keeps the blocks of headers that are sent with every reply.

    A block can be repeated as long as the table is what it was before and after the block was encoded. Then it consists
    of indexes of the table alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.header_table = self._table = _CountedTable()
        self._repeated: dict[Pairs, bytes] = {}
        self._at = 0

    def repeat(self, headers: Pairs) -> bytes:
        """Return the block of these headers. Use it only for headers that are the same in many replies."""
        table = self._table
        if table.changes != self._at:
            self._repeated.clear()
            self._at = table.changes
        block = self._repeated.get(headers)
        if block is None:
            # The first block after a resize begins with the new size.
            resized = table.resized
            block = self.encode(headers)
            if table.changes == self._at and not resized:
                self._repeated[headers] = block
        return block

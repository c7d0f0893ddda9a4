"""Read and write single values in the protobuf wire format, for the compiled codecs."""

import struct
from functools import cache
from operator import index

from headway.errors import PayloadError

VARINT, FIXED64, DELIMITED, GROUP_START, GROUP_END, FIXED32 = 0, 1, 2, 3, 4, 5
DEPTH_LIMIT = 100
HIGHEST_TAG = 0xFFFFFFFF
MASK64 = (1 << 64) - 1

# For lengths and values below this, the tag and the length (or value) are precomputed together.
SHORT = 128

FIXED_FORMATS = {
    "double": "d",
    "fixed64": "Q",
    "sfixed64": "q",
    "float": "f",
    "fixed32": "I",
    "sfixed32": "i",
}
VARINT_KINDS = frozenset(["int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "enum"])


class WireError(PayloadError):
    """An encoding error, with the path of the invalid field."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []

    def __str__(self) -> str:
        path = self.path if len(self.path) < 9 else [*self.path[:3], "…", *self.path[-3:]]
        return f"{'.'.join(path)}: {self.what}" if path else self.what


def wire_type(kind: str) -> int:
    """Return the wire type of a single value of a kind."""
    if kind in VARINT_KINDS:
        return VARINT
    if kind in FIXED_FORMATS:
        return FIXED64 if FIXED_FORMATS[kind] in "dQq" else FIXED32
    return DELIMITED


def read_varint(data: bytes, index: int) -> tuple[int, int]:
    """Return the varint that begins at ``index``, truncated to 64 bits, and the index after it."""
    result = shift = 0
    while True:
        byte = data[index]
        index += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & MASK64, index
        shift += 7
        if shift > 63:
            raise WireError("a varint is longer than ten bytes")


def varint(value: int) -> bytes:
    """Encode a non-negative number as a varint."""
    if value < 0x4000:
        return bytes((value,)) if value < 0x80 else bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed_varint(value: int, bits: int) -> bytes:
    """Encode an int32, an int64 or the value of an enum."""
    if value.__class__ is not int:
        value = index(value)
    if not -(half := 1 << bits - 1) <= value < half:
        raise WireError(f"it does not fit into {bits} bits, signed")
    return varint(value & MASK64)


def unsigned_varint(value: int, bits: int) -> bytes:
    """Encode a uint32 or a uint64."""
    if value.__class__ is not int:
        value = index(value)
    if not 0 <= value < 1 << bits:
        raise WireError(f"it does not fit into {bits} bits, unsigned")
    return varint(value)


def zigzag_varint(value: int, bits: int) -> bytes:
    """Encode a sint32 or a sint64."""
    if value.__class__ is not int:
        value = index(value)
    value = value << 1 if value >= 0 else ~(value << 1)
    if value >> bits:
        raise WireError(f"it does not fit into {bits} bits, signed")
    return varint(value)


@cache
def heads(tag: int) -> list[bytes]:
    """Return the tag followed by each varint below SHORT: heads(tag)[n] begins a field with length or value n."""
    return [varint(tag) + varint(number) for number in range(SHORT)]


def long_head(tag: int, length: int) -> bytes:
    """Encode a tag and a length of any size."""
    if tag < 0x80 <= length < 0x4000:
        return bytes((tag, length & 0x7F | 0x80, length >> 7))
    return varint(tag) + varint(length)


def skip(data: bytes, tag: int, index: int, depth: int) -> int:
    """Return the index after the value of an unknown field whose tag ends at ``index``."""
    if tag < 8 or tag > HIGHEST_TAG:
        raise WireError(f"{tag >> 3} is not a valid field number")
    wire = tag & 7
    if wire == VARINT:
        return read_varint(data, index)[1]
    if wire == FIXED64:
        return index + 8
    if wire == FIXED32:
        return index + 4
    if wire == DELIMITED:
        length, index = read_varint(data, index)
        return index + length
    if wire == GROUP_START:
        return _skip_group(data, tag, index, depth + 1)
    raise WireError(f"field {tag >> 3} has the invalid wire type {wire}")


def _skip_group(data: bytes, tag: int, index: int, depth: int) -> int:
    if depth > DEPTH_LIMIT:
        raise too_deep()
    while True:
        inner, index = read_varint(data, index)
        if inner & 7 == GROUP_END:
            if inner >> 3 != tag >> 3:
                raise WireError(f"expected the end of group {tag >> 3}, got the end of group {inner >> 3}")
            return index
        index = skip(data, inner, index, depth)


def truncated() -> WireError:
    """Return the error for a value that extends beyond the end of the message that contains it."""
    return WireError("the data ends too early")


def too_deep() -> WireError:
    """Return the error for messages that are nested too deeply."""
    return WireError(f"it is nested deeper than {DEPTH_LIMIT} levels")


def located(names: dict[int, str], tag: int, error: PayloadError) -> PayloadError:
    """Return the error, with the field of the tag prepended to its path."""
    if not isinstance(error, WireError):
        error = WireError(str(error))
    if tag > 7:
        error.path.insert(0, names.get(tag >> 3, f"field {tag >> 3}"))
    return error


def malformed(names: dict[int, str], tag: int, error: Exception) -> PayloadError:
    """Return the error for a Python exception that malformed bytes caused."""
    if isinstance(error, UnicodeDecodeError):
        # The text is not quoted: it may be secret.
        return located(names, tag, WireError(f"byte {error.start} is not UTF-8 ({error.reason})"))
    if isinstance(error, (IndexError, struct.error)):
        return located(names, tag, truncated())
    return located(names, tag, WireError(str(error)))

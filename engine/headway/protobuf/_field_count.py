"""Limit the number of fields in a message before it is decoded: each field takes time, however small it is. Pure."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from headway.base import Steps, finished
from headway.errors import PayloadError
from headway.protobuf._plan import UnsupportedClassError, plan_class
from headway.protobuf._wire import (
    DELIMITED,
    FIXED32,
    FIXED64,
    FIXED_FORMATS,
    VARINT,
    VARINT_KINDS,
    WireError,
    read_varint,
    wire_type,
)

# The content of delimited fields by number: the class of a message, the fields of a map's entry, or the size of a
# packed value in bytes, which is 0 for varints.
_Contents = dict[int, Any]
# Each varint ends with a byte below 128.
_NOT_LAST = bytes(range(0x80, 0x100))


# The number of fields that a step counts.
_AT_ONCE = 16


def check_field_count(cls: type[Any], data: bytes, most: int) -> None:
    """Raise PayloadError if an encoded message has more than ``most`` fields. See `counting_fields`."""
    finished(counting_fields(cls, data, most))


def counting_fields(cls: type[Any], data: bytes, most: int) -> Steps[None]:
    """Raise PayloadError if an encoded message has more than ``most`` fields, including fields of nested messages.

    Malformed bytes pass. Decoding them reports the error, and reads no more fields than were counted here.
    """
    # Those of packed values count, but take no time.
    count = fields = 0
    # Cast, because mypy does not consider a class hashable.
    waiting: list[tuple[_Contents, int, int]] = [(_contents(cast("Any", cls)), 0, len(data))]
    try:
        while waiting:
            contents, at, end = waiting.pop()
            while at < end:
                count += 1
                fields += 1
                if not fields % _AT_ONCE:
                    yield
                if count > most:
                    raise _too_many(cls, most)
                tag, at = read_varint(data, at)
                wire = tag & 7
                if wire == VARINT:
                    _, at = read_varint(data, at)
                elif wire == DELIMITED:
                    length, at = read_varint(data, at)
                    begin, at = at, at + length
                    if at > end:
                        return
                    content = contents.get(tag >> 3)
                    if isinstance(content, int):
                        count += length // content if content else len(data[begin:at].translate(None, _NOT_LAST))
                    elif content is not None:
                        waiting.append((content if isinstance(content, dict) else _contents(content), begin, at))
                elif wire in (FIXED64, FIXED32):
                    at += 8 if wire == FIXED64 else 4
                # The fields in a group follow its tag, and are counted like other fields.
    except (IndexError, WireError):
        return
    # Packed values at the very end may have exceeded the limit.
    if count > most:
        raise _too_many(cls, most)


def _too_many(cls: type[Any], most: int) -> PayloadError:
    return PayloadError(f"not a valid {cls.__qualname__}: it has more than {most} fields")


@cache
def _contents(cls: Any) -> _Contents:
    try:
        plan = plan_class(cls)
    except UnsupportedClassError:
        return {}
    found: _Contents = {}
    for field in plan.fields:
        kind, message = field.value.kind, field.value.message
        if field.shape == "map":
            found[field.number] = {} if message is None else {2: message}
        elif message is not None:
            found[field.number] = message
        elif field.shape == "repeated" and kind in VARINT_KINDS:
            found[field.number] = 0
        elif field.shape == "repeated" and kind in FIXED_FORMATS:
            found[field.number] = 8 if wire_type(kind) == FIXED64 else 4
    return found

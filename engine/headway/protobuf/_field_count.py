"""Limit the number of fields in a message before it is decoded: each field takes time, however small it is. Pure."""

from __future__ import annotations

from functools import cache
from typing import Any

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

# The content of a delimited field: ("message", class), ("entry", class of the map's values, or None if they are no
# messages), or ("packed", minimum size of a value in bytes).
_Held = tuple[str, Any]
_NOTHING: dict[int, _Held] = {}


def check_field_count(cls: type[Any], data: bytes, most: int) -> None:
    """Raise PayloadError if an encoded message has more than ``most`` fields, including fields of nested messages.

    Malformed bytes pass. Decoding them reports the error, and reads no more fields than were counted here.
    """
    count = 0
    # Any, because mypy does not consider a class hashable.
    outermost: Any = cls
    waiting: list[tuple[dict[int, _Held], int, int]] = [(_held_by(outermost), 0, len(data))]
    try:
        while waiting:
            held_by, at, end = waiting.pop()
            while at < end:
                count += 1
                if count > most:
                    raise _too_many(cls, most)
                tag, at = read_varint(data, at)
                wire = tag & 7
                if wire == VARINT:
                    _, at = read_varint(data, at)
                elif wire == DELIMITED:
                    length, at = read_varint(data, at)
                    begin, at = at, at + length
                    held = held_by.get(tag >> 3)
                    if at > end:
                        return
                    if held is not None:
                        what, which = held
                        if what == "packed":
                            count += length // which
                        else:
                            waiting.append((_in_entry(which) if what == "entry" else _held_by(which), begin, at))
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
def _held_by(cls: type[Any]) -> dict[int, _Held]:
    try:
        plan = plan_class(cls)
    except UnsupportedClassError:
        return _NOTHING
    found: dict[int, _Held] = {}
    for field in plan.fields:
        kind = field.value.kind
        if field.shape == "map":
            found[field.number] = ("entry", field.value.message)
        elif field.value.message is not None:
            found[field.number] = ("message", field.value.message)
        elif field.shape == "repeated" and kind in VARINT_KINDS:
            found[field.number] = ("packed", 1)
        elif field.shape == "repeated" and kind in FIXED_FORMATS:
            found[field.number] = ("packed", 8 if wire_type(kind) == FIXED64 else 4)
    return found


@cache
def _in_entry(value: type[Any] | None) -> dict[int, _Held]:
    return _NOTHING if value is None else {2: ("message", value)}

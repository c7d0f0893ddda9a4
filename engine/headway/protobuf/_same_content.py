"""Compare encoded messages by what they contain, also by what their class cannot hold. Pure.

Decoded messages do not show all of it: in Python, a timestamp has no nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, cast

from headway.base import Steps, finished
from headway.protobuf._plan import FieldPlan, MessageClass, UnsupportedClassError, Value, plan_class
from headway.protobuf._wire import DELIMITED, FIXED32, FIXED64, VARINT, read_varint, skip, truncated, wire_type


class _Entries(NamedTuple):
    """The keys and values of a map. Each entry is encoded as a message with the fields 1 and 2."""

    key: Value
    value: Value


# The number of fields in a step.
_AT_ONCE = 8

_Content = dict[int, list[Any]]
"""The values of a message by the number of their field. Those of unknown fields come with their wire type."""
_ZEROS = {VARINT: 0, FIXED64: b"\0" * 8, DELIMITED: b"", FIXED32: b"\0" * 4}


def same_content(cls: type[Any], left: bytes, right: bytes) -> bool:
    """Return True if two valid encodings of a message of a class have the same content.

    The order of the fields makes no difference. Neither do packed numbers, or defaults that are written out. A field
    that is present twice differs from its last value alone, because other programs merge both.
    """
    return finished(comparing_content(cls, left, right))


def comparing_content(cls: type[Any], left: bytes, right: bytes) -> Steps[bool]:
    """Return the result of `same_content`, in steps."""
    if left == right:
        return True
    try:
        return (yield from _content(cls, left)) == (yield from _content(cls, right))
    except UnsupportedClassError:
        return False


def _content(cls: Any, data: bytes) -> Steps[_Content]:
    fields, made = _fields_of(cls), _Content()
    for count, (number, wire, value) in enumerate(wire_parts(data)):
        if count % _AT_ONCE == _AT_ONCE - 1:
            yield
        field = fields.get(number)
        found = made.setdefault(number, [])
        if field is None:
            found.append((wire, value))
        elif field.key is not None and wire == DELIMITED:
            found.append((yield from _entry(_Entries(field.key, field.value), value)))
        elif field.shape == "repeated" and wire == DELIMITED != wire_type(field.value.kind):
            found += _packed(field.value, value)
        else:
            found.append((yield from _value(field.value, wire, value)))
    for number in [number for number in made if number in fields]:
        field, values = fields[number], made[number]
        # Without such a field, a message has its default. Presence makes a difference only for an optional field.
        implied = field.shape == "single" and values == [_zero(field.value)]
        if implied or not values:
            del made[number]
    return made


def _zero(of: Value) -> Any:
    return {} if of.message is not None else _ZEROS[wire_type(of.kind)]


def _entry(entries: _Entries, data: bytes) -> Steps[_Content]:
    made = _Content()
    for number, wire, value in wire_parts(data):
        of = entries[number - 1] if number in (1, 2) else None
        read = (wire, value) if of is None else (yield from _value(of, wire, value))
        made.setdefault(number, []).append(read)
    # Without a key or a value, an entry has the default.
    return {
        number: values
        for number, values in made.items()
        if number not in (1, 2) or values != [_zero(entries[number - 1])]
    }


def _value(of: Value, wire: int, value: Any) -> Steps[Any]:
    if wire != wire_type(of.kind):
        return wire, value
    return value if of.message is None else (yield from _content(of.message, value))


def _packed(of: Value, data: bytes) -> Iterator[Any]:
    wire, index = wire_type(of.kind), 0
    while index < len(data):
        value, index = _read(data, wire, index)
        yield value


def wire_parts(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield the number, the wire type and the value of each field."""
    index = 0
    while index < len(data):
        tag, index = read_varint(data, index)
        if tag & 7 in (VARINT, FIXED64, DELIMITED, FIXED32):
            value, index = _read(data, tag & 7, index)
        else:
            end = skip(data, tag, index, 1)
            value, index = data[index:end], end
        yield tag >> 3, tag & 7, value


def _read(data: bytes, wire: int, index: int) -> tuple[Any, int]:
    if wire == VARINT:
        return read_varint(data, index)
    if wire == DELIMITED:
        length, index = read_varint(data, index)
    else:
        length = 8 if wire == FIXED64 else 4
    end = index + length
    if end > len(data):
        raise truncated()
    return data[index:end], end


def _fields_of(cls: MessageClass) -> dict[int, FieldPlan]:
    # The stubs of `cache` do not accept a class as hashable.
    return _planned(cast("Any", cls))


@cache
def _planned(cls: Any) -> dict[int, FieldPlan]:
    return {each.number: each for each in plan_class(cls).fields}

"""Encodings are the same only if they contain the same, also in what their class cannot hold."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

import headway
from headway import field
from headway.protobuf import encode, same_content


@headway.message(name="tests.Part")
class Part:
    name: str = field(1)
    inner: Part | None = field(2)


@headway.message(name="tests.Whole")
class Whole:
    note: str = field(1)
    count: int | None = field(2)
    numbers: list[int] = field(3)
    parts: dict[str, Part] = field(4)
    items: list[Part] = field(5)
    part: Part | None = field(6)
    when: datetime.datetime | None = field(7)
    ratio: float = field(8)
    lasts: datetime.timedelta | None = field(9)
    names: dict[int, str] = field(10)
    always: Part = field(11)


UNKNOWN = b"\xa2\x06\x03new"


def at(number: int, value: bytes) -> bytes:
    """Return a field with bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


def entry(key: bytes, value: bytes, more: bytes = b"") -> bytes:
    return at(4, at(1, key) + at(2, value) + more)


ONE, TWO = at(1, b"one"), at(6, at(1, b"two"))
SAME = {
    "order": (ONE + TWO, TWO + ONE),
    "order between elements": (at(5, ONE) + TWO + at(5, b""), TWO + at(5, ONE) + at(5, b"")),
    "default": (b"", at(1, b"")),
    "zero": (b"", b"\x41" + bytes(8)),
    "message that is always there": (b"", at(11, b"")),
    "packed": (b"\x18\x01\x18\x02", at(3, b"\x01\x02")),
    "packed in parts": (at(3, b"\x01") + at(3, b"\x02"), at(3, b"\x01\x02")),
    "packed nothing": (b"", at(3, b"")),
    "long varint": (b"\x10\x05", b"\x10\x85\x00"),
    "default key": (at(4, at(2, ONE)), entry(b"", ONE)),
    "default value": (at(4, at(1, b"k")), entry(b"k", b"")),
    "default number as key": (at(10, at(2, b"x")), at(10, b"\x08\x00" + at(2, b"x"))),
}
DIFFERENT = {
    "value": (ONE, at(1, b"two")),
    "zeros as text": (b"", at(1, bytes(4))),
    "presence of a scalar": (b"", b"\x10\x00"),
    "presence of a message": (b"", at(6, b"")),
    "presence of a time": (b"", at(7, b"")),
    "elements in another order": (at(5, ONE) + at(5, b""), at(5, b"") + at(5, ONE)),
    "numbers in another order": (at(3, b"\x01\x02"), at(3, b"\x02\x01")),
    "entries in another order": (entry(b"a", b"") + entry(b"b", b""), entry(b"b", b"") + entry(b"a", b"")),
    "twice": (at(6, b""), TWO + at(6, b"")),
    "scalar twice": (ONE, at(1, b"x") + ONE),
    "key twice": (entry(b"a", ONE), entry(b"a", b"") + entry(b"a", ONE)),
    "unknown": (ONE, ONE + UNKNOWN),
    "other unknown": (UNKNOWN, b"\xa2\x06\x03old"),
    "unknown in a message": (at(6, b""), at(6, UNKNOWN)),
    "unknown deep down": (at(6, at(2, b"")), at(6, at(2, UNKNOWN))),
    "unknown in an element": (at(5, b""), at(5, UNKNOWN)),
    "unknown in a value": (entry(b"k", b""), entry(b"k", UNKNOWN)),
    "unknown in an entry": (entry(b"k", b""), entry(b"k", b"", UNKNOWN)),
    "unknown in a time": (at(7, b"\x08\x05"), at(7, b"\x08\x05" + UNKNOWN)),
    "unknown in a duration": (at(9, b"\x08\x05"), at(9, b"\x08\x05" + UNKNOWN)),
    "nanoseconds": (at(7, b"\x10\x01"), at(7, b"\x10\x02")),
    "wire type": (b"", b"\x08\x05"),
    "wire type of a default": (b"", b"\x08\x00"),
    "group": (b"", b"\xa3\x06\xa4\x06"),
    "negative zero": (b"", b"\x41" + bytes(7) + b"\x80"),
}


@pytest.mark.parametrize("name", SAME)
def test_same_content_in_another_form(name: str) -> None:
    left, right = SAME[name]
    assert same_content(Whole, left, right)
    assert same_content(Whole, right, left)


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_content(name: str) -> None:
    left, right = DIFFERENT[name]
    assert not same_content(Whole, left, right)
    assert not same_content(Whole, right, left)


def test_encoded_fields_in_reverse_order_are_the_same() -> None:
    part, moment = Part(inner=Part(name="b")), datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)
    values: dict[str, Any] = {
        "note": "x",
        "count": 0,
        "numbers": [3, 300, -1],
        "parts": {"a": part},
        "when": moment,
        "names": {0: ""},
    }
    alone = [encode(Whole(**{name: value})) for name, value in values.items()]
    assert all(alone)
    assert same_content(Whole, encode(Whole(**values)), b"".join(reversed(alone)))

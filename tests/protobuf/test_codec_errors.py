"""Input that the compiled codecs refuse, and their errors."""

import dataclasses
import datetime
import enum
from typing import Any, cast

import pytest

from headway.errors import PayloadError
from headway.protobuf import decode, encode, field, message, varint
from headway.resource import pb


@message
class Part:
    name: str = field(1)
    weight: float = field(2)


@message
class Whole:
    text: str = field(1)
    part: Part = field(17)
    int32: int = field(2, kind="int32")
    uint64: int = field(3, kind="uint64")
    sint32: int = field(4, kind="sint32")
    fixed32: int = field(5, kind="fixed32")
    parts: list[Part] = field(6)
    moment: datetime.datetime = field(7)
    by_text: dict[str, str] = field(8)
    texts: list[str] = field(9)
    by_name: dict[str, Part] = field(10)


@dataclasses.dataclass
class Plain:
    name: str = ""


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x0a\x05ab", "not a valid Resource: id: the data ends too early"),
        (b"\x0a\x02\x0a\x05", "not a valid Resource: id.uid: the data ends too early"),
        (b"\x0a\x04\x1a\x02\x0a\x01", "id.type.group: the data ends too early"),
        (b"\x1a\x01\xff", "version: byte 0 is not UTF-8 (invalid start byte)"),
        (b"\x2a\x03\x0a\x01\xff", "metadata.key: byte 0 is not UTF-8 (invalid start byte)"),
        (b"\x80", "the data ends too early"),
        (b"\xff" * 11, "a varint is longer than ten bytes"),
        (b"\x02\x00", "0 is not a valid field number"),
        (b"\x0c", "wire type 4"),
        (b"\x0b\x14", "expected the end of group 1, got the end of group 2"),
        (b"\x0f", "wire type 7"),
    ],
)
def test_error_for_malformed_bytes_names_message_and_field(data: bytes, said: str) -> None:
    with pytest.raises(PayloadError) as caught:
        decode(pb.Resource, data)
    assert said in str(caught.value)


@pytest.mark.parametrize("inner", [b"\x11\x00\x00\x00", b"\x18\x80", b"\x19\x00", b"\x1a\x05"])
def test_nested_value_beyond_the_end_of_its_message_is_refused(inner: bytes) -> None:
    """A number, known or unknown, that ends after its message is truncated."""
    data = b"\x8a\x01" + varint(len(inner)) + inner
    with pytest.raises(PayloadError, match=r"not a valid Whole: part.*ends too early"):
        decode(Whole, data + b"\x0a\x0a0123456789")


class Color(enum.IntEnum):
    RED = 0
    BLUE = 1


@message
class Kinds:
    text: str = field(1)
    data: bytes = field(2)
    number: int = field(3)
    fixed: int = field(4, kind="fixed32")
    ratio: float = field(5)
    on: bool = field(6)
    color: Color = field(7)
    parts: list[Part] = field(8)
    numbers: list[int] = field(9)
    switches: list[bool] = field(10)
    by_text: dict[str, bool] = field(11)
    part: Part | None = field(12)
    maybe: bool | None = field(13)


VALUES: list[Any] = [
    None,
    False,
    True,
    0,
    2,
    0.0,
    2.5,
    "",
    "no",
    b"",
    b"no",
    [],
    ["a"],
    [0],
    {},
    {"a": 1},
    Part(),
    Part,
]
FIT: dict[str, list[Any]] = {
    "text": ["", "no"],
    "data": [b"", b"no"],
    # Type checkers take a bool for an int, and an int for a float.
    "number": [False, True, 0, 2],
    "fixed": [False, True, 0, 2],
    "ratio": [False, True, 0, 2, 0.0, 2.5],
    "on": [False, True],
    "color": [False, True, 0, 2],
    "parts": [[]],
    "numbers": [[], [0]],
    "switches": [[]],
    "by_text": [{}],
    "part": [None, Part()],
    "maybe": [None, False, True],
}


@pytest.mark.parametrize("name", FIT)
def test_value_of_a_wrong_type_is_refused_even_if_it_is_empty(name: str) -> None:
    for value in VALUES:
        if any(type(value) is type(fit) and value == fit for fit in FIT[name]):
            encode(Kinds(**{name: value}))
            continue
        with pytest.raises(PayloadError, match=rf"Kinds\.{name} has the invalid value .*: expected "):
            encode(Kinds(**{name: value}))


def test_message_of_another_class_is_refused_although_its_fields_have_the_same_names() -> None:
    @message
    class Other:
        name: str = field(1)
        weight: float = field(2)
        more: str = field(3)

    with pytest.raises(PayloadError, match=r"Kinds\.part has the invalid value Other\(.*\): expected .*Part"):
        encode(Kinds(part=cast("Any", Other(name="a", more="lost"))))


@message
class Nested:
    inner: "Nested | None" = field(1)
    inners: "dict[int, Nested]" = field(2)


def test_nesting_of_messages_is_bounded() -> None:
    """A message of a few kilobytes can't exhaust the stack: beyond 100 levels it is malformed."""
    messages = b""
    for _ in range(2000):
        messages = b"\x0a" + varint(len(messages)) + messages
    for data in (messages, nested_in_maps(2000), b"\x1b" * 2000 + b"\x1c" * 2000):
        with pytest.raises(PayloadError, match="nested deeper than 100 levels"):
            decode(Nested, data)
    assert decode(Nested, b"\x0a\x02\x0a\x00").inner == Nested(inner=Nested())


def nested_in_maps(levels: int) -> bytes:
    data = b""
    for _ in range(levels):
        entry = b"\x08\x01\x12" + varint(len(data)) + data
        data = b"\x12" + varint(len(entry)) + entry
    return data


def test_error_for_an_unencodable_value_names_message_and_field() -> None:
    wrong: list[tuple[Any, str]] = [
        (Part(name=cast("Any", 3)), "Part.name has the invalid value 3: expected str"),
        (Whole(int32=1 << 31), "Whole.int32 has the invalid value 2147483648: it does not fit into 32 bits"),
        (Whole(uint64=-1), "Whole.uint64 has the invalid value -1"),
        (Whole(sint32=1 << 40), "Whole.sint32 has the invalid value"),
        (Whole(fixed32=-1), "Whole.fixed32 has the invalid value -1"),
        (Whole(parts=[Part(), Part(name=cast("Any", b"x"))]), "Whole.parts[1]: Part.name has the invalid value b'x'"),
        (Whole(parts=cast("Any", (Part(name=cast("Any", 3)),))), "Whole.parts[0]: Part.name has the invalid value 3"),
        (Whole(parts=cast("Any", [Part(), Plain()])), "Whole.parts has the invalid value Plain(name='') at [1]"),
        (Whole(by_name={"k": Part(name=cast("Any", 3))}), "Whole.by_name['k']: Part.name has the invalid value 3"),
        (Whole(texts=[*"x" * 200, cast("Any", 5)]), "Whole.texts has the invalid value 5 at [200]: expected list[str]"),
        (Whole(moment=datetime.datetime(2020, 1, 1)), "timezone"),  # noqa: DTZ001 - the mistake meant
        (Whole(texts=cast("Any", "ada")), "Whole.texts has the invalid value 'ada': expected list[str]"),
        (
            Whole(by_text={"b": "c", "a": cast("Any", None)}),
            "Whole.by_text has the invalid value {'a': None}: expected",
        ),
    ]
    for value, said in wrong:
        with pytest.raises(PayloadError) as caught:
            encode(value)
        assert said in str(caught.value)
    loop = Nested()
    loop.inner = loop
    with pytest.raises(PayloadError, match="contains itself"):
        encode(loop)

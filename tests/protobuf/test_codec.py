"""The compiled codecs, compared with betterproto2's own bytes() and parse."""

import copy
import datetime
import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast, get_type_hints

import betterproto2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway._gen.message_pool import dataclass as generated_dataclass
from headway.base import finished
from headway.errors import PayloadError
from headway.protobuf import (
    UnsupportedClassError,
    codec_of,
    copy_message,
    decode,
    decoding,
    encode,
    encoding,
    equal,
    field,
    message,
    plan_class,
    varint,
)
from headway.resource import AnyMessage, pb


class State(enum.IntEnum):
    UNKNOWN = 0
    READY = 1
    LOST = -1


@message
class Part:
    name: str = field(1)
    weight: float = field(2)


@message
class Every:
    """A field of every kind. Some numbers need a tag of two bytes or more."""

    text: str = field(1)
    blob: bytes = field(2)
    flag: bool = field(3)
    int32: int = field(4, kind="int32")
    int64: int = field(5, kind="int64")
    uint32: int = field(6, kind="uint32")
    uint64: int = field(7, kind="uint64")
    sint32: int = field(8, kind="sint32")
    sint64: int = field(9, kind="sint64")
    fixed32: int = field(10, kind="fixed32")
    fixed64: int = field(11, kind="fixed64")
    sfixed32: int = field(12, kind="sfixed32")
    sfixed64: int = field(13, kind="sfixed64")
    single: float = field(14, kind="float")
    double: float = field(15)
    state: State = field(16)
    part: Part = field(17)
    moment: datetime.datetime = field(18)
    span: datetime.timedelta = field(19)
    maybe_text: str | None = field(20)
    maybe_flag: bool | None = field(21)
    maybe_int: int | None = field(22)
    maybe_zigzag: int | None = field(23, kind="sint64")
    maybe_double: float | None = field(24)
    maybe_state: State | None = field(25)
    maybe_part: Part | None = field(26)
    maybe_moment: datetime.datetime | None = field(27)
    texts: list[str] = field(28)
    blobs: list[bytes] = field(29)
    flags: list[bool] = field(30)
    ints: list[int] = field(31)
    zigzags: list[int] = field(32, kind="sint32")
    doubles: list[float] = field(33)
    singles: list[float] = field(34, kind="float")
    fixeds: list[int] = field(35, kind="fixed64")
    states: list[State] = field(36)
    parts: list[Part] = field(37)
    spans: list[datetime.timedelta] = field(38)
    by_text: dict[str, str] = field(2000)
    by_int: dict[int, float] = field(2001)
    by_flag: dict[bool, State] = field(2002)
    part_of: dict[str, Part] = field(2003)
    moment_of: dict[str, datetime.datetime] = field(2004)
    zigzag_of: dict[str, int] = field(536870911, kind="sint64")


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


text = st.text(max_size=8) | st.text(min_size=130, max_size=140)
blob = st.binary(max_size=200)
state = st.sampled_from(State)
# betterproto2 drops a negative zero, and Headway stores it: test_compared_with_google.py compares it.
double = st.floats().map(lambda value: value or 0.0)
single = st.floats(width=32).map(lambda value: value or 0.0)
part = st.builds(Part, name=text, weight=double)
moment = st.datetimes(timezones=st.just(datetime.UTC))
span = st.timedeltas(datetime.timedelta(days=-100_000), datetime.timedelta(days=100_000))


def few(element: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(element, max_size=3)


def pairs(key: st.SearchStrategy[Any], value: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    return st.dictionaries(key, value, max_size=3)


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "text": text, "blob": blob, "flag": st.booleans(),
    "int32": signed(32), "int64": signed(64), "uint32": unsigned(32), "uint64": unsigned(64),
    "sint32": signed(32), "sint64": signed(64), "fixed32": unsigned(32), "fixed64": unsigned(64),
    "sfixed32": signed(32), "sfixed64": signed(64), "single": single, "double": double,
    "state": state, "part": part, "moment": moment, "span": span,
    "maybe_text": st.none() | text, "maybe_flag": st.none() | st.booleans(),
    "maybe_int": st.none() | signed(64),
    "maybe_zigzag": st.none() | signed(64), "maybe_double": st.none() | double,
    "maybe_state": st.none() | state,
    "maybe_part": st.none() | part, "maybe_moment": st.none() | moment,
    "texts": few(text), "blobs": few(blob), "flags": few(st.booleans()), "ints": few(signed(64)),
    "zigzags": few(signed(32)), "doubles": few(double), "singles": few(single), "fixeds": few(unsigned(64)),
    "states": few(state), "parts": few(part), "spans": few(span),
    "by_text": pairs(text, text), "by_int": pairs(signed(64), double), "by_flag": pairs(st.booleans(), state),
    "part_of": pairs(text, part), "moment_of": pairs(text, moment), "zigzag_of": pairs(text, signed(64)),
}  # fmt: skip

# Few fields at once, so that a failing example is small.
every = st.lists(st.sampled_from(sorted(FIELDS)), max_size=12, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names}).map(lambda values: Every(**values))
)
ids = st.builds(
    pb.Id,
    uid=text,
    name=text,
    type=st.none() | st.builds(pb.Type, group=text, group_version=text, kind=text),
    tenancy=st.none() | st.builds(pb.Tenancy, partition=text, namespace=text),
)
conditions = st.builds(pb.Condition, type=text, state=st.sampled_from(pb.ConditionState), reason=text)
statuses = st.builds(pb.Status, observed_generation=text, conditions=few(conditions), updated_at=st.none() | moment)
resources = st.builds(
    pb.Resource,
    id=st.none() | ids,
    owner=st.none() | ids,
    version=text,
    generation=text,
    metadata=pairs(text, text),
    status=pairs(text, statuses),
    data=st.none() | st.builds(AnyMessage, type_url=text, value=blob),
)
positions = st.builds(pb.Position, store_id=text, incarnation=text, revision=unsigned(64))
events = st.one_of(
    st.builds(pb.WatchEvent, upsert=st.builds(pb.WatchEventUpsert, resource=st.none() | resources)),
    st.builds(pb.WatchEvent, delete=st.builds(pb.WatchEventDelete, resource=resources), revision=unsigned(64)),
    st.builds(pb.WatchEvent, end_of_snapshot=st.builds(pb.WatchEventEndOfSnapshot, position=positions)),
    st.builds(pb.WatchEvent, bookmark=st.builds(pb.WatchEventBookmark, resumed=st.booleans()), more=st.booleans()),
)
messages = every | resources | events


def its_own(cls: type[Any], data: bytes) -> Any:
    """Return the message as betterproto2 reads it."""
    return cast("Any", cls).parse(data)


@given(messages)
def test_encoding_equals_betterproto2(original: Any) -> None:
    assert encode(original) == bytes(original)


@given(messages)
def test_codec_and_betterproto2_read_each_others_bytes(original: Any) -> None:
    """A message is equal after a round trip through both, in either order."""
    cls = type(original)
    assert equal(decode(cls, bytes(original)), original)
    assert equal(its_own(cls, encode(original)), original)


@given(messages)
def test_copy_is_equal_and_shares_no_mutable_part(original: Any) -> None:
    """Changing every list, map and message of a copy leaves the original unchanged."""
    before = encode(original)
    copied = copy_message(original)
    assert copied is not original
    assert equal(copied, original)
    assert not shared(copied, original)
    assert encode(original) == before


def shared(left: Any, right: Any) -> bool:
    """Return True if two equal structures share a mutable part."""
    if isinstance(left, (list, dict, betterproto2.Message)) and left is right:
        return True
    if isinstance(left, list):
        return any(map(shared, left, right))
    if isinstance(left, dict):
        return any(shared(left[key], right[key]) for key in left)
    if isinstance(left, betterproto2.Message):
        return any(shared(value, vars(right)[name]) for name, value in vars(left).items())
    return False


@given(st.sampled_from([Every, pb.Resource, pb.WatchEvent, pb.Status]), st.binary(max_size=60))
def test_random_bytes_decode_or_raise_payload_error(cls: type[Any], data: bytes) -> None:
    """The decoded message survives another round trip."""
    survives(cls, data)


@given(messages, st.data())
def test_mutated_bytes_decode_or_raise_payload_error(original: Any, draw: st.DataObject) -> None:
    """The bytes are messages that were cut, or changed in a byte or two."""
    data = bytearray(encode(original))
    for _ in range(draw.draw(st.integers(0, 2))):
        if data:
            data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    survives(type(original), bytes(data[: draw.draw(st.integers(0, len(data)))]))


def survives(cls: type[Any], data: bytes) -> None:
    try:
        read = decode(cls, data)
    except PayloadError:
        return
    assert equal(decode(cls, encode(read)), read)


@given(messages, st.data())
def test_steps_read_and_write_what_the_codec_does(original: Any, draw: st.DataObject) -> None:
    """Long bytes, which are the same message many times, and with a mutation."""
    cls, body = type(original), encode(original)
    repeated = body * (2000 // (len(body) + 1) + 1)
    at = draw.draw(st.integers(0, len(repeated)))
    for data in (repeated, repeated[:at] + draw.draw(st.binary(max_size=3)) + repeated[at + 1 :]):
        assert outcome(lambda data=data: decode(cls, data)) == outcome(  # type: ignore[misc]
            lambda data=data: finished(decoding(cls, data))  # type: ignore[misc]
        )
    whole = decode(cls, repeated)
    assert finished(encoding(whole)) == encode(whole)


def outcome(read: Callable[[], Any]) -> bytes | str:
    """Return the bytes of what is read, or the text of the error."""
    try:
        return encode(read())
    except PayloadError as error:
        return str(error)


@given(resources, st.lists(st.tuples(st.integers(900, 910), blob), max_size=3))
def test_unknown_fields_are_preserved(original: pb.Resource, unknown: list[tuple[int, bytes]]) -> None:
    """A newer peer's fields survive in nested messages and in copies, too."""
    extra = b"".join(varint(number << 3 | 2) + varint(len(value)) + value for number, value in unknown)
    inner = encode(original) + extra
    data = b"\x0a" + varint(len(inner)) + inner + extra
    read = decode(pb.WatchEventUpsert, data)
    assert encode(read) == data
    assert encode(copy_message(read)) == data
    assert its_own(pb.WatchEventUpsert, data) == read
    assert equal(read, decode(pb.WatchEventUpsert, data))
    assert equal(read, pb.WatchEventUpsert(resource=original)) == (not extra)


def test_field_with_a_wrong_wire_type_is_unknown() -> None:
    """It is kept and not read, as in protobuf."""
    data = b"\x08\x05\x12\x01x"
    read = decode(pb.Type, data)
    assert read == pb.Type(group_version="x")
    assert encode(read) == b"\x12\x01x\x08\x05"


def test_unknown_groups_are_preserved() -> None:
    """A group is skipped as a unit, and written whole."""
    data = b"\x0a\x01a" + b"\x9b\x06" + b"\x0a\x01z" + b"\x9c\x06"
    read = decode(pb.Type, data)
    assert read.group == "a"
    assert encode(read) == data


def test_packed_and_unpacked_fields_are_read() -> None:
    """A repeated number may come in one piece, in many, or mixed."""
    assert decode(Every, b"\xfa\x01\x02\x01\x02\xf8\x01\x03\xfa\x01\x01\x04").ints == [1, 2, 3, 4]
    fixed = (5).to_bytes(8, "little")
    assert decode(Every, b"\x99\x02" + fixed + b"\x9a\x02\x10" + fixed + fixed).fixeds == [5, 5, 5]


def test_nan_equals_itself_and_presence_is_compared() -> None:
    """Two messages are equal if they cannot be distinguished."""
    assert equal(Part(weight=math.nan), Part(weight=math.nan))
    assert not equal(Part(weight=math.nan), Part(weight=1.0))
    assert not equal(Every(maybe_double=math.nan), Every())
    assert not equal(Every(maybe_text=""), Every())
    assert not equal(Part(), None)
    assert not equal(Part(), pb.Type())
    assert equal(None, None)


@dataclass(eq=False, repr=False)
class Odd(betterproto2.Message):
    """A class with its own encoding, which only betterproto2 can handle."""

    name: "str" = betterproto2.field(1, betterproto2.TYPE_STRING)  # noqa: RUF009 - as generated

    def __bytes__(self) -> bytes:
        return b"\x0a\x03odd"


@message
class HasOdd:
    odd: Odd | None = field(1)


def test_class_with_its_own_encoding_keeps_it() -> None:
    """This holds inside other messages, too."""
    with pytest.raises(UnsupportedClassError, match="Odd overrides __bytes__"):
        plan_class(Odd)
    plan_class(cast("type[betterproto2.Message]", HasOdd))
    assert encode(HasOdd(odd=Odd(name="x"))) == b"\x0a\x05\x0a\x03odd"
    read = decode(HasOdd, b"\x0a\x03\x0a\x01x")
    assert read.odd == Odd(name="x")
    copied = copy_message(read)
    assert equal(copied, read)
    assert copied.odd is not read.odd
    with pytest.raises(PayloadError, match="not a valid HasOdd: odd"):
        decode(HasOdd, b"\x0a\x03\x0a\x01\xff")


def test_schema_classes_are_compiled() -> None:
    """None of Headway's own messages uses the slow fallback."""
    for cls in (pb.Resource, pb.WatchEvent, pb.Status, Every):
        assert plan_class(cast("type[betterproto2.Message]", cls)).names


def test_decoded_messages_share_their_keys() -> None:
    """A decoded instance takes no more memory than a constructed one, because its attributes have the same order."""
    read = decode(pb.Type, b"\x1a\x01k")
    assert list(vars(read)) == list(vars(pb.Type(kind="k")))
    assert list(vars(copy.copy(read))) == list(vars(copy_message(read)))


def test_each_function_is_compiled_at_its_first_use() -> None:
    """Most messages are only encoded in one process and decoded in another. Those that a message holds count, too."""

    @message
    class Inner:
        text: str = field(1)

    @message
    class Outer:
        inner: list[Inner] = field(1)

    def compiled(cls: type[Any]) -> list[str]:
        return [name for name in ("encode", "decode", "copy", "equal", "unknown") if codec_of(cls).has(name)]

    data = encode(Outer(inner=[Inner(text="x")]))
    assert compiled(Outer) == compiled(Inner) == ["encode"]
    assert decode(Outer, data).inner[0].text == "x"
    assert compiled(Outer) == compiled(Inner) == ["encode", "decode"]
    assert equal(copy_message(Inner(text="x")), Inner(text="x"))
    assert compiled(Outer) == ["encode", "decode"]
    assert compiled(Inner) == ["encode", "decode", "copy", "equal"]


def test_type_hints_of_a_generated_class_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them takes long, and betterproto2 asks for them for each field."""
    asked: list[type] = []

    def note(cls: type, *arguments: Any) -> Any:
        asked.append(cls)
        return get_type_hints(cls, *arguments)

    monkeypatch.setattr("betterproto2.get_type_hints", note)

    @generated_dataclass(eq=False, repr=False)
    class Generated(betterproto2.Message):
        one: int = betterproto2.field(1, betterproto2.TYPE_INT32)
        two: str = betterproto2.field(2, betterproto2.TYPE_STRING)

    assert decode(Generated, encode(Generated(one=1, two="x"))) == Generated(one=1, two="x")
    assert asked == [Generated]

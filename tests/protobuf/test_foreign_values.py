"""Values of other libraries' classes in fields: each is stored as what it is, or refused, whatever its value."""

from __future__ import annotations

import array
import collections
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pytest

from headway.errors import PayloadError
from headway.protobuf import decode, encode, field, message

KINDS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")


@message
class Numbers:
    int32: int = field(1, kind="int32")
    int64: int = field(2, kind="int64")
    uint32: int = field(3, kind="uint32")
    uint64: int = field(4, kind="uint64")
    sint32: int = field(5, kind="sint32")
    sint64: int = field(6, kind="sint64")
    fixed32: int = field(7, kind="fixed32")
    fixed64: int = field(8, kind="fixed64")
    sfixed32: int = field(9, kind="sfixed32")
    sfixed64: int = field(10, kind="sfixed64")


@message
class Lists:
    int32: list[int] = field(1, kind="int32")
    int64: list[int] = field(2, kind="int64")
    uint32: list[int] = field(3, kind="uint32")
    uint64: list[int] = field(4, kind="uint64")
    sint32: list[int] = field(5, kind="sint32")
    sint64: list[int] = field(6, kind="sint64")
    fixed32: list[int] = field(7, kind="fixed32")
    fixed64: list[int] = field(8, kind="fixed64")
    sfixed32: list[int] = field(9, kind="sfixed32")
    sfixed64: list[int] = field(10, kind="sfixed64")


@message
class Many:
    texts: list[str] = field(1)
    numbers: list[int] = field(2)
    ratios: list[float] = field(3)
    switches: list[bool] = field(4)
    others: list[Numbers] = field(5)
    by_text: dict[str, str] = field(6)
    data: bytes = field(7)
    blobs: list[bytes] = field(8)


class Short:
    """An integer of 16 bits, whose arithmetic overflows without a word, as numpy's does."""

    def __init__(self, value: int) -> None:
        self._value = (value + 0x8000) % 0x10000 - 0x8000

    def __index__(self) -> int:
        return self._value

    def __bool__(self) -> bool:
        return self._value != 0

    def __lt__(self, other: int) -> bool:
        return self._value < other

    def __le__(self, other: int) -> bool:
        return self._value <= other

    def __gt__(self, other: int) -> bool:
        return self._value > other

    def __ge__(self, other: int) -> bool:
        return self._value >= other

    def __add__(self, other: Any) -> Short:
        return Short(self._value + int(other))

    def __lshift__(self, other: int) -> Short:
        return Short(self._value << other)

    def __invert__(self) -> Short:
        return Short(~self._value)

    def __and__(self, other: int) -> Short:
        if other >= 0x8000:
            raise OverflowError("Python integer out of bounds for int16")
        return Short(self._value & other)


@pytest.mark.parametrize("kind", KINDS)
def test_integer_of_another_class_is_stored_as_its_value(kind: str) -> None:
    for value in (0, 1, 63, 64, 127, 128, 300, 20_000, 0x7FFF, -1, -64, -65, -300, -20_000, -0x8000):
        single = Numbers(**cast("Any", {kind: Short(value)}))
        many = Lists(**cast("Any", {kind: [Short(value), Short(1)]}))
        if value < 0 and kind in ("uint32", "uint64", "fixed32", "fixed64"):
            for refused in (single, many):
                with pytest.raises(PayloadError, match=rf"{kind} has the invalid value"):
                    encode(refused)
        else:
            assert encode(single) == encode(Numbers(**{kind: value}))
            assert decode(Numbers, encode(single)) == Numbers(**{kind: value})
            assert encode(many) == encode(Lists(**{kind: [value, 1]}))


class FalseArray(list[int]):
    """A sequence whose truth value is that of its only element, as numpy's arrays have it."""

    def __bool__(self) -> bool:
        if len(self) != 1:
            raise ValueError("the truth value of an array is ambiguous")
        return bool(self[0])


def test_list_is_stored_whatever_its_truth_value() -> None:
    for numbers in ([0], [5], [], [1, 2]):
        assert encode(Many(numbers=FalseArray(numbers))) == encode(Many(numbers=numbers))
        ratios: Any = FalseArray(numbers)
        assert encode(Many(ratios=ratios)) == encode(Many(ratios=[float(each) for each in numbers]))


def test_iterator_is_refused_for_a_list_since_its_second_use_would_be_empty() -> None:
    empty: Iterator[Any] = iter(())
    for name in ("texts", "numbers", "ratios", "switches", "others", "blobs"):
        for iterator in (empty, (each for each in empty), map(str, []), zip()):
            with pytest.raises(PayloadError, match=rf"Many\.{name} has the invalid value .*: use list\(\.\.\.\)"):
                encode(Many(**cast("Any", {name: iterator})))
    given: Any = iter(["a", "b"])
    with pytest.raises(PayloadError, match=r"an iterator can be read only once: use list\(\.\.\.\)"):
        encode(Many(texts=given))
    assert list(given) == ["a", "b"]


@pytest.mark.parametrize(
    "make", [list, tuple, collections.deque, dict.fromkeys, lambda each: dict.fromkeys(each).keys()]
)
def test_collection_stands_for_a_list_unless_it_is_a_map(make: Callable[[list[str]], Any]) -> None:
    given = Many(texts=make(["a", "b"]))
    if isinstance(given.texts, Mapping):
        with pytest.raises(PayloadError, match=r"expected list\[str\]"):
            encode(given)
    else:
        assert encode(given) == encode(given) == encode(Many(texts=["a", "b"]))


def test_numbers_of_a_memory_are_refused_for_a_list_as_those_of_bytes_are() -> None:
    given: Any = memoryview(b"ab")
    with pytest.raises(PayloadError, match=r"Many\.numbers has the invalid value .*: expected list\[int\]"):
        encode(Many(numbers=given))


def test_buffer_of_longer_numbers_is_stored_with_its_length_in_bytes() -> None:
    numbers = array.array("H", [1, 2, 3])
    for given in (numbers, memoryview(numbers)):
        stored = decode(Many, encode(Many(data=given, blobs=[given, b"end"])))  # type: ignore[arg-type,list-item]  # buffers
        assert stored.data == numbers.tobytes()
        assert stored.blobs == [numbers.tobytes(), b"end"]


class Pairs:
    """A class with the method of a map that is none."""

    def __init__(self, *pairs: tuple[str, str]) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def items(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)


def test_map_field_takes_only_a_mapping_whether_it_is_empty_or_not() -> None:
    for pairs in (Pairs(), Pairs(("a", "b"))):
        given: Any = pairs
        with pytest.raises(PayloadError, match=r"Many\.by_text has the invalid value .*: expected dict\[str, str\]"):
            encode(Many(by_text=given))
    ordered = collections.OrderedDict(a="b")
    assert encode(Many(by_text=ordered)) == encode(Many(by_text={"a": "b"}))

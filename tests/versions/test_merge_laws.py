"""Laws of the merge for every content: repeated elements, equal keys, presence, NaN and enums."""

from __future__ import annotations

import enum
import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from headway.base import finished
from headway.protobuf import decode, encode, field, message
from headway.versions import merges


class Mood(enum.IntEnum):
    NONE = 0
    GOOD = 1
    BAD = 2


@message
class Item:
    name: str = field(1)
    size: int = field(2)
    note: str | None = field(3)
    rate: float = field(4)


@message
class Box:
    items: list[Item] = field(1)
    named: dict[str, Item] = field(2)
    weights: list[float] = field(3)
    weight: float = field(4)
    moods: list[Mood] = field(5)
    mood: Mood | None = field(6)
    inner: Item | None = field(7)
    rates: dict[int, float] = field(8)


NAMES = st.sampled_from(["", "a", "b"])
FLOATS = st.sampled_from([0.0, 1.0, math.nan, -math.inf])
MOODS = st.sampled_from(Mood)
ITEMS = st.builds(Item, name=NAMES, size=st.integers(0, 2), note=st.none() | NAMES, rate=FLOATS)
BOXES = st.builds(
    Box,
    items=st.lists(ITEMS, max_size=4),
    named=st.dictionaries(NAMES, ITEMS, max_size=3),
    weights=st.lists(FLOATS, max_size=4),
    weight=FLOATS,
    moods=st.lists(MOODS, max_size=3),
    mood=st.none() | MOODS,
    inner=st.none() | ITEMS,
    rates=st.dictionaries(st.integers(-1, 1), FLOATS, max_size=3),
)


def sent(box: Box) -> Box:
    """Return the message as a server decodes it. No two numbers are then the same object."""
    return decode(Box, encode(box))


def content(box: Box) -> bytes:
    """Return the content as bytes, with the entries of maps in order."""
    named, rates = dict(sorted(box.named.items())), dict(sorted(box.rates.items()))
    ordered = sent(box)
    ordered.named, ordered.rates = named, rates
    return encode(ordered)


@given(before=BOXES, after=BOXES)
def test_writer_who_saw_everything_gets_what_it_wrote(before: Box, after: Box) -> None:
    """The stored message has nothing that the writer could not see, so the write replaces all of it."""
    *_, result = map(finished, merges(sent(before), sent(after), sent(before)))
    assert content(result) == content(after)


@given(before=BOXES, stored=BOXES)
def test_write_without_a_change_keeps_what_is_stored(before: Box, stored: Box) -> None:
    for result in map(finished, merges(sent(before), sent(before), sent(stored))):
        assert encode(result) == encode(stored)


@given(before=BOXES, after=BOXES, stored=BOXES)
def test_map_entries_are_merged_by_their_keys(before: Box, after: Box, stored: Box) -> None:
    """The writer decides about an entry that it changed, added or removed; every other entry stays as stored."""
    for result in map(finished, merges(sent(before), sent(after), sent(stored))):
        for key in {*before.rates, *after.rates, *stored.rates}:
            old, new, there = (bits(each.rates.get(key)) for each in (before, after, stored))
            expected = there if old == new or (old is None and there is not None) else new
            assert bits(result.rates.get(key)) == expected


def bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("d", value)


def test_nan_that_the_writer_saw_is_not_added_again() -> None:
    """NaN is unlike every number, also itself, but the stored element is the one that the writer saw."""
    before, after, stored = Box(weights=[math.nan]), Box(weights=[math.nan, 2.0]), Box(weights=[5.0, math.nan])
    for result in map(finished, merges(sent(before), sent(after), sent(stored))):
        assert [repr(each) for each in result.weights] == ["5.0", "nan", "2.0"]


def test_changed_element_is_the_stored_one_with_the_same_content() -> None:
    """Another element at its index has the same first field, but other content."""
    one, two = Item(name="a", size=1), Item(name="a", size=2)
    before, after = Box(items=[one, two]), Box(items=[Item(name="a", size=1, note="new"), two])
    for result in map(finished, merges(before, after, Box(items=[two, one]))):
        assert sorted((each.size, each.note) for each in result.items) == [(1, "new"), (2, None)]

"""Counting the fields of encoded bytes before they are decoded."""

from __future__ import annotations

import pytest

from headway.errors import PayloadError
from headway.protobuf import check_field_count, encode, field, message, varint
from headway.resource import pb
from tests.helpers.declared import a_note, a_status


@message
class Leaf:
    text: str = field(1)


@message
class Tree:
    leaf: Leaf = field(1)
    leaves: list[Leaf] = field(2)
    by_name: dict[str, Leaf] = field(3)
    sizes: dict[str, int] = field(4)
    numbers: list[int] = field(5)
    ratios: list[float] = field(6)
    text: str = field(7)


COUNTS: list[tuple[Tree, int]] = [
    (Tree(), 0),
    (Tree(leaf=Leaf(text="x")), 2),
    (Tree(leaves=[Leaf(text="x"), Leaf(), Leaf(text="y")]), 5),
    (Tree(by_name={"a": Leaf(text="x"), "b": Leaf()}), 7),
    (Tree(sizes={"a": 1, "b": 2}), 6),
    (Tree(numbers=[1, 2, 3, 4]), 5),
    (Tree(numbers=[1000, -1, 0, 1 << 62]), 5),
    (Tree(ratios=[1.0, 2.0]), 3),
    (Tree(text="as long as it is, a text is one" * 100), 1),
]


@pytest.mark.parametrize(("tree", "count"), COUNTS)
def test_fields_are_counted_within_the_bound(tree: Tree, count: int) -> None:
    """Nested messages, entries and packed lists count. A bound of one less is refused, with the class and the bound."""
    data = encode(tree)
    check_field_count(Tree, data, count)
    if count:
        with pytest.raises(PayloadError, match=f"not a valid Tree: it has more than {count - 1} fields"):
            check_field_count(Tree, data, count - 1)


@pytest.mark.parametrize(("number", "times"), [(10, 999), (1000, 600), (-1, 500)])
def test_size_of_a_packed_number_makes_no_difference(number: int, times: int) -> None:
    check_field_count(Tree, encode(Tree(numbers=[number] * times)), 1000)
    with pytest.raises(PayloadError, match="more than 1000 fields"):
        check_field_count(Tree, encode(Tree(numbers=[number] * 1001)), 1000)


@pytest.mark.parametrize("field", [b"\x98\x06\x01", b"\x99\x06" + b"x" * 8, b"\x9d\x06" + b"x" * 4, b"\x9a\x06\x00"])
def test_unknown_fields_are_counted(field: bytes) -> None:
    """They are counted alone and in a group."""
    for data in (field * 11, b"\xa3\x06" + field * 10 + b"\xa4\x06"):
        check_field_count(Tree, data, 12)
        with pytest.raises(PayloadError):
            check_field_count(Tree, data, 10)


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\xff", b"\x0a\x05x", b"\xff" * 20, b"\x0f"])
def test_malformed_bytes_are_left_to_the_decoder(data: bytes) -> None:
    """The decoder's error explains the problem."""
    check_field_count(Tree, data, 100)


def test_payload_counts_as_one_field() -> None:
    """The payload's own fields are not counted: to the service they are bytes."""
    resource = a_note(status={"mine": a_status()})
    resource.data.value = b"\x08\x01" * 5000  # type: ignore[union-attr]  # it has data
    request = pb.WriteRequest(resource=resource)
    check_field_count(pb.WriteRequest, encode(request), 20)


def test_count_stops_at_the_bound() -> None:
    """The input may be much longer."""
    entry = b"\x2a\x04\x0a\x00\x12\x00"
    data = b"\x0a" + varint(len(entry) * 100_000) + entry * 100_000
    with pytest.raises(PayloadError, match="more than 1000 fields"):
        check_field_count(pb.WriteRequest, data, 1000)

"""A decoder whose results share equal parts reads the same as the decoder of their class."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headway.errors import PayloadError
from headway.protobuf import decoder_of, encode, field, message, sharing_decoder_of
from headway.resource import pb
from tests.protobuf.test_codec import resources

Read = Callable[[bytes, int, int], Any]


@message
class Branch:
    node: "Node | None" = field(1)


@message
class Node:
    """A class that contains itself, by another class that holds the part only so."""

    branches: list[Branch] = field(1)
    type: pb.Type | None = field(2)


def sharing() -> Read:
    return sharing_decoder_of(pb.Resource, pb.Type, pb.Tenancy)


def result(read: Read, data: bytes, begin: int, end: int) -> Any:
    try:
        return read(data, begin, end)
    except PayloadError as error:
        return str(error)


@given(resources, resources)
def test_result_is_that_of_the_usual_decoder(first: pb.Resource, second: pb.Resource) -> None:
    read, usual = sharing(), decoder_of(pb.Resource)
    for original in (first, second, first):
        data = b"-" + encode(original) + b"-"
        assert read(data, 1, len(data) - 1) == usual(data, 1, len(data) - 1) == original


@given(st.lists(resources, max_size=3), st.data())
def test_damaged_bytes_have_the_result_of_the_usual_decoder(warm: list[pb.Resource], draw: st.DataObject) -> None:
    read, usual = sharing(), decoder_of(pb.Resource)
    for each in warm:
        read(encode(each), 0, len(encode(each)))
    data = bytearray(encode(draw.draw(resources)))
    for _ in range(draw.draw(st.integers(1, 3))):
        if data:
            data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    end = draw.draw(st.integers(0, len(data)))
    assert result(read, bytes(data), 0, end) == result(usual, bytes(data), 0, end)


def made(name: str, namespace: str = "default", unknown: bytes = b"") -> bytes:
    type = pb.Type(group="staff", group_version="v1", kind="Team")
    type._unknown_fields = unknown
    tenancy = pb.Tenancy(partition="default", namespace=namespace)
    return encode(pb.Resource(id=pb.Id(name=name, type=type, tenancy=tenancy), metadata={"a": name}))


def ids(read: Read, *bodies: bytes) -> list[Any]:
    return [read(body, 0, len(body)).id for body in bodies]


def test_only_equal_parts_are_one_object() -> None:
    one, two, three = ids(sharing(), made("one"), made("two"), made("three", "other", b"\xa8\x06\x01"))
    assert one is not two
    assert one.type is two.type
    assert one.tenancy is two.tenancy
    assert three.tenancy == pb.Tenancy(partition="default", namespace="other")
    assert three.type._unknown_fields == b"\xa8\x06\x01"
    assert one.type._unknown_fields == b""


def test_decoders_share_nothing_with_each_other() -> None:
    assert ids(sharing(), made("one"))[0].type is not ids(sharing(), made("one"))[0].type


def test_kept_parts_are_few_and_are_all_forgotten_for_another_one() -> None:
    """Without a bound, a server could make a client keep as much as it likes. Those in use are soon kept again."""
    read = sharing_decoder_of(pb.Resource, pb.Tenancy, most=2)
    one, also_one, two, other, again, also_again = (
        found.tenancy for found in ids(read, *(made("a", namespace) for namespace in ("1", "1", "2", "3", "1", "1")))
    )
    assert one is also_one
    assert again == one
    assert again is not one
    assert also_again is again
    assert (two.namespace, other.namespace) == ("2", "3")


def test_long_parts_are_not_kept() -> None:
    for size, is_kept in ((900, True), (1025, False)):
        left, right = ids(sharing(), made("1", "n" * size), made("2", "n" * size))
        assert left.tenancy == right.tenancy
        assert (left.tenancy is right.tenancy) is is_kept


def test_class_that_contains_itself_shares_at_every_depth() -> None:
    type = pb.Type(group="staff", kind="Team")
    data = encode(Node(type=type, branches=[Branch(node=Node(type=type)), Branch()]))
    root = sharing_decoder_of(Node, pb.Type)(data, 0, len(data))
    assert root == decoder_of(Node)(data, 0, len(data))
    assert root.branches[0].node is not None
    assert root.type is root.branches[0].node.type


def test_class_without_the_part_is_decoded_as_usual() -> None:
    data = encode(pb.Tenancy(partition="one"))
    assert sharing_decoder_of(pb.Tenancy, pb.Type)(data, 0, len(data)) == pb.Tenancy(partition="one")

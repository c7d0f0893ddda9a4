"""Oneofs of declared messages: `field(..., oneof=...)`."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from headway.errors import DeclarationError
from headway.protobuf import decode, encode, field, message, payload_files
from headway.resource import ResourceType, describe, rebuild


@message(name="test.Target")
class Target:
    name: str = field(1)


@message(name="test.Choice")
class Choice:
    peer: str | None = field(1, oneof="who")
    port: int | None = field(2, kind="uint32", oneof="who")
    target: Target | None = field(3, oneof="who")
    note: str = field(4)


CHOICE = ResourceType("test", "v1", "Choice", Choice)


def by_protobuf() -> Any:
    """Return the class that Google's protobuf makes from our description."""
    described = [descriptor_pb2.FileDescriptorProto.FromString(each) for each in payload_files(describe([CHOICE]), {})]
    pool = descriptor_pool.DescriptorPool()
    for file in sorted(described, key=lambda each: len(each.dependency)):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Choice"))


@pytest.mark.parametrize(
    ("declared", "arm"),
    [
        (Choice(note="a"), None),
        (Choice(peer=""), "peer"),
        (Choice(peer="a"), "peer"),
        (Choice(port=0), "port"),
        (Choice(target=Target()), "target"),
    ],
)
def test_arm_that_is_set_is_the_one_that_protobuf_sees(declared: Choice, arm: str | None) -> None:
    """An arm is sent even if it is empty, because its presence is what counts."""
    theirs = by_protobuf().FromString(encode(declared))
    assert theirs.WhichOneof("who") == arm
    assert encode(decode(Choice, theirs.SerializeToString())) == encode(declared)


def test_last_arm_on_the_wire_wins() -> None:
    both = encode(Choice(peer="a")) + encode(Choice(port=3))
    decoded = decode(Choice, both)
    assert (decoded.peer, decoded.port) == (None, 3)


def test_oneof_is_part_of_the_description() -> None:
    [described] = [each for each in describe([CHOICE]).messages if each.full_name == "test.Choice"]
    assert [each.oneof for each in described.fields] == ["who", "who", "who", ""]
    rebuilt = {str(each.name): each for each in rebuild(describe([CHOICE]))[0]}["test.v1.Choice"]
    assert decode(rebuilt.payload, encode(Choice(peer=""))).peer == ""


@pytest.mark.parametrize(
    ("annotation", "oneof", "words"),
    [
        (str, "who", "must be `X | None`"),
        (list[str], "who", "must be `X | None`"),
        (str | None, "", "must be the name of a oneof, such as `field\\(1, oneof='kind'\\)`"),
        (str | None, "a b", "must be the name of a oneof"),
        (str | None, 3, "must be the name of a oneof"),
        (str | None, "peer", "is also the name of a field"),
    ],
)
def test_invalid_oneof_is_refused(annotation: Any, oneof: Any, words: str) -> None:
    body = {"__annotations__": {"peer": annotation}, "peer": field(1, oneof=oneof)}
    with pytest.raises(DeclarationError, match=words):
        message(type("Wrong", (), body))

"""Payloads read by protobuf's own library from their generated descriptors."""

from __future__ import annotations

import enum
from importlib.resources import files
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given

from headway import field, message
from headway.protobuf import decode, encode, equal, payload_files
from headway.resource import Registry, ResourceType, Scope, describe, pb
from headway.rpc import DescribedFiles
from tests.manifest.messages import EVERY, REGISTRY, Every, every

SERVICES = (files("headway._gen") / "descriptors.bin").read_bytes()


def pool_of(registry: Registry, known: DescribedFiles | None = None) -> DescriptorPool:
    """Return protobuf's own pool with the files of a registry's payloads. It refuses an incomplete file."""
    known = known or DescribedFiles.of_set(SERVICES)
    pool = DescriptorPool()
    for each in FileDescriptorSet.FromString(SERVICES).file:
        pool.Add(each)
    described = [FileDescriptorProto.FromString(each) for each in payload_files(describe(registry), known.symbols)]
    names = {each.name for each in described}
    added: set[str] = set()
    while len(added) < len(described):
        ready = [each for each in described if each.name not in added and not (names & {*each.dependency}) - added]
        assert ready, "the files import each other in a cycle"
        for each in ready:
            pool.Add(each)
            added.add(each.name)
    for each in described:
        pool.FindFileByName(each.name)
    return pool


def registry(**types: type[Any]) -> Registry:
    made = Registry()
    for kind, payload in types.items():
        made.register(ResourceType("test", "v1", kind, payload, scope=Scope.CLUSTER))
    return made


POOL = pool_of(REGISTRY)
THEIRS = GetMessageClass(POOL.FindMessageTypeByName(EVERY.type_url.rpartition("/")[2]))


@given(every)
def test_protobuf_round_trips_every_kind_of_field_by_its_descriptor(value: Every) -> None:
    theirs = THEIRS.FromString(encode(value))
    assert equal(decode(Every, theirs.SerializeToString()), value)


def test_absent_field_differs_from_an_empty_one() -> None:
    """proto3 uses a oneof of its own for such a field."""
    absent, empty = THEIRS.FromString(encode(Every())), THEIRS.FromString(encode(Every(maybe_text="", maybe_int=0)))
    assert [absent.HasField(name) for name in ("maybe_text", "maybe_int")] == [False, False]
    assert [empty.HasField(name) for name in ("maybe_text", "maybe_int")] == [True, True]


class Color(enum.IntEnum):
    RED = 1
    NONE = 0
    CRIMSON = 1
    GRÜN = 2


class Shade(enum.IntEnum):
    NONE = 0


@message(name="paint.Pot")
class Pot:
    color: Color = field(1)
    shades: dict[str, Shade] = field(2)
    lid: Lid | None = field(3)


@message(name="paint.Lid")
class Lid:
    pots: list[Pot] = field(1)


@message(name="paint.Pot.Label.Print")
class Print:
    text: str = field(1)
    shelf: Shelf | None = field(2)


@message(name="store.Shelf")
class Shelf:
    prints: list[Print] = field(1)
    number: int = field(2)


def test_mutually_recursive_messages_share_a_file_without_clashes() -> None:
    """The file has two enums with equal value names, one with an alias whose first value is 0, and a non-ASCII name."""
    pool = pool_of(registry(Pot=Pot))
    pot = GetMessageClass(pool.FindMessageTypeByName("paint.Pot"))
    assert pool.FindFileContainingSymbol("paint.Pot") is pool.FindFileContainingSymbol("paint.Lid")
    given = Pot(color=Color.RED, shades={"a": Shade.NONE}, lid=Lid(pots=[Pot()]))
    assert MessageToDict(pot.FromString(encode(given))) == {
        "color": "RED",
        "shades": {"a": "NONE"},
        "lid": {"pots": [{}]},
    }
    names = ["NONE", "RED", "CRIMSON", "VALUE_3"]
    assert [each.name for each in pool.FindEnumTypeByName("paint.ColorEnum.Color").values] == names


def test_cyclic_packages_are_described_as_far_as_imports_allow() -> None:
    """A nested message is found. A field whose type cannot be imported is described as bytes, and kept."""
    pool = pool_of(registry(Pot=Pot, Print=Print))
    assert pool.FindMessageTypeByName("paint.Pot.Label.Print").containing_type.name == "Label"
    shelf = GetMessageClass(pool.FindMessageTypeByName("store.Shelf"))
    given = Shelf(prints=[Print(text="a")], number=2)
    theirs = shelf.FromString(encode(given))
    assert (theirs.number, theirs.SerializeToString()) == (2, encode(given))


def test_known_files_are_imported_and_oneofs_are_kept() -> None:
    """Cases: a payload with a reference, and a generated one that the server cannot describe."""

    @message(name="test.Link")
    class Link:
        to: pb.Reference | None = field(1)

    pool = pool_of(registry(Link=Link))
    (to,) = pool.FindMessageTypeByName("test.Link").fields
    assert to.message_type.full_name == "headway.resource.v1.Reference"
    described = [
        FileDescriptorProto.FromString(each)
        for each in payload_files(describe(registry(Event=pb.WatchEvent)), {"google.protobuf.Timestamp": "a.proto"})
    ]
    (event,) = [each for file in described for each in file.message_type if each.name == "WatchEvent"]
    (arms,) = event.oneof_decl
    assert arms.name == "event"
    assert {"upsert", "delete"} <= {each.name for each in event.field if each.HasField("oneof_index")}


def test_classes_with_the_same_name_are_one_message() -> None:
    """A type URL can't distinguish them either."""
    first: type[Any] = message(name="test.Same")(type("Same", (), {"__annotations__": {"a": str}, "a": field(1)}))
    second: type[Any] = message(name="test.Same")(type("Same", (), {"__annotations__": {"b": int}, "b": field(2)}))
    pool = pool_of(registry(First=first, Second=second))
    assert [each.name for each in pool.FindMessageTypeByName("test.Same").fields] == ["a"]

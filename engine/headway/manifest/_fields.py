"""Read from a message class which fields a manifest may give, and what each of them holds."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

import betterproto2
from betterproto2.casing import camel_case

Shape = Literal["single", "optional", "repeated", "map"]


@dataclass(frozen=True, slots=True)
class Element:
    """What one value is.

    Attributes:
        kind: its protobuf kind, or "timestamp" or "duration".
        message: the class of a message.
        enum: what makes a member of an enum from its number.
        wrapped: whether the program holds not the message but what its ``to_wrapped`` gives.
    """

    kind: str
    message: type[Any] | None = None
    enum: Any = None
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message."""

    name: str
    shape: Shape
    element: Element
    key: Element | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class MessageFields:
    """The fields of a message class in the order of their declaration, and every accepted spelling of their names."""

    by_name: dict[str, Field]
    spellings: dict[str, str]


def fields_of(cls: type[Any]) -> MessageFields:
    """The fields of a message class."""
    # To the stubs of `cache` a type[Any] is not hashable.
    return _fields_of(cast("Any", cls))


@cache
def _fields_of(cls: Any) -> MessageFields:
    # betterproto2's classproperty is typed so that nothing may ask it.
    metadata: betterproto2.ProtoClassMetadata = cast("Any", cls)._betterproto
    fields = {name: _field(name, meta, metadata) for name, meta in metadata.meta_by_field_name.items()}
    # A generated name that is a keyword of Python ends in an underscore, which the .proto file doesn't have.
    spellings = {camel_case(name): name for name in fields} | {name.rstrip("_"): name for name in fields}
    return MessageFields(fields, spellings | {name: name for name in fields})


@cache
def enum_names(enum: Any) -> dict[str, int]:
    """The numbers of an enum by name, the names of the .proto file too where they are others."""
    # A declared message has a stand-in here for an IntEnum that is not betterproto2's.
    members = getattr(enum, "plain_enum", enum).__members__
    names = {name: int(member) for name, member in members.items()}
    return names | dict(enum.betterproto_renamed_proto_names_to_value())


def _field(name: str, meta: betterproto2.FieldMetadata, metadata: betterproto2.ProtoClassMetadata) -> Field:
    if meta.map_meta is not None:
        held = metadata.cls_by_field[f"{name}.value"]
        return Field(name, "map", _element(meta.map_meta[1], held), key=Element(meta.map_meta[0].proto_type))
    shape: Shape = "repeated" if meta.repeated else "optional" if meta.optional or meta.group else "single"
    if shape == "single" and metadata.default_gen[name]() is None:
        # A generated message holds None where a message, which proto3 lets always be absent, is not there.
        shape = "optional"
    return Field(name, shape, _element(meta, metadata.cls_by_field[name]), group=meta.group)


def _element(meta: betterproto2.FieldMetadata, held: Any) -> Element:
    if meta.proto_type == "enum":
        return Element("enum", enum=held)
    if meta.proto_type != "message":
        return Element(meta.proto_type)
    if meta.unwrap is None:
        return Element("message", message=held)
    if held is datetime.datetime:
        return Element("timestamp")
    if held is datetime.timedelta:
        return Element("duration")
    message: Any = meta.unwrap()
    value = message._betterproto.meta_by_field_name.get("value")
    if value is not None and value.proto_type != "message":
        # Int64Value and its like: a number that may be absent.
        return Element(value.proto_type)
    return Element("message", message=message, wrapped=True)

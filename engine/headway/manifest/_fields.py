"""Determine the fields that a manifest may set in a message, and the type of each field."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, cast

import betterproto2
from betterproto2.casing import camel_case

from headway.protobuf import secret_fields

Shape = Literal["single", "optional", "repeated", "map"]


@dataclass(frozen=True, slots=True)
class Element:
    """The type of a single value.

    Attributes:
        kind: the protobuf kind, or "timestamp" or "duration".
        message: the class of a message.
        enum: a callable that returns the member of an enum for a number.
        wrapped: True if the program holds the result of the message's ``to_wrapped`` instead of the message.
    """

    kind: str
    message: type[Any] | None = None
    enum: Any = None
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message."""

    name: str
    shape: Shape
    element: Element
    key: Element | None = None
    group: str | None = None
    secret: bool = False


@dataclass(frozen=True, slots=True)
class MessageFields:
    """The fields of a message class in order of declaration, with all accepted spellings of their names."""

    by_name: dict[str, Field]
    spellings: dict[str, str]


def fields_of(cls: type[Any]) -> MessageFields:
    """Return the fields of a message class."""
    # The stubs of `cache` do not accept type[Any] as hashable.
    return _fields_of(cast("Any", cls))


@cache
def _fields_of(cls: Any) -> MessageFields:
    # Cast, because the type of betterproto2's classproperty allows no access.
    metadata: betterproto2.ProtoClassMetadata = cast("Any", cls)._betterproto
    secret = secret_fields(cls)
    fields = {
        name: replace(_field(name, meta, metadata), secret=name in secret)
        for name, meta in metadata.meta_by_field_name.items()
    }
    # A generated name that would be a Python keyword ends in an underscore, which the .proto file doesn't have.
    spellings = {camel_case(name): name for name in fields} | {name.rstrip("_"): name for name in fields}
    return MessageFields(fields, spellings | {name: name for name in fields})


@cache
def enum_names(enum: Any) -> dict[str, int]:
    """Return the numbers of an enum by name. Names that are different in the .proto file are included too."""
    # A declared message has a `PlainEnum` here for an IntEnum that is not a betterproto2.Enum.
    members = getattr(enum, "plain_enum", enum).__members__
    names = {name: int(member) for name, member in members.items()}
    return names | dict(enum.betterproto_renamed_proto_names_to_value())


def _field(name: str, meta: betterproto2.FieldMetadata, metadata: betterproto2.ProtoClassMetadata) -> Field:
    if meta.map_meta is not None:
        held = metadata.cls_by_field[f"{name}.value"]
        return Field(name, "map", _element(meta.map_meta[1], held), key=Element(meta.map_meta[0].proto_type))
    shape: Shape = "repeated" if meta.repeated else "optional" if meta.optional or meta.group else "single"
    if shape == "single" and metadata.default_gen[name]() is None:
        # Generated classes use None for an absent message. In proto3, every message may be absent.
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
        # A wrapper such as Int64Value: a number that may be absent.
        return Element(value.proto_type)
    return Element("message", message=message, wrapped=True)

"""Describe message classes on the wire, for programs without these classes."""

from __future__ import annotations

import datetime
from typing import Any

import betterproto2

from headway._gen.headway.types import v1 as types_pb
from headway.protobuf._changes import changes_of
from headway.protobuf._names import full_name, nested_name
from headway.protobuf._plan import metadata_of


class Description:
    """A description of message classes, with every message and enum that they hold.

    Attributes:
        answer: the description on the wire, to which the caller adds the types.
    """

    def __init__(self) -> None:
        self.answer = types_pb.ListResponse()
        self._messages: dict[Any, int] = {}
        self._enums: dict[Any, int] = {}
        self._names: set[str] = set()

    def message(self, cls: type[Any], within: str = "") -> int:
        """Return the index of a class. Describe it first if it is new, as part of the message named ``within``."""
        if cls not in self._messages:
            self._messages[cls] = len(self._messages)
            described = types_pb.Message(full_name=full_name(cls) or self._free_name(nested_name(cls, within)))
            self._names.add(described.full_name)
            # Added before its fields, which may hold the same class.
            self.answer.messages.append(described)
            metadata = metadata_of(cls)
            described.fields = [
                self._field(metadata, name, described.full_name) for name in metadata.meta_by_field_name
            ]
            changes = changes_of(cls)
            described.reserved = [types_pb.Reserved(number, name) for number, name in sorted(changes.reserved.items())]
            for each in described.fields:
                each.former_names = list(changes.renamed.get(each.number, ()))
        return self._messages[cls]

    def _free_name(self, name: str) -> str:
        # Two modules may have classes with the same name.
        free, number = name, 1
        while free in self._names:
            number += 1
            free = f"{name}{number}"
        return free

    def _enum(self, enum: Any) -> int:
        if enum not in self._enums:
            self._enums[enum] = len(self._enums)
            values = [
                types_pb.EnumValue(name=name, number=int(member), proto_name=getattr(member, "proto_name", "") or "")
                for name, member in enum.__members__.items()
            ]
            self.answer.enums.append(types_pb.Enum(name=enum.__name__, values=values))
        return self._enums[enum]

    def _field(self, metadata: betterproto2.ProtoClassMetadata, name: str, within: str) -> types_pb.Field:
        meta = metadata.meta_by_field_name[name]
        made = types_pb.Field(name=name, number=meta.number, shape=_shape(meta, metadata, name), oneof=meta.group or "")
        held = metadata.cls_by_field[name]
        if meta.map_meta is not None:
            made.key_kind = meta.map_meta[0].proto_type
            held, meta = metadata.cls_by_field[f"{name}.value"], meta.map_meta[1]
        made.kind = _kind(meta, held)
        if made.kind in ("message", "wrapper"):
            made.held = self.message(meta.unwrap() if meta.unwrap else held, within)
        elif made.kind == "enum":
            made.held = self._enum(getattr(held, "plain_enum", held))
        return made


def _shape(meta: betterproto2.FieldMetadata, metadata: betterproto2.ProtoClassMetadata, name: str) -> types_pb.Shape:
    if meta.map_meta is not None:
        return types_pb.Shape.MAP
    if meta.repeated:
        return types_pb.Shape.REPEATED
    absent = meta.optional or meta.group or metadata.default_gen[name]() is None
    return types_pb.Shape.OPTIONAL if absent else types_pb.Shape.SINGLE


def _kind(meta: betterproto2.FieldMetadata, held: Any) -> str:
    if meta.proto_type != "message" or meta.unwrap is None:
        return meta.proto_type
    if held is datetime.datetime:
        return "timestamp"
    if held is datetime.timedelta:
        return "duration"
    message: Any = meta.unwrap()
    value = message._betterproto.meta_by_field_name.get("value")
    return "wrapper" if value is not None and value.proto_type != "message" else "message"

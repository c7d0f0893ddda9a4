"""Describe message classes on the wire, for programs without these classes, and rebuild them from a description."""

from __future__ import annotations

import datetime
import keyword
import types
from abc import ABCMeta
from collections.abc import Sequence
from typing import Any

import betterproto2

from headway._gen.headway.types import v1 as types_pb
from headway._gen.message_pool import dataclass as message_class
from headway.base import repr_text
from headway.protobuf._annotation import DURATION, TIMESTAMP, Annotation, Element
from headway.protobuf._declared import (
    Declaration,
    DeclaredMessage,
    changes_of,
    dataclass_field,
    full_name,
    nested_name,
)
from headway.protobuf._plan import metadata_of

_PYTHON: dict[str, type[Any]] = {"string": str, "bytes": bytes, "bool": bool, "float": float, "double": float}
_WHOLE = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
_PYTHON |= dict.fromkeys(_WHOLE, int)
_SHAPES: dict[types_pb.Shape, Any] = {
    types_pb.Shape.SINGLE: "single",
    types_pb.Shape.OPTIONAL: "optional",
    types_pb.Shape.REPEATED: "repeated",
    types_pb.Shape.MAP: "map",
}

_DEEPEST, _LARGEST = 100, 10_000
"""The limits on an empty message: its nesting depth, and the number of messages that it contains.

No program declares as many, but a server could send any number.
"""


class Description:
    """A description of message classes, with every message and enum that they hold.

    Attributes:
        answer: the description as a wire message. The caller adds the types to it.
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
            declared = cls._declaration.fields if issubclass(cls, DeclaredMessage) else {}
            described.fields = [
                self._field(metadata, name, described.full_name, secret=name in declared and declared[name].secret)
                for name in metadata.meta_by_field_name
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

    def _field(
        self, metadata: betterproto2.ProtoClassMetadata, name: str, within: str, *, secret: bool
    ) -> types_pb.Field:
        meta = metadata.meta_by_field_name[name]
        made = types_pb.Field(name=name, number=meta.number, shape=_shape(meta, metadata, name), oneof=meta.group or "")
        made.secret = secret
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


class RebuiltMessage(DeclaredMessage):
    """The base of the classes that `rebuild_messages` makes."""

    @classmethod
    def from_wrapped(cls, wrapped: Any) -> RebuiltMessage:
        """Return the wrapper message of a value. Only wrapper classes support this."""
        make: Any = cls
        made: RebuiltMessage = make(value=wrapped)
        return made

    def to_wrapped(self) -> Any:
        """Return the value that this message wraps."""
        return getattr(self, "value")  # noqa: B009 - only wrappers have it


def rebuild_messages(description: types_pb.ListResponse) -> list[type[Any]]:
    """Return the classes of the described messages. Raises LookupError, TypeError or ValueError if one is invalid."""
    _check_empty_messages(description.messages)
    return _Rebuilt(description).classes


class _Rebuilt:
    def __init__(self, description: types_pb.ListResponse) -> None:
        self._described = description.messages
        self._enums = [_enum(each) for each in description.enums]
        # All classes are made before their fields, since messages may contain each other.
        self.classes = [_class(each) for each in description.messages]
        for cls, described in zip(self.classes, description.messages, strict=True):
            self._add_fields(cls, described)

    def _add_fields(self, cls: type[Any], described: types_pb.Message) -> None:
        fields: dict[str, Annotation] = {}
        for field in described.fields:
            _check_field(field)
            key = Element(field.key_kind, _PYTHON[field.key_kind]) if field.key_kind else None
            # A server could mark anything. Only these can be redacted.
            secret = field.secret and field.kind in ("string", "bytes")
            annotation = Annotation(_SHAPES[field.shape], self._element(field), key, secret)
            fields[field.name] = annotation
            setattr(cls, field.name, dataclass_field(annotation, field.number, field.oneof or None))
        cls.__annotations__ = dict.fromkeys(fields, Any)
        cls._declaration = Declaration(cls.__name__, fields, [])
        message_class(eq=False, repr=False, kw_only=True)(cls)

    def _element(self, field: types_pb.Field) -> Element:
        if field.kind == "timestamp":
            return TIMESTAMP
        if field.kind == "duration":
            return DURATION
        if field.kind == "enum":
            return Element("enum", self._enums[field.held])
        if field.kind == "message":
            return Element("message", self.classes[field.held])
        if field.kind == "wrapper":
            wrapper = self.classes[field.held]
            kinds = {each.name: each.kind for each in self._described[field.held].fields}
            return Element("message", _PYTHON[kinds["value"]], lambda: wrapper)
        return Element(field.kind, _PYTHON[field.kind])


def _class(described: types_pb.Message) -> type[Any]:
    name = _checked(described.full_name.rpartition(".")[2])
    return ABCMeta(name, (RebuiltMessage,), {"__module__": __name__, "_message_name": described.full_name})


def _checked(name: str) -> str:
    """Return the name if it is a valid identifier, else raise ValueError.

    Dataclasses write field names into source code that they execute, so an unchecked name could inject code.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        raise ValueError(f"{repr_text(name, 80)} is not a valid name")
    return name


def _check_field(field: types_pb.Field) -> None:
    name = _checked(field.name)
    if name.startswith("_") or hasattr(betterproto2.Message, name):
        raise ValueError(f"{repr_text(name, 80)} is not a valid field name")


def _enum(described: types_pb.Enum) -> type[betterproto2.Enum]:
    renamed = {value.proto_name: value.number for value in described.values if value.proto_name}
    of_number = {number: name for name, number in renamed.items()}
    body: dict[str, Any] = {_checked(value.name): value.number for value in described.values}
    body["betterproto_renamed_proto_names_to_value"] = classmethod(lambda _: renamed)
    body["betterproto_value_to_renamed_proto_names"] = classmethod(lambda _: of_number)
    return types.new_class(described.name, (betterproto2.Enum,), exec_body=lambda made: made.update(body))


def _check_empty_messages(messages: Sequence[types_pb.Message]) -> None:
    """Raise ValueError if an empty instance of a message would contain itself, or exceed a limit."""
    needed = [_required(message) for message in messages]
    # The (depth, count) of each visited message, which includes itself, or None while it is being visited.
    known: dict[int, tuple[int, int] | None] = {}
    for first in range(len(messages)):
        # An explicit stack, since the descriptions that this guards against would exceed the recursion limit.
        stack = [first]
        while stack:
            place = stack[-1]
            if known.get(place) is not None:
                stack.pop()
                continue
            name = messages[place].full_name
            if place not in known:
                known[place] = None
                for held in needed[place]:
                    if held in known and known[held] is None:
                        raise ValueError(
                            f"an empty {repr_text(name, 80)} would contain "
                            f"{repr_text(messages[held].full_name, 80)} endlessly"
                        )
                    if held not in known:
                        stack.append(held)
                continue
            sizes = [size for held in needed[place] if (size := known[held]) is not None]
            deep = 1 + max((size[0] for size in sizes), default=0)
            many = 1 + sum(size[1] for size in sizes)
            if deep > _DEEPEST or many > _LARGEST:
                raise ValueError(
                    f"an empty {repr_text(name, 80)} would contain {many} messages, nested {deep} deep: "
                    f"the limits are {_LARGEST} and {_DEEPEST}"
                )
            known[place] = (deep, many)


def _required(message: types_pb.Message) -> list[int]:
    """Return the indexes of the messages that an empty message contains."""
    return [
        field.held
        for field in message.fields
        if field.shape == types_pb.Shape.SINGLE and field.kind in ("message", "wrapper")
    ]

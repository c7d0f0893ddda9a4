"""Build message classes from a server's description of its types."""

from __future__ import annotations

import dataclasses
import datetime
import keyword
import types
from abc import ABCMeta
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import betterproto2

from headway._gen.headway.types import v1 as types_pb
from headway.protobuf._annotation import Annotation, Element, Later, duration_message, timestamp_message
from headway.protobuf._declared import Declaration, DeclaredMessage
from headway.protobuf._rebuild_depth import check_empty_messages

_PYTHON: dict[str, type[Any]] = {"string": str, "bytes": bytes, "bool": bool, "float": float, "double": float}
_WHOLE = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
_PYTHON |= dict.fromkeys(_WHOLE, int)
_SHAPES: dict[types_pb.Shape, Any] = {
    types_pb.Shape.SINGLE: "single",
    types_pb.Shape.OPTIONAL: "optional",
    types_pb.Shape.REPEATED: "repeated",
    types_pb.Shape.MAP: "map",
}


def rebuild_messages(description: types_pb.ListResponse) -> Sequence[type[DeclaredMessage]]:
    """Return the classes of the described messages. Raises LookupError, TypeError or ValueError if one is invalid."""
    return _Rebuilding(description).messages


class RebuiltMessage(DeclaredMessage):
    """The base of the classes that `rebuild_messages` makes."""

    _declaration: ClassVar[Declaration]

    @classmethod
    def from_wrapped(cls, wrapped: Any) -> RebuiltMessage:
        """Return the wrapper message of a value. Only wrapper classes support this."""
        make: Any = cls
        made: RebuiltMessage = make(value=wrapped)
        return made

    def to_wrapped(self) -> Any:
        """Return the value that this message wraps."""
        return getattr(self, "value")  # noqa: B009 - only wrappers have it


class _Places(Declaration):
    """A declaration that finds the classes of fields by their index in the description."""

    def __init__(self, own_name: str, fields: dict[str, Annotation], messages: list[type[Any]]) -> None:
        super().__init__(own_name, fields, [])
        self._messages = messages

    def python(self, element: Element, cls: type[Any], field: str) -> type[Any]:
        """Return the class of an element, which may have been declared after the message."""
        if issubclass(element.python, Later):
            return self._messages[int(element.python.__name__)]
        return super().python(element, cls, field)


class _Rebuilding:
    def __init__(self, description: types_pb.ListResponse) -> None:
        check_empty_messages(description.messages)
        self._description = description
        self._enums = [_enum(each) for each in description.enums]
        self.messages: list[type[RebuiltMessage]] = []
        self.messages.extend(self._message(each) for each in description.messages)

    def _message(self, described: types_pb.Message) -> type[RebuiltMessage]:
        name = _checked(described.full_name.rpartition(".")[2])
        for each in described.fields:
            _check_field(each)
        fields = {each.name: self._annotation(each) for each in described.fields}
        body: dict[str, Any] = {each.name: self._field(each, fields[each.name]) for each in described.fields}
        body["__annotations__"] = dict.fromkeys(fields, Any)
        body["__module__"] = __name__
        made = cast("type[RebuiltMessage]", ABCMeta(name, (RebuiltMessage,), body))
        made._declaration = _Places(name, fields, self.messages)
        made._message_name = described.full_name
        return dataclasses.dataclass(eq=False, repr=False, kw_only=True)(made)

    def _annotation(self, field: types_pb.Field) -> Annotation:
        key = Element(field.key_kind, _PYTHON[field.key_kind]) if field.key_kind else None
        return Annotation(_SHAPES[field.shape], self._element(field), key)

    def _element(self, field: types_pb.Field) -> Element:
        kind, held = field.kind, field.held
        if kind == "timestamp":
            return Element("message", datetime.datetime, timestamp_message)
        if kind == "duration":
            return Element("message", datetime.timedelta, duration_message)
        if kind == "enum":
            return Element("enum", self._enums[held])
        if kind == "wrapper":
            value = next(each for each in self._description.messages[held].fields if each.name == "value")
            return Element("message", _PYTHON[value.kind], lambda: self.messages[held])
        if kind == "message":
            # Refer to it by index: it may come later, and it may contain this message.
            self._description.messages[held]
            return Element("message", type(str(held), (Later,), {}))
        return Element(kind, _PYTHON[kind])

    def _field(self, field: types_pb.Field, declared: Annotation) -> Any:
        element, unwrap = declared.element, cast("Any", declared.element.unwrap)
        if declared.key is not None:
            map_meta = betterproto2.map_meta(declared.key.proto_type, element.proto_type, unwrap_2=unwrap)
            return betterproto2.field(field.number, betterproto2.TYPE_MAP, map_meta=map_meta)
        made = betterproto2.field(
            field.number,
            element.proto_type,
            unwrap=unwrap,
            group=field.oneof or None,
            optional=declared.shape == "optional" and not field.oneof,
            repeated=declared.shape == "repeated",
            default_factory=(lambda: element.python(0)) if element.proto_type == "enum" else None,
        )
        if declared.shape == "single" and element.proto_type == "message":
            made.default_factory = self._empty(field, unwrap)
        return made

    def _empty(self, field: types_pb.Field, unwrap: Any) -> Callable[[], Any]:
        if unwrap is not None:
            return lambda: unwrap()().to_wrapped()
        return lambda: self.messages[field.held]()


def _checked(name: str) -> str:
    """Return the name if it is a valid identifier, else raise ValueError.

    Dataclasses write field names into source code that they execute, so an unchecked name could inject code.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        raise ValueError(f"{name!r:.80} is not a valid name")
    return name


def _check_field(field: types_pb.Field) -> None:
    name = _checked(field.name)
    if name.startswith("_") or hasattr(betterproto2.Message, name):
        raise ValueError(f"{name!r:.80} is not a valid field name")


def _enum(described: types_pb.Enum) -> type[betterproto2.Enum]:
    renamed = {value.proto_name: value.number for value in described.values if value.proto_name}
    of_number = {number: name for name, number in renamed.items()}
    body: dict[str, Any] = {_checked(value.name): value.number for value in described.values}
    body["betterproto_renamed_proto_names_to_value"] = classmethod(lambda _: renamed)
    body["betterproto_value_to_renamed_proto_names"] = classmethod(lambda _: of_number)
    return types.new_class(described.name, (betterproto2.Enum,), exec_body=lambda made: made.update(body))

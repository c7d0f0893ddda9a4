"""JSON schemas of messages, and an example of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from betterproto2.casing import camel_case

from headway.manifest import Element, Field, enum_names, fields_of

Schema = dict[str, Any]

_INT32: Schema = {"type": "integer", "format": "int32", "minimum": -(1 << 31), "maximum": (1 << 31) - 1}
_UINT32: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1}
# JavaScript would round them as numbers.
_INT64: Schema = {"type": "string", "format": "int64", "pattern": "^(0|-?[1-9][0-9]{0,18})$"}
_UINT64: Schema = {"type": "string", "format": "uint64", "pattern": "^(0|[1-9][0-9]{0,19})$"}
_FLOAT: Schema = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
# The schema and an example of each kind that is not a message or an enum. One table, so that no kind lacks an example.
_KINDS: Mapping[str, tuple[Schema, Any]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (_INT32, 7)),
    **dict.fromkeys(("uint32", "fixed32"), (_UINT32, 7)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (_INT64, "7")),
    **dict.fromkeys(("uint64", "fixed64"), (_UINT64, "7")),
    **dict.fromkeys(("float", "double"), (_FLOAT, 1.5)),
    "string": ({"type": "string"}, "text"),
    "bytes": ({"type": "string", "format": "byte"}, "aGVsbG8="),
    "bool": ({"type": "boolean"}, True),
    "timestamp": ({"type": "string", "format": "date-time"}, "2024-02-29T12:30:00Z"),
    "duration": ({"type": "string", "pattern": "^-?[0-9]{1,12}([.][0-9]{1,6})?s$"}, "1.5s"),
}
_DEEPEST = 3
"""The depth of the messages in an example, which a recursive message would otherwise not end."""


class Schemas:
    """The schemas of message classes, which refer to each other by name.

    Attributes:
        by_name: the schemas so far.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Schema] = {}
        self._names: dict[Any, str] = {}

    def reference(self, cls: Any, name: str = "") -> Schema:
        """Return a reference to the schema of a class, and add the schema under this or a free name."""
        if cls not in self._names:
            wanted = name or cls.__name__
            number = 1
            while wanted in self.by_name:
                number += 1
                wanted = f"{name or cls.__name__}{number}"
            self._names[cls] = wanted
            # A recursive message refers to itself while it is made.
            self.by_name[wanted] = {}
            self.by_name[wanted] = self._message(cls)
        return {"$ref": f"#/components/schemas/{self._names[cls]}"}

    def _message(self, cls: Any) -> Schema:
        fields = fields_of(cls).by_name
        properties = {camel_case(name): self._field(field) for name, field in fields.items()}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    def _field(self, field: Field) -> Schema:
        element = self._element(field.element)
        if field.secret:
            # Tools hide what is typed into such a field.
            element |= {"x-headway-secret": True}
            if field.element.kind == "string":
                element["format"] = "password"
        if field.shape == "repeated":
            return {"type": "array", "items": element}
        if field.key is not None:
            return {"type": "object", "additionalProperties": element}
        return element

    def _element(self, element: Element) -> Schema:
        if element.message is not None:
            return self.reference(element.message)
        if element.kind == "enum":
            return {"enum": sorted(enum_names(element.enum))}
        return dict(_KINDS[element.kind][0])


def example_of(cls: Any, depth: int = 0) -> dict[str, Any]:
    """Return an example of a message as JSON, with one value for each field, and for one field of each oneof."""
    made: dict[str, Any] = {}
    groups: set[str] = set()
    for name, field in fields_of(cls).by_name.items():
        if field.element.message is not None and depth == _DEEPEST:
            continue
        if field.group is not None:
            if field.group in groups:
                continue
            groups.add(field.group)
        value = _example(field.element, depth)
        if field.shape == "repeated":
            value = [value]
        elif field.key is not None:
            key = _example(field.key, depth)
            value = {("true" if key is True else str(key)): value}
        made[camel_case(name)] = value
    return made


def _example(element: Element, depth: int) -> Any:
    if element.message is not None:
        return example_of(element.message, depth + 1)
    if element.kind == "enum":
        return next(iter(enum_names(element.enum)))
    return _KINDS[element.kind][1]

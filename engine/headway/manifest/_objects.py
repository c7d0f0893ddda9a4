"""Convert payloads to protobuf's JSON form, which can be read back without loss."""

from __future__ import annotations

import math
from typing import Any

from betterproto2.casing import camel_case

from headway.manifest._dump import is_default, written_element
from headway.manifest._fields import Element, Field, fields_of

# These need quotes, since JavaScript would round them.
_LONG = ("int64", "uint64", "sint64", "fixed64", "sfixed64")


def as_object(payload: Any) -> dict[str, Any]:
    """Return a payload as a JSON object without defaults. Long numbers are strings, and so are all keys."""
    return _message(type(payload), payload)


def _message(cls: type[Any], message: Any) -> dict[str, Any]:
    values = ((name, field, getattr(message, name)) for name, field in fields_of(cls).by_name.items())
    return {camel_case(name): _field(field, value) for name, field, value in values if not is_default(field, value)}


def _field(field: Field, value: Any) -> Any:
    if field.shape == "repeated":
        return [_element(field.element, item) for item in value]
    if field.shape == "map":
        return {_key(key): _element(field.element, item) for key, item in value.items()}
    return _element(field.element, value)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _element(element: Element, value: Any) -> Any:
    if element.message is not None:
        return _message(element.message, element.message.from_wrapped(value) if element.wrapped else value)
    if element.kind in _LONG:
        return str(value)
    if element.kind in ("float", "double") and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return written_element(element, value)

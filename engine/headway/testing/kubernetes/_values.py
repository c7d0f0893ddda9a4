"""Patches of an object, and its pruning and checks by a structural schema. No I/O."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sized
from typing import Any, NamedTuple

from headway.testing.kubernetes._fields import MAPPINGS, copied

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_COUNTED = ("ready", "available", "updated", "unavailable", "current")
_OMITTED_ZEROS = frozenset(
    ("paused", "minReadySeconds", "suspend", "hostNetwork", "observedGeneration", *(f"{x}Replicas" for x in _COUNTED))
)
"""The fields of built-in types that are left out when they are zero or false."""


class Cause(NamedTuple):
    """A cause of a refusal, as in ``details.causes``."""

    reason: str
    message: str
    field: str


def wrong(field: str, value: Any) -> Cause:
    """Return the cause for a field with an invalid value."""
    return Cause("FieldValueInvalid", f"Invalid value: {json.dumps(value)}", field)


def required(field: str) -> Cause:
    """Return the cause for a field that is missing."""
    return Cause("FieldValueRequired", "Required value", field)


def json_patched(value: Any, operations: Any) -> Any:
    """Return a value after a JSON patch of ``test``, ``add``, ``replace`` and ``remove``. Raises ValueError."""
    found = copied(value)
    for each in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:]]
        node: Any = found
        try:
            for part in parts[:-1]:
                node = node[int(part) if isinstance(node, list) else part]
            _operate(node, parts[-1], each)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise ValueError(f"{each['op']} operation does not apply: {each['path']}") from error
    return found


def _operate(node: Any, key: Any, operation: Mapping[str, Any]) -> None:
    name, value = operation["op"], copied(operation.get("value"))
    if isinstance(node, list):
        key = len(node) if key == "-" else int(key)
        if name == "add":
            node.insert(key, value)
            return
    if name in ("add", "replace"):
        # An API server does not mind if the field to replace is absent.
        node[key] = value
    elif name == "remove":
        del node[key]
    elif node[key] != value:
        raise ValueError(key)


def plain(value: Any) -> Any:
    """Return a value of a built-in type as the server keeps it: without nulls and what its structures leave out."""
    if isinstance(value, dict):
        found = {key: plain(each) for key, each in value.items() if each is not None}
        return {
            key: each
            for key, each in found.items()
            if each or not (each == [] or key in MAPPINGS or key in _OMITTED_ZEROS)
        }
    return [plain(each) for each in value] if isinstance(value, list) else value


def pruned(value: Any, schema: Mapping[str, Any], dropped: list[str], at: str = "", *, root: bool = False) -> Any:
    """Return a value without nulls and the fields that a schema does not have, with its defaults."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [pruned(each, items, dropped, f"{at}[{index}]") for index, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    properties, more = schema.get("properties") or {}, schema.get("additionalProperties")
    found: dict[str, Any] = {}
    for key, each in value.items():
        path = _below(at, key)
        known = properties.get(key, more if isinstance(more, Mapping) else None)
        if root and key in ("apiVersion", "kind", "metadata"):
            found[key] = each
        elif known is not None and (each is not None or known.get("nullable")):
            found[key] = pruned(each, known, dropped, path)
        elif known is None and (schema.get("x-kubernetes-preserve-unknown-fields") or more is True):
            found[key] = each
        elif known is None:
            dropped.append(path)
    for key, known in properties.items():
        if "default" in known and key not in found:
            found[key] = pruned(copied(known["default"]), known, dropped)
    return found


_SIZES: Mapping[str, tuple[type[Sized], str]] = {
    "Length": (str, "FieldValueTooLong"),
    "Items": (list, "FieldValueTooMany"),
    "Properties": (dict, "FieldValueTooMany"),
}


def schema_causes(value: Any, schema: Mapping[str, Any], at: str = "", *, root: bool = False) -> Iterator[Cause]:
    """Iterate over what a schema finds wrong with a value: types, required fields, enums, bounds and duplicates."""
    kind = schema.get("type", "")
    if value is None and schema.get("nullable"):
        return
    whole = isinstance(value, float) and value.is_integer() and kind == "integer"
    if kind and not whole and (not isinstance(value, _TYPES[kind]) or isinstance(value, bool) != (kind == "boolean")):
        yield Cause("FieldValueTypeInvalid", f"{at} in body must be of type {kind}", at)
        return
    if "enum" in schema and value not in schema["enum"]:
        yield Cause("FieldValueNotSupported", f"Unsupported value: {json.dumps(value)}", at)
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield wrong(at, value)
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield wrong(at, value)
    for name, (sized, reason) in _SIZES.items():
        if isinstance(value, sized):
            if len(value) < schema.get(f"min{name}", 0):
                yield wrong(at, value)
            if len(value) > schema.get(f"max{name}", math.inf):
                yield Cause(reason, f"Too {'long' if sized is str else 'many'}: {len(value)}", at)
    if isinstance(value, dict):
        properties, more = schema.get("properties") or {}, schema.get("additionalProperties")
        yield from (required(_below(at, key)) for key in schema.get("required") or () if key not in value)
        for key, each in value.items():
            known = properties.get(key, more)
            if isinstance(known, Mapping) and not (root and key == "metadata"):
                yield from schema_causes(each, known, _below(at, key))
    if isinstance(value, list):
        seen: list[Any] = []
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        for index, each in enumerate(value):
            yield from schema_causes(each, schema.get("items") or {}, f"{at}[{index}]")
            key = {name: each.get(name) for name in keys} if keys and isinstance(each, dict) else each
            if key in seen and schema.get("x-kubernetes-list-type") in ("map", "set"):
                yield Cause("FieldValueDuplicate", f"Duplicate value: {json.dumps(key)}", f"{at}[{index}]")
            seen.append(key)


def _below(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


# Selectors.

_TERM = re.compile(r"\s*(!?)\s*([^\s!=,()]+)\s*(?:(==|=|!=)\s*([^,\s]*)|\s(in|notin)\s*\(([^)]*)\))?\s*(?:,|\Z)")


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    """Return True if a label selector matches. Raises ValueError for one that is invalid."""
    at, matches = 0, True
    while at < len(selector):
        found = _TERM.match(selector, at)
        if found is None:
            raise ValueError(selector)
        absent, key, operator, value, membership, values = found.groups()
        at = found.end()
        if operator:
            matches &= (labels.get(key) == value) != (operator == "!=")
        elif membership:
            matches &= (labels.get(key) in [each.strip() for each in values.split(",")]) != (membership == "notin")
        else:
            matches &= (key in labels) != bool(absent)
    return matches

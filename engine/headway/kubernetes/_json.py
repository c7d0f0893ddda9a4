"""Convert payloads of message classes to the JSON of Kubernetes objects and back. Pure.

Kubernetes writes whole numbers as numbers, durations as Go does (``1h30m``) and enums by name. JSON that a class does
not know, and JSON that the class would write in another form, is kept beside the known fields: as JSON bytes in the
field `KEPT` of the payload, which no class knows. So an object that is read, edited and written again differs from the
stored one only by the edit.

The functions for a class are made once: closures over its fields, because a cache is primed with thousands of objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, cast

from betterproto2.casing import camel_case

from headway.errors import DeclarationError
from headway.kubernetes._json_kinds import EPOCH, KINDS, NO_HALVES, Wrong, expected, key_of, kind_of
from headway.manifest import Field, fields_of
from headway.protobuf import decode, metadata_of, varint, wire_parts

KEPT = 536_870_911
"""The number of the field that keeps JSON as bytes: the highest number of protobuf."""

_KEPT_TAG = varint(KEPT << 3 | 2)
_NOTHING: Any = object()
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_KEYS = ("name", "type")
"""The JSON names of fields that may identify an item of a list."""


def payload_of(cls: type[Any], body: Mapping[str, Any]) -> bytes:
    """Return the payload of a JSON object, without its apiVersion, kind and metadata.

    Raises:
        PayloadError: A value does not fit its field. The message has the path of the field, the value and
            what is right.
    """
    parts: list[bytes] = []
    try:
        kept = _writer(cast("Any", cls))(body, parts)
    except Wrong as wrong:
        raise wrong.problem() from None
    return b"".join((*parts, *_kept_field(kept)))


def body_of(cls: type[Any], payload: bytes) -> dict[str, Any]:
    """Return the JSON object of a payload, with the JSON that was kept of what it was made of.

    Fields that are not set are left out, except those that the original object has.

    Raises:
        PayloadError: The payload is not valid, or JSON has no form of a value.
    """
    message = decode(cls, payload)
    try:
        return _reader(cast("Any", cls))(message, _kept_of(message))
    except Wrong as wrong:
        raise wrong.problem() from None


def has_oneof(cls: Any, within: frozenset[Any] = frozenset()) -> bool:
    """Return True if a message of a class, or one within it, has a oneof."""
    fields = () if cls in within else fields_of(cls).by_name.values()
    inner = within | {cls}
    return any(each.group or (each.element.message and has_oneof(each.element.message, inner)) for each in fields)


def with_kept(source: Any, wanted: type[Any], payload: bytes) -> bytes:
    """Return a payload that was converted from the message of another class, with what was kept beside that message.

    Fields that neither class knows stay. So a program that is older than a schema loses nothing.
    """
    return b"".join((payload, *_kept_field(_carried(type(source), _kept_of(source) or {}, wanted))))


def _carried(source: Any, kept: dict[str, Any], wanted: Any) -> dict[str, Any]:
    """Return the part of the kept JSON of one class that has a place beside the fields of another one."""
    of, to = ({json_name(cls, each.name): each for each in fields_of(cls).by_name.values()} for cls in (source, wanted))
    made: dict[str, Any] = {}
    for name, value in kept.items():
        one, other = of.get(name), to.get(name)
        if one is None or other is None:
            if one is other:
                made[name] = value
            continue
        inner, theirs = one.element.message, other.element.message
        several = {one.shape, other.shape} & {"map", "repeated"}
        if (inner is None) is not (theirs is None) or (several and one.shape != other.shape):
            continue
        if inner is None or not value:
            # The reader takes it only as another form of the same value.
            made[name] = value
        elif not several:
            made[name] = _carried(inner, value, theirs)
        elif one.shape == "map":
            made[name] = {key: _carried(inner, each, theirs) for key, each in value.items()}
        else:
            made[name] = {
                **value,
                "items": {key: _carried(inner, each, theirs) for key, each in value["items"].items()},
            }
    return made


def _kept_of(message: Any) -> dict[str, Any] | None:
    # Of two, the last one counts, as of every field of protobuf.
    found = [value for number, _, value in wire_parts(message._unknown_fields) if number == KEPT]
    return json.loads(found[-1]) if found else None


def _kept_field(kept: dict[str, Any] | None) -> tuple[bytes, ...]:
    if kept is None:
        return ()
    data = json.dumps(kept, separators=(",", ":")).encode()
    return _KEPT_TAG, varint(len(data)), data


def apply_text(document: Mapping[str, Any]) -> bytes:
    """Return a document as the body of an apply, which the API server reads as YAML.

    It is JSON in which characters are escaped that YAML would refuse or, as U+0085, silently replace. Those above
    U+FFFF are not, because their escapes in JSON are not valid in YAML.
    """
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def json_name(cls: type[Any], name: str) -> str:
    """Return the name of a field in JSON: its ``kubernetes_names`` in the class, or lowerCamelCase."""
    declared: Mapping[str, str] = getattr(cls, "kubernetes_names", {})
    return declared.get(name) or camel_case(name).rstrip("_")


Put = Callable[[Any, list[bytes]], Any]
"""Appends the JSON value of a field in the wire format, and returns the JSON to keep, or `_NOTHING`."""
Get = Callable[[Any, Any], Any]
"""Returns the JSON of a field from its Python value and its kept JSON, or `_NOTHING`."""


class _Converter(NamedTuple):
    """How the values of a field are converted.

    Attributes:
        heads: what precedes a text of each length below 128 in the wire format, if the field is a text. Most fields
            are, so that these are written without a call.
    """

    put: Put
    get: Get
    heads: list[bytes] | None = None


@cache
def _class(cls: Any) -> tuple[list[tuple[str, str, Put, Get, list[bytes] | None]], dict[str, str], list[list[str]]]:
    """Return the fields of a class: their names in JSON and in Python and their converters. They are in the order of
    their numbers. Return also the names in Python by those in JSON, and the names in JSON of the arms of each oneof.
    """
    metadata = metadata_of(cls)
    names: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    found: list[tuple[str, str, Put, Get, list[bytes] | None]] = []
    for name in metadata.sorted_field_names:
        field, in_json, meta = fields_of(cls).by_name[name], json_name(cls, name), metadata.meta_by_field_name[name]
        if in_json in names:
            raise DeclarationError(f"{cls.__qualname__}: {names[in_json]} and {name} are both {in_json!r} in JSON")
        names[in_json] = name
        if field.group:
            groups.setdefault(field.group, []).append(in_json)
        if meta.unwrap is not None and field.element.kind not in ("timestamp", "duration"):
            raise DeclarationError(f"{cls.__qualname__}.{name}: wrappers have no form in Kubernetes; use `X | None`")
        converter = _converter(field, meta.number)
        put, get, heads = _discreet(converter) if field.secret else converter
        found.append((in_json, name, put, get, heads))
    return found, names, list(groups.values())


def _discreet(converter: _Converter) -> _Converter:
    """Return a converter for a secret field, which keeps no JSON of it and does not show values in errors."""

    def put(value: Any, parts: list[bytes]) -> Any:
        try:
            found = converter.put(value, parts)
        except Wrong as wrong:
            hidden = Wrong(f"the value, which is secret, is not {str(wrong).partition(' is not ')[2] or 'valid'}")
            hidden.path = wrong.path
            raise hidden from None
        return _NOTHING if value else found

    return _Converter(put, converter.get)


def _converter(field: Field, number: int) -> _Converter:
    # The items of a list and the values of a map are written even if they are zero, as fields that may be absent are.
    item = replace(field, shape="optional", key=None)
    if field.key is not None:
        return _map(field.key.kind, number, _converter(item, 2))
    if field.shape == "repeated":
        return _list(field.element.message, _converter(item, number))
    return _scalar(field, number) if field.element.message is None else _message(field, number)


def _scalar(field: Field, number: int) -> _Converter:
    kind = kind_of(field.element)
    wire, zero, read, text, written = kind.wire, kind.zero, kind.read, kind.text, kind.written
    tag, absent = varint(number << 3 | kind.wire_type), field.shape == "optional"

    def put(value: Any, parts: list[bytes]) -> Any:
        content = wire(value)
        unset = content == zero and not absent
        if not unset:
            parts.append(tag + content)
        # Keep a zero too: it is not the same as an absent field.
        return value if unset or (written is not None and not written(value)) else _NOTHING

    def get(value: Any, kept: Any) -> Any:
        if value is None:
            return _NOTHING
        if kept is not _NOTHING and _same(read, kept, value):
            return kept
        return _NOTHING if not absent and (not value or value == EPOCH) else text(value)

    return _Converter(put, get, _heads(tag) if field.element.kind == "string" else None)


def _heads(tag: bytes) -> list[bytes]:
    return [tag + varint(size) for size in range(128)]


def _headed(heads: list[bytes], data: bytes) -> bytes:
    size = len(data)
    return heads[size] + data if size < 128 else heads[0][:-1] + varint(size) + data


def _same(read: Callable[[Any], Any], kept: Any, value: Any) -> bool:
    try:
        return bool(read(kept) == value)
    except Wrong:
        return False


def _list(cls: Any, item: _Converter) -> _Converter:
    names = {json_name(cls, name): each for name, each in fields_of(cls).by_name.items()} if cls else {}
    keys = [key for key in _KEYS if key in names and names[key].element.kind == "string"]

    def put(values: Any, parts: list[bytes]) -> Any:
        kept: dict[int, Any] = {}
        heads, index = item.heads, 0
        if values.__class__ is not list:
            raise expected(values, "a list")
        try:
            for index, value in enumerate(values):
                if heads is not None and value.__class__ is str:
                    data = value.encode()
                    size = len(data)
                    parts.append(heads[size] + data if size < 128 else _headed(heads, data))
                elif (found := item.put(value, parts)) is not _NOTHING:
                    kept[index] = found
        except Wrong as wrong:
            raise wrong.within(f"[{index}]") from None
        if not values:
            return values
        if not kept:
            return _NOTHING
        for key in keys:
            ids = [value.get(key) for value in values]
            if all(ids) and len(set(ids)) == len(ids):
                return {"by": key, "items": {ids[index]: found for index, found in kept.items()}}
        return {"count": len(values), "items": {str(index): found for index, found in kept.items()}}

    def get(values: Any, kept: Any) -> Any:
        if not values:
            return kept if kept == [] else _NOTHING
        before, key = {}, None
        if kept.__class__ is dict and ("by" in kept or kept["count"] == len(values)):
            before, key = kept["items"], kept.get("by")
        made = []
        for index, value in enumerate(values):
            try:
                # The name is read first: it tells what else was kept.
                place = item.get(value, None).get(key) if key else str(index)
                made.append(item.get(value, before.get(place, _NOTHING)))
            except Wrong as wrong:
                raise wrong.within(f"[{index}]") from None
        return made

    return _Converter(put, get)


def _map(kind: str, number: int, held: _Converter) -> _Converter:
    to_key, of_key = key_of(kind)
    write_key = KINDS[kind].wire
    key_heads, heads = _heads(varint(1 << 3 | KINDS[kind].wire_type)), _heads(varint(number << 3 | 2))
    key_tag = key_heads[0][:-1]
    texts = held.heads if kind == "string" else None

    def put(values: Any, parts: list[bytes]) -> Any:
        kept: dict[str, Any] = {}
        if values.__class__ is not dict:
            raise expected(values, "an object")
        for key, value in values.items():
            if value is None:
                continue
            if texts is not None and value.__class__ is str:
                # Most maps are labels and the like: these are written without a call.
                name, text = key.encode(), value.encode()
                if len(name) + len(text) < 124:
                    data = key_heads[len(name)] + name + texts[len(text)] + text
                    parts.append(heads[len(data)] + data)
                    continue
            entry = [key_tag]
            try:
                entry.append(write_key(to_key(key)))
                found = held.put(value, entry)
            except Wrong as wrong:
                raise wrong.within(f"[{json.dumps(key, ensure_ascii=False)}]") from None
            if found is not _NOTHING:
                kept[key] = found
            parts.append(_headed(heads, b"".join(entry)))
        return kept if kept or not values else _NOTHING

    def get(values: Any, kept: Any) -> Any:
        if not values:
            return kept if kept == {} else _NOTHING
        before = kept if kept.__class__ is dict else {}
        made = {}
        for key, value in values.items():
            name = of_key(key)
            try:
                made[name] = held.get(value, before.get(name, _NOTHING))
            except Wrong as wrong:
                raise wrong.within(f"[{json.dumps(name, ensure_ascii=False)}]") from None
        return made

    return _Converter(put, get)


def _message(field: Field, number: int) -> _Converter:
    cls = cast("Any", field.element.message)
    write, read = _writer(cls), _reader(cls)
    heads, absent = _heads(varint(number << 3 | 2)), field.shape == "optional"

    def put(value: Any, parts: list[bytes]) -> Any:
        inner: list[bytes] = []
        kept = write(value, inner)
        data = b"".join(inner)
        if data or absent:
            size = len(data)
            parts.append(heads[size] + data if size < 128 else _headed(heads, data))
        elif kept is None:
            return {}
        return _NOTHING if kept is None else kept

    def get(value: Any, kept: Any) -> Any:
        if value is None:
            return _NOTHING
        made = read(value, kept if kept.__class__ is dict else None)
        return made if made or absent or kept is not _NOTHING else _NOTHING

    return _Converter(put, get)


@cache
def _writer(cls: Any) -> Callable[[Any, list[bytes]], dict[str, Any] | None]:
    """Return a function that appends a JSON object in the wire format, and returns the JSON to keep of it, if any."""

    def write(body: Any, parts: list[bytes]) -> dict[str, Any] | None:
        fields, known, oneofs = _class(cls)
        if body.__class__ is not dict:
            raise expected(body, "an object")
        left, append = len(body), parts.append
        kept: dict[str, Any] | None = None
        key = ""
        try:
            for key, _, put, _, heads in fields:
                if key in body:
                    left -= 1
                    value = body[key]
                    if heads is not None and value.__class__ is str and value:
                        data = value.encode()
                        size = len(data)
                        append(heads[size] + data if size < 128 else _headed(heads, data))
                    elif value is not None and (found := put(value, parts)) is not _NOTHING:
                        if kept is None:
                            kept = {}
                        kept[key] = found
        except Wrong as wrong:
            raise wrong.within(f".{key}") from None
        except UnicodeEncodeError as error:
            raise expected(error.object, NO_HALVES).within(f".{key}") from None
        if left:
            unknown = {name: value for name, value in body.items() if name not in known}
            kept = unknown if kept is None else kept | unknown
        for arms in oneofs:
            given = [arm for arm in arms if body.get(arm) is not None]
            if len(given) > 1:
                raise Wrong(f"{given[0]} and {given[1]} are both set; expected at most one of {', '.join(arms)}")
        return kept

    return write


@cache
def _reader(cls: Any) -> Callable[[Any, dict[str, Any] | None], dict[str, Any]]:
    """Return a function from a message, and the JSON that was kept of it, to its JSON object."""

    def read(message: Any, kept: dict[str, Any] | None) -> dict[str, Any]:
        fields, known, _ = _class(cls)
        body: dict[str, Any] = {}
        for in_json, name, _, get, _ in fields:
            try:
                found = get(getattr(message, name), kept.get(in_json, _NOTHING) if kept else _NOTHING)
            except Wrong as wrong:
                raise wrong.within(f".{in_json}") from None
            if found is not _NOTHING:
                body[in_json] = found
        if kept:
            body |= {name: value for name, value in kept.items() if name not in known}
        return body

    return read

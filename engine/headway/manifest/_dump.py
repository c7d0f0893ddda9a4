"""Write resources as YAML that loads back to equal resources, and payloads in protobuf's JSON form."""

from __future__ import annotations

import base64
import datetime
import math
import re
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any

import yaml
from betterproto2.casing import camel_case

from headway.errors import PayloadError
from headway.manifest._fields import Element, Field, enum_names, fields_of
from headway.resource import DEFAULT_TENANCY, DELETION_TIMESTAMP, Resource, ResourceId

# Lines that a block (`|`) preserves: they have no blanks at their ends and no characters to escape.
_BLOCK = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?\n)+\Z")
_BEYOND = re.compile("[\xa0-\U0010ffff]")
# Texts that a parser may read as a number, a boolean or nothing: `1e3` and `0o644` by YAML 1.2, `y` and `1:30` by
# YAML 1.1, `-0o7` and `0B1` by some. PyYAML quotes only what it would read so itself.
_AMBIGUOUS = re.compile(
    r"(?:y|n|yes|no|on|off|true|false|null|~"
    r"|[-+]?(?:0[box][0-9a-f_]+|[0-9][0-9_]*(?::[0-9]+)*(?:\.[0-9_]*)?(?:e[-+]?[0-9]+)?|\.[0-9_]+(?:e[-+]?[0-9]+)?"
    r"|\.inf|\.nan))?\Z",
    re.IGNORECASE | re.ASCII,
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# JSON has these in quotes, because JavaScript would round them.
_LONG = ("int64", "uint64", "sint64", "fixed64", "sfixed64")


def dump(resource: Resource[Any]) -> str:
    """Return a resource as a YAML document. Its fields are always in the same order, and defaults are omitted.

    The document contains neither the fields that the store assigns nor fields that this program doesn't know. An enum
    value without a name is written as its number. Everything that is written loads back.

    Instead of a payload that cannot be decoded or converted, the document has ``undecodable`` with the reason, which
    ``load`` rejects: without its payload, the resource must not be written back.
    """
    return as_yaml(_document(resource))


def as_yaml(value: Any) -> str:
    """Return lists, maps and scalars as YAML. Parsers of YAML 1.1 and of YAML 1.2 read the same value from it.

    Unprintable characters are escaped: some of them change the direction of text on a terminal, or are invisible.
    """
    dumped: str = yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=sys.maxsize,
    )
    # The texts that have them are in double quotes.
    return dumped if dumped.isascii() else _BEYOND.sub(_escaped, dumped)


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    if character.isprintable():
        return character
    return f"\\u{ord(character):04X}" if character <= "\uffff" else f"\\U{ord(character):08X}"


def dump_all(resources: Iterable[Resource[Any]]) -> str:
    """Return a YAML text with one document for each resource."""
    return "---\n".join(map(dump, resources))


def as_object(payload: Any, *, long: Callable[[int], Any] = str) -> dict[str, Any]:
    """Return a payload as a JSON object without defaults. All keys are strings.

    Args:
        long: returns what stands for a number of 64 bits: by default its text, as in protobuf's JSON form.
    """
    return _message(type(payload), payload, json=long)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        # Write equal values twice: aliases are meant for manifests written by hand.
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = None
    if _BLOCK.match(value):
        style = "|"
    elif not value.replace("\n", "").isprintable():
        style = '"'
    elif _AMBIGUOUS.match(value):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def _document(resource: Resource[Any]) -> dict[str, Any]:
    id = resource.id
    document: dict[str, Any] = _written_id(id, DEFAULT_TENANCY[resource.type.scope])
    metadata = {key: value for key, value in sorted(resource.metadata.items()) if key != DELETION_TIMESTAMP}
    if metadata:
        document["metadata"] = metadata
    if resource.owner is not None:
        document["owner"] = _written_id(resource.owner, (id.partition, id.namespace))
    try:
        data = _message(type(resource.data), resource.data)
    except PayloadError as error:
        document["undecodable"] = str(error)
    else:
        if data:
            document["data"] = data
    return document


def _written_id(id: ResourceId, default: tuple[str, str]) -> dict[str, Any]:
    written = {"type": str(id.type), "name": id.name}
    if id.partition and id.partition != default[0]:
        written["partition"] = id.partition
    if id.namespace and id.namespace != default[1]:
        written["namespace"] = id.namespace
    return written


def _message(cls: type[Any], message: Any, *, json: Callable[[int], Any] | None = None) -> dict[str, Any]:
    values = ((name, field, getattr(message, name)) for name, field in fields_of(cls).by_name.items())
    return {
        camel_case(name) if json else name: _field(field, value, json=json)
        for name, field, value in values
        if not _is_default(field, value)
    }


def _is_default(field: Field, value: Any) -> bool:
    if field.shape == "optional":
        return value is None
    if field.shape == "single" and field.element.kind == "message":
        return not _element(field.element, value, json=None)
    if isinstance(value, float):
        # Negative zero is written.
        return value == 0 and math.copysign(1, value) > 0
    return not value or (field.shape == "single" and value == _EPOCH)


def _field(field: Field, value: Any, *, json: Callable[[int], Any] | None) -> Any:
    if field.shape == "repeated":
        return [_element(field.element, item, json=json) for item in value]
    if field.shape == "map":
        # Not sorted: stored payloads are compared by their bytes, which depend on the order.
        return {json_key(key) if json else key: _element(field.element, item, json=json) for key, item in value.items()}
    return _element(field.element, value, json=json)


def json_key(key: Any) -> str:
    """Return the name that an entry of a map has in JSON."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _element(element: Element, value: Any, *, json: Callable[[int], Any] | None) -> Any:
    kind = element.kind
    if element.message is not None:
        return _message(element.message, element.message.from_wrapped(value) if element.wrapped else value, json=json)
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind == "enum":
        number = int(value)
        return next((name for name, known in enum_names(element.enum).items() if known == number), number)
    if kind == "timestamp":
        text: str = value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat()
        return f"{text}Z"
    if kind == "duration":
        return _seconds(value)
    if json and kind in _LONG:
        return json(value)
    if kind in ("float", "double") and not math.isfinite(value):
        return value if not json else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return _shortest(value) if kind == "float" else value


def _shortest(value: float) -> float:
    """Return a short number that is the same in 32 bits, such as 0.1 for 0.10000000149011612."""
    try:
        same = struct.pack("<f", value)
    except (OverflowError, struct.error):
        # It cannot be stored either.
        return value
    short = (float(f"{value:.{digits}g}") for digits in range(6, 10))
    return next((each for each in short if struct.pack("<f", each) == same), value)


def _seconds(length: datetime.timedelta) -> str:
    microseconds = abs(length) // datetime.timedelta(microseconds=1)
    seconds, rest = divmod(microseconds, 1_000_000)
    fraction = f".{rest:06}".rstrip("0").rstrip(".")
    return f"{'-' if length < datetime.timedelta() else ''}{seconds}{fraction}s"

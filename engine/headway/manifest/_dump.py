"""Write resources as YAML that loads back to equal resources, and payloads in protobuf's JSON form."""

from __future__ import annotations

import base64
import datetime
import math
import re
import struct
import sys
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any, NamedTuple, cast

import yaml
from betterproto2.casing import camel_case

from headway.base import Steps, finished
from headway.errors import PayloadError
from headway.manifest._fields import Element, Field, enum_names, fields_of
from headway.resource import DEFAULT_TENANCY, DELETION_TIMESTAMP, Resource, ResourceId

# Lines that a block (`|`) preserves: they have no blanks at their ends and no characters to escape.
_BLOCK = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?\n)+\Z")
_BEYOND = re.compile("[^\0-\x9f]")
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
_LONG = frozenset({"int64", "uint64", "sint64", "fixed64", "sfixed64"})
# Their values are written as they are.
_PLAIN = frozenset({"string", "bool", "int32", "uint32", "sint32", "fixed32", "sfixed32"})
# What stands for a number of 64 bits in JSON; None for YAML.
Long = Callable[[int], Any] | None


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
    return finished(object_steps(payload, long=long))


def object_steps(payload: Any, *, long: Callable[[int], Any] = str) -> Steps[dict[str, Any]]:
    """Return a payload as a JSON object, like `as_object`, in steps."""
    return _message(type(payload), payload, long)


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
        data = finished(_message(type(resource.data), resource.data, None))
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


class _Written(NamedTuple):
    """A field of a message, as it is written.

    Attributes:
        name: its name in YAML.
        camel: its name in JSON.
        plain: True if its values are written as they are, and an empty one is left out.
    """

    name: str
    camel: str
    field: Field
    plain: bool


class _Fields(NamedTuple):
    """The fields of a message class. A class is flat if its messages hold neither lists, nor maps, nor messages."""

    written: tuple[_Written, ...]
    flat: bool


def _fields(cls: type[Any]) -> _Fields:
    # The stubs of `cache` do not accept type[Any] as hashable.
    return _fields_once(cast("Any", cls))


@cache
def _fields_once(cls: Any) -> _Fields:
    fields = fields_of(cls).by_name
    flat = all(field.shape in ("single", "optional") and field.element.message is None for field in fields.values())
    return _Fields(
        tuple(
            _Written(name, camel_case(name), field, field.shape == "single" and field.element.kind in _PLAIN)
            for name, field in fields.items()
        ),
        flat,
    )


# The number of elements in a step.
_AT_ONCE = 8


def _message(cls: type[Any], message: Any, long: Long) -> Steps[dict[str, Any]]:
    fields = _fields(cls)
    if fields.flat:
        return _flat(fields, message, long)
    made: dict[str, Any] = {}
    for written in fields.written:
        field, value = written.field, getattr(message, written.name)
        held = field.element.message
        if field.shape == "single" and held is not None:
            # Such a message is never absent.
            value = yield from _message(held, held.from_wrapped(value) if field.element.wrapped else value, long)
            if not value:
                continue
        elif _is_default(field, value):
            continue
        elif field.shape == "repeated":
            value = yield from _list(field.element, value, long)
        elif field.shape == "map":
            # Not sorted: stored payloads are compared by their bytes, which depend on the order.
            values = yield from _list(field.element, value.values(), long)
            value = dict(zip(map(json_key, value) if long else value, values, strict=True))
        elif held is not None:
            value = yield from _message(held, held.from_wrapped(value) if field.element.wrapped else value, long)
        else:
            value = _scalar(field.element, value, long)
        made[written.camel if long else written.name] = value
    return made


def _flat(fields: _Fields, message: Any, long: Long) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, camel, field, plain in fields.written:
        value = getattr(message, name)
        if plain:
            if value:
                made[camel if long else name] = value
        elif not _is_default(field, value):
            made[camel if long else name] = _scalar(field.element, value, long)
    return made


def _list(element: Element, values: Collection[Any], long: Long) -> Steps[list[Any]]:
    made: list[Any] = []
    held, fields = element.message, None if element.message is None else _fields(element.message)
    for number, value in enumerate(values):
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield
        if held is None:
            made.append(_scalar(element, value, long))
        else:
            message = held.from_wrapped(value) if element.wrapped else value
            assert fields is not None
            made.append(_flat(fields, message, long) if fields.flat else (yield from _message(held, message, long)))
    return made


def _is_default(field: Field, value: Any) -> bool:
    if field.shape == "optional":
        return value is None
    if isinstance(value, float):
        # Negative zero is written.
        return value == 0 and math.copysign(1, value) > 0
    return not value or (field.shape == "single" and value == _EPOCH)


def json_key(key: Any) -> str:
    """Return the name that an entry of a map has in JSON."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _scalar(element: Element, value: Any, long: Long) -> Any:
    """Return a value that is no message, as it is written."""
    kind = element.kind
    if kind in _PLAIN:
        return value
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind == "enum":
        number = int(value)
        return _enum_texts(element.enum).get(number, number)
    if kind == "timestamp":
        text: str = value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat()
        return f"{text}Z"
    if kind == "duration":
        return _seconds(value)
    if kind in _LONG:
        return long(value) if long else value
    if not math.isfinite(value):
        return value if not long else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return _shortest(value) if kind == "float" else value


@cache
def _enum_texts(enum: Any) -> dict[int, str]:
    """Return the first name of each number."""
    return {number: name for name, number in reversed(enum_names(enum).items())}


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

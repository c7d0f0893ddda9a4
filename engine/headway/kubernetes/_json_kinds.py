"""Convert single values of JSON, as Kubernetes writes them, to protobuf's wire format and to Python, and back. Pure."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from headway.base import repr_text
from headway.errors import PayloadError
from headway.manifest import Element, enum_names
from headway.protobuf import encode, field, message, varint

T = TypeVar("T")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The value of a time that is not set."""

NO_HALVES = "valid Unicode; expected text without half of a surrogate pair"

_SHORT = [bytes((number,)) for number in range(128)]
_MASK = (1 << 64) - 1
_MICROSECOND = timedelta(microseconds=1)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)\Z", re.ASCII)
_UNITS = {"h": "3600e6", "m": "60e6", "s": "1e6", "ms": "1e3", "us": "1", "µs": "1", "μs": "1", "ns": "1e-3"}
_MICROSECONDS = {unit: Decimal(size) for unit, size in _UNITS.items()}
_PART = r"(\d+\.?\d*|\.\d+)(h|ms|m|s|us|µs|μs|ns)"
_DURATION, _DURATION_PART = (re.compile(each, re.ASCII) for each in (rf"[-+]?(?:0|(?:{_PART})+)\Z", _PART))
_LONGEST_DURATION = (1 << 63) // 1000
_FIXED = {"fixed64": "<Q", "sfixed64": "<q", "fixed32": "<I", "sfixed32": "<i"}


class Wrong(Exception):
    """A value does not fit its field. The text is what is wrong, and the path is from the outermost field."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str] = []

    def within(self, step: str) -> Wrong:
        self.path.insert(0, step)
        return self

    def problem(self) -> PayloadError:
        return PayloadError(f"{''.join(self.path).lstrip('.')}: {self}" if self.path else str(self))


class Kind(NamedTuple):
    """How the values of one kind are converted.

    Attributes:
        wire: returns the content of a JSON value in protobuf's wire format. Raises `Wrong`.
        wire_type: the type of that content in the wire format.
        read: returns the Python value of a JSON value.
        text: returns the JSON value of a Python value.
        written: returns True if `text` writes the value of a JSON value in the same way. None if it always does.
    """

    wire: Callable[[Any], bytes]
    wire_type: int
    read: Callable[[Any], Any]
    text: Callable[[Any], Any]
    written: Callable[[Any], bool] | None = None

    @property
    def zero(self) -> bytes:
        """The content of the value of an unset field."""
        return {1: bytes(8), 5: bytes(4)}.get(self.wire_type, b"\0")


def enum_texts(enum: Any) -> list[str]:
    """Return the names of an enum's members in the order of their numbers."""
    return sorted(getattr(enum, "plain_enum", enum).__members__, key=lambda name: enum_names(enum)[name])


# Scalars. Each function refuses values of another type: a text is never read as a number.
def expected(value: Any, right: str) -> Wrong:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr_text(value)
    return Wrong(f"{text if len(text) <= 80 else f'{text[:60]}…'} is not {right}")


def _whole(kind: str) -> Kind:
    bits = int(kind[-2:])
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1
    if kind.startswith(("u", "fixed")):
        lowest, highest = 0, (1 << bits) - 1

    def read(value: Any) -> int:
        if value.__class__ is not int:
            if value.__class__ is not float or not value.is_integer():
                raise expected(value, "a whole number; expected a number such as 3, without quotes")
            value = int(value)
        if not lowest <= value <= highest:
            raise Wrong(f"{value} is out of range; expected a number from {lowest} to {highest}")
        number: int = value
        return number

    def varied(value: Any) -> bytes:
        return _SHORT[value] if value.__class__ is int and 0 <= value < 128 else varint(read(value) & _MASK)

    def zigzag(value: Any) -> bytes:
        number = read(value)
        return varint(number << 1 if number >= 0 else ~(number << 1))

    if kind in _FIXED:
        return Kind(lambda value: struct.pack(_FIXED[kind], read(value)), 1 if bits == 64 else 5, read, int)
    return Kind(zigzag if kind[0] == "s" else varied, 0, read, int)


def _number(bits: int) -> Kind:
    layout = struct.Struct("<d" if bits == 64 else "<f")

    def read(value: Any) -> float:
        if value.__class__ is not float and value.__class__ is not int:
            raise expected(value, "a number; expected a number such as 1.5, without quotes")
        try:
            number: float = layout.unpack(layout.pack(value))[0]
        except (OverflowError, struct.error):
            raise Wrong(f"{value} is out of range; expected a number of {bits} bits") from None
        if number - number != 0:
            raise Wrong(f"{value} is not a number in JSON; expected a finite number")
        return number

    def text(value: float) -> float | int:
        number = read(value)
        if number.is_integer() and abs(number) < 1 << 53:
            return int(number)
        # The shortest text that is the same number again.
        shorter = (float(f"{number:.{digits}g}") for digits in range(6, 10)) if bits == 32 else ()
        return next((short for short in shorter if read(short) == number), number)

    # A negative zero becomes the zero of an unset field.
    return Kind(lambda value: layout.pack(read(value) + 0.0), 1 if bits == 64 else 5, read, text)


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def _read_text(value: Any) -> str:
    if value.__class__ is not str:
        raise expected(value, 'text; expected text in quotes, such as "blog"')
    text: str = value
    try:
        text.encode()
    except UnicodeEncodeError:
        raise expected(value, NO_HALVES) from None
    return text


def _bool_wire(value: Any) -> bytes:
    if value.__class__ is not bool:
        raise expected(value, "a boolean; expected true or false, without quotes")
    return _SHORT[value]


def _read_bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise expected(value, 'base64; expected text such as "aGVsbG8="') from None


def _bytes_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _remembered(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return a function that remembers its last results for texts: the same times and durations come often."""
    remembering = lru_cache(1024)(function)
    return lambda value: remembering(value) if value.__class__ is str else function(value)


def _read_moment(value: Any) -> datetime:
    """Return a time, truncated to microseconds."""
    try:
        if value.__class__ is str and _MOMENT.match(value):
            return datetime.fromisoformat(value.upper())
    except ValueError:
        pass
    raise expected(value, 'a time; expected text such as "2024-02-29T12:30:00Z"')


def _moment_text(value: datetime) -> str:
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{text.rstrip('0') if value.microsecond else text}Z"


def _read_duration(value: Any) -> timedelta:
    """Return a duration as Go reads it, truncated to microseconds."""
    if value.__class__ is not str or not _DURATION.match(value):
        raise expected(value, 'a duration; expected text such as "1h30m" or "1.5s"')
    total = int(sum(Decimal(number) * _MICROSECONDS[unit] for number, unit in _DURATION_PART.findall(value)))
    if total >= _LONGEST_DURATION:
        raise expected(value, "a duration; the longest is 292 years")
    return timedelta(microseconds=-total if value[0] == "-" else total)


def duration_text(value: timedelta) -> str:
    """Return a duration as Go writes it, such as ``1h2m3.5s``."""
    total = abs(value) // _MICROSECOND
    if total >= _LONGEST_DURATION:
        raise Wrong(f"{value} is too long; the longest duration in Kubernetes is 292 years")
    minutes, rest = divmod(total, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    whole = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    unit = "s" if minutes or hours or not rest or rest >= 1_000_000 else "ms" if rest >= 1000 else "µs"
    number = f"{rest / _MICROSECONDS[unit]:.6f}".rstrip("0").rstrip(".")
    return f"{'-' * (value < timedelta(0))}{whole}{number}{unit}"


@message
class _Times:
    moment: datetime = field(1)
    duration: timedelta = field(2)


def _time(name: str, read: Callable[[Any], Any], text: Callable[[Any], str]) -> Kind:
    def wire(value: Any) -> bytes:
        # Without the tag of the field.
        return encode(_Times(**{name: read(value)}))[1:] or b"\0"

    return Kind(_remembered(wire), 2, read, text, _remembered(lambda value: text(read(value)) == value))


def _enum(enum: Any) -> Kind:
    numbers, texts = enum_names(enum), enum_texts(enum)
    names = {numbers[name]: name for name in reversed(texts)}
    right = f"one of {', '.join(texts)}"
    wires = {name: varint(number & _MASK) for name, number in numbers.items()}

    def wire(value: Any) -> bytes:
        found = wires.get(value) if value.__class__ is str else None
        if found is None:
            raise expected(value, right)
        return found

    def read(value: Any) -> Any:
        wire(value)
        return enum(numbers[value])

    def text(value: Any) -> str:
        if int(value) not in names:
            raise Wrong(f"{int(value)} has no name; expected {right}")
        return names[int(value)]

    return Kind(wire, 0, read, text, lambda value: names[numbers[value]] == value)


_WHOLE = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", *_FIXED)
KINDS: dict[str, Kind] = {
    **{kind: _whole(kind) for kind in _WHOLE},
    "double": _number(64),
    "float": _number(32),
    "string": Kind(lambda value: _sized(_read_text(value).encode()), 2, _read_text, str),
    "bool": Kind(_bool_wire, 0, lambda value: _bool_wire(value) == b"\1", bool),
    "bytes": Kind(
        lambda value: _sized(_read_bytes(value)),
        2,
        _read_bytes,
        _bytes_text,
        lambda value: _bytes_text(_read_bytes(value)) == value,
    ),
    "timestamp": _time("moment", _read_moment, _moment_text),
    "duration": _time("duration", _read_duration, duration_text),
}


def key_of(kind: str) -> tuple[Callable[[str], Any], Callable[[Any], str]]:
    """Return functions from a JSON object's key to the JSON value of a map's key, and from its Python value back."""
    if kind == "string":
        return str, str
    if kind == "bool":
        return lambda key: {"true": True, "false": False}.get(key, key), lambda key: "true" if key else "false"
    return lambda key: int(key) if re.fullmatch(r"-?\d{1,20}", key, re.ASCII) else key, str


def kind_of(element: Element) -> Kind:
    return _enum(element.enum) if element.kind == "enum" else KINDS[element.kind]

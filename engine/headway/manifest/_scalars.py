"""Convert a scalar to the value of a protobuf kind, or report what was expected."""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from headway.documents import Scalar
from headway.manifest._fields import Element, enum_names
from headway.protobuf import LONGEST_DURATION
from headway.resource import did_you_mean

_SIGNED = {"int32": 32, "sint32": 32, "sfixed32": 32, "int64": 64, "sint64": 64, "sfixed64": 64}
_UNSIGNED = {"uint32": 32, "fixed32": 32, "uint64": 64, "fixed64": 64}
RANGES: Final = {kind: (-(1 << bits - 1), (1 << bits - 1) - 1) for kind, bits in _SIGNED.items()} | {
    kind: (0, (1 << bits) - 1) for kind, bits in _UNSIGNED.items()
}
_WHOLE = re.compile(r"[-+]?\d+\Z", re.ASCII)
# A whole number that is unambiguous, and was not converted only because of its length.
_LONG = re.compile(r"[-+]?[1-9]\d*\Z", re.ASCII)
# A whole number of 64 bits has at most so many digits.
_MOST_DIGITS = 20
_URL_SAFE = str.maketrans("-_", "+/")
_DIGITS = re.compile(r"[-+]?\d+(\.\d+)?\Z", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):([0-5]\d))\Z", re.ASCII
)
_DURATION = re.compile(r"(-?)(\d{1,20})(?:\.(\d{1,9}))?s\Z", re.ASCII)


class Unfit(Exception):
    """A value does not fit its field. The text is the message for the user."""


def convert(element: Element, scalar: Scalar) -> Any:
    """Convert a scalar to a value of the element's type. Raises Unfit."""
    if scalar.kind == "nothing":
        what = f"{scalar} means no value" if scalar.text else "the value is missing"
        raise Unfit(f"{what}; write {expected(element)}, or leave it out")
    if scalar.format == "JSON" and (element.kind in RANGES or element.kind in ("float", "double")):
        scalar = scalar.unquoted()
    return _CONVERTERS.get(element.kind, _whole)(element, scalar)


def _string(_element: Element, scalar: Scalar) -> str:
    if scalar.kind != "text":
        raise Unfit(f"{scalar.described()}, not text; quote it: {scalar.in_quotes()}")
    return scalar.text


def _bytes(element: Element, scalar: Scalar) -> bytes:
    text = _string(element, scalar)
    try:
        # Base64 text may contain line breaks. As for protobuf's own parsers, it may be URL-safe, and lack its padding.
        bare = "".join(text.split())
        padding = "=" * (-len(bare) % 4) if "=" not in bare else ""
        return base64.b64decode(bare.translate(_URL_SAFE) + padding, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unfit(f"{scalar} is not {expected(element)}") from error


def _boolean(element: Element, scalar: Scalar) -> bool:
    if not isinstance(scalar.value, bool):
        raise _wrong(element, scalar, unquoted=scalar.text in ("true", "false"))
    return scalar.value


def _whole(element: Element, scalar: Scalar) -> int:
    scalar = _integral(scalar)
    if scalar.kind != "a whole number":
        raise _wrong(element, scalar, unquoted=bool(_WHOLE.match(scalar.text)))
    return _in_range(element, scalar, element.kind)


def _integral(scalar: Scalar) -> Scalar:
    """Return a number of JSON or HCL such as 1.0 or 1e2 as a whole number. Any other scalar stays as it is."""
    if scalar.kind != "a number" or scalar.format == "YAML":
        return scalar
    try:
        made = Decimal(scalar.text)
    except InvalidOperation:
        # Its exponent is out of range.
        return scalar
    if not made.is_finite() or made.adjusted() > _MOST_DIGITS or made != made.to_integral_value():
        return scalar
    return replace(scalar, kind="a whole number", value=int(made))


def _in_range(element: Element, scalar: Scalar, kind: str) -> int:
    low, high = RANGES[kind]
    number = _certain(element, scalar)
    if not isinstance(number, int) or not low <= number <= high:
        raise Unfit(f"{scalar} is out of range; write {expected(element)}")
    return number


def _float(element: Element, scalar: Scalar) -> float:
    if scalar.kind not in ("a whole number", "a number"):
        raise _wrong(element, scalar, unquoted=bool(_DIGITS.match(scalar.text)))
    number = _certain(element, scalar)
    try:
        made = float(number)
        if math.isinf(made) and "inf" not in scalar.text.lower():
            # Parsing `1e400` gave infinity.
            raise OverflowError
        # "<" is required: in the native format, a number that is too large for a float becomes infinite.
        struct.pack("<f" if element.kind == "float" else "<d", made)
    except OverflowError as error:
        raise Unfit(f"{scalar} is out of range for a {element.kind}") from error
    return made


def _certain(element: Element, scalar: Scalar) -> int | float:
    """Return the number of a scalar. Raises Unfit if it is ambiguous."""
    if isinstance(scalar.value, (int, float)):
        return scalar.value
    if _LONG.match(scalar.text):
        raise Unfit(f"{scalar} is out of range; write {expected(element)}")
    raise Unfit(
        f"{scalar} is {scalar.kind} that YAML parsers interpret differently; write it in decimal, without leading zeros"
    )


def _enum(element: Element, scalar: Scalar) -> Any:
    names = enum_names(element.enum)
    if scalar.kind == "text":
        if scalar.text not in names:
            raise Unfit(f"{scalar} is not a {element.enum.__name__}{did_you_mean(scalar.text, names)}")
        return element.enum(names[scalar.text])
    scalar = _integral(scalar)
    if scalar.kind != "a whole number":
        if scalar.text in names:
            raise Unfit(f"{scalar.described()}; quote it: {scalar.in_quotes()}")
        raise _wrong(element, scalar)
    # A number without a member is accepted, as on the wire: a program from which a member was removed shows it so.
    return element.enum(_in_range(element, scalar, "int32"))


def _timestamp(element: Element, scalar: Scalar) -> datetime.datetime:
    found = _TIMESTAMP.match(scalar.text) if scalar.kind in ("a date", "text") else None
    if found is None:
        raise _wrong(element, scalar)
    day, time, fraction, sign, hours, minutes = found.groups()
    offset = datetime.timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        zone = datetime.timezone(-offset if sign == "-" else offset)
        moment = datetime.datetime.fromisoformat(f"{day}T{time}").replace(
            microsecond=_microseconds(fraction, scalar), tzinfo=zone
        )
        return moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        raise Unfit(f"{scalar} is not a valid timestamp; write {expected(element)}") from error


def _duration(element: Element, scalar: Scalar) -> datetime.timedelta:
    found = _DURATION.match(scalar.text) if scalar.kind == "text" else None
    if found is None:
        if scalar.kind in ("a whole number", "a number") and scalar.value is not None:
            raise Unfit(f"{scalar.described()} without a unit; write {scalar.in_quotes('s')}")
        raise _wrong(element, scalar)
    sign, seconds, fraction = found.groups()
    if int(seconds) > LONGEST_DURATION:
        raise Unfit(f"{scalar} is out of range; the longest duration is '{LONGEST_DURATION}s'")
    length = datetime.timedelta(seconds=int(seconds), microseconds=_microseconds(fraction, scalar))
    return -length if sign else length


def _microseconds(fraction: str | None, scalar: Scalar) -> int:
    digits = (fraction or "").ljust(6, "0")
    if digits[6:].strip("0"):
        raise Unfit(f"{scalar} is more precise than a microsecond; write at most six digits after the point")
    return int(digits[:6])


def _wrong(element: Element, scalar: Scalar, *, unquoted: bool = False) -> Unfit:
    hint = ": remove the quotes" if unquoted and scalar.kind == "text" and scalar.quoted else ""
    return Unfit(f"{scalar.described()}; write {expected(element)}{hint}")


def expected(element: Element) -> str:
    """Describe a valid value, for use after ``write``."""
    if element.kind in RANGES:
        low, high = RANGES[element.kind]
        return f"a whole number from {low} to {high} ({element.kind})"
    if element.kind == "enum":
        return f"one of {', '.join(enum_names(element.enum))}"
    return _WORDS.get(element.kind, element.kind)


_WORDS = {
    "string": "text",
    "bytes": "bytes as base64 text, such as 'aGVsbG8='",
    "bool": "true or false",
    "float": "a number",
    "double": "a number",
    "timestamp": "a timestamp with its zone, such as '2024-02-29T12:30:00Z'",
    "duration": "seconds, such as '1.5s'",
    "message": "a map of its fields",
}
_CONVERTERS: dict[str, Callable[[Element, Scalar], Any]] = {
    "string": _string,
    "bytes": _bytes,
    "bool": _boolean,
    "float": _float,
    "double": _float,
    "enum": _enum,
    "timestamp": _timestamp,
    "duration": _duration,
}

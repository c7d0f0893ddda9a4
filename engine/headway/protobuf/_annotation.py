"""The types of declared fields, read from their annotations."""

from __future__ import annotations

import re
import types
import typing
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, ForwardRef, Literal, NamedTuple, Self, get_args, get_origin

import betterproto2

from headway._gen.google.protobuf import Timestamp
from headway.errors import DeclarationError

Kind = Literal[
    "int32", "int64", "uint32", "uint64", "sint32", "sint64",
    "fixed32", "fixed64", "sfixed32", "sfixed64", "float", "double",
]  # fmt: skip

_SUPPORTED = (
    "str, int, bool, float, bytes, datetime, timedelta, an IntEnum, another @headway.message class, "
    "any of them as `X | None` or in list[X], and dict[K, X] with str, int or bool for K"
)
_FLOATS = ("float", "double")
_INTEGERS = tuple(kind for kind in get_args(Kind) if kind not in _FLOATS)


class Later:
    """The base of placeholders for classes that an annotation names before they exist."""


def later(name: str) -> type[Later]:
    """Return a placeholder for the class with this name."""
    return type(name, (Later,), {})


class Element(NamedTuple):
    """The type of a single value: its protobuf kind and its Python class."""

    proto_type: str
    python: type[Any]
    # Returns the message class that encodes a value which is not a message itself, such as a datetime.
    unwrap: Callable[[], type] | None = None


class Annotation(NamedTuple):
    """The type of a whole field."""

    shape: Literal["single", "optional", "repeated", "map"]
    element: Element
    key: Element | None = None
    secret: bool = False
    # The name of the oneof that the field is part of, or empty.
    oneof: str = ""


LONGEST_DURATION = 315_576_000_000
"""The number of whole seconds of the longest duration in protobuf: about ten thousand years."""


def _check_length(seconds: int) -> None:
    if seconds > LONGEST_DURATION:
        raise ValueError(f"a duration has at most {LONGEST_DURATION} seconds, which are ten thousand years")


@dataclass(eq=False, repr=False)
class Duration(betterproto2.Message):
    """The message ``google.protobuf.Duration``. Seconds and nanos never have opposite signs."""

    seconds: int = betterproto2.field(1, betterproto2.TYPE_INT64)
    nanos: int = betterproto2.field(2, betterproto2.TYPE_INT32)

    @staticmethod
    def from_wrapped(wrapped: timedelta) -> Duration:
        """Return the message for a timedelta."""
        microseconds = wrapped // timedelta(microseconds=1)
        sign = -1 if microseconds < 0 else 1
        seconds, rest = divmod(abs(microseconds), 1_000_000)
        _check_length(seconds)
        return Duration(seconds=sign * seconds, nanos=sign * rest * 1000)

    def to_wrapped(self) -> timedelta:
        """Return the timedelta, truncated to microseconds."""
        _check_length(abs(self.seconds))
        sign = -1 if self.nanos < 0 else 1
        return timedelta(seconds=self.seconds, microseconds=sign * (abs(self.nanos) // 1000))

    def to_dict(self, **_options: Any) -> Any:
        """Return the duration in protobuf's JSON form: ``"1.5s"``."""
        sign = "-" if self.seconds < 0 or self.nanos < 0 else ""
        fraction = f".{abs(self.nanos):09}".rstrip("0").rstrip(".")
        return f"{sign}{abs(self.seconds)}{fraction}s"

    @classmethod
    def from_dict(cls, value: Any, *, ignore_unknown_fields: bool = False) -> Self:
        """Return a duration from its JSON form in protobuf."""
        if not isinstance(value, str):
            return super().from_dict(value, ignore_unknown_fields=ignore_unknown_fields)
        seconds, _, fraction = value.removesuffix("s").removeprefix("-").partition(".")
        if not value.endswith("s") or not (seconds + fraction).isdecimal() or len(fraction) > 9:
            raise ValueError(f"{value!r} is not a valid duration; expected a value such as '1.5s'")
        sign = -1 if value.startswith("-") else 1
        return cls(seconds=sign * int(seconds or 0), nanos=sign * int(fraction.ljust(9, "0")))


TIMESTAMP = Element("message", datetime, lambda: Timestamp)
DURATION = Element("message", timedelta, lambda: Duration)
_ELEMENTS = {
    str: Element("string", str),
    bytes: Element("bytes", bytes),
    bool: Element("bool", bool),
    datetime: TIMESTAMP,
    timedelta: DURATION,
}


IMPORTED = "an import under `if TYPE_CHECKING:` does not count"
"""A hint for a name that an annotation uses and that is not defined."""


class Names(ChainMap[str, Any]):
    """The names that an annotation may use, innermost first. An undefined name gives a `Later`."""

    def __missing__(self, name: str) -> Any:
        return later(name)


def evaluated(annotation: Any, names: Names, where: str) -> Any:
    """Return the annotation, evaluated if it is still a string."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation
    try:
        # Evaluating is safe: the text is the program's own source.
        return eval(annotation, {}, names)
    except Exception as error:
        absent = [name for name in re.findall(r"(?<![\w.])[^\W\d]\w*", annotation) if name not in names]
        problem = f"{absent[0]} is not defined ({IMPORTED})" if absent else error
        raise DeclarationError(f"{where}: invalid annotation {annotation!r}: {problem}") from error


def read_annotation(annotation: Any, kind: str | None, names: Names, where: str) -> Annotation:
    """Return the type of a field with this annotation. ``where`` is the name of the field in errors."""
    annotation = evaluated(annotation, names, where)
    try:
        return _read(annotation, kind, names, where)
    except _Unsupported as error:
        found = error.args[0]
        inner = "" if found is annotation else f": {_name(found)} cannot stand there"
        right = _right_form(annotation, found) or f"a field can be {_SUPPORTED}"
        raise DeclarationError(f"{where}: unsupported annotation {_name(annotation)}{inner}; {right}") from None


class _Unsupported(Exception):
    """An annotation, or a part of one, is not supported. The argument is that part."""


def _right_form(annotation: Any, found: Any) -> str | None:
    """Return what to write in place of an annotation with an unsupported part, if it is one that people often write."""
    if get_origin(annotation) in (typing.Union, types.UnionType) and get_origin(found) in (list, dict):
        return f"a list or dict that isn't set is empty: write `{_name(found)}`, or put it into a message of its own"
    if get_origin(annotation) not in (list, dict):
        return None
    if get_origin(found) in (list, dict):
        row = f"`class Row` with `values: {_name(found)} = field(1)`"
        outer = "list[Row]" if get_origin(annotation) is list else f"dict[{_name(get_args(annotation)[0])}, Row]"
        return f"declare a message for the inner one, such as {row}, and write `{outer}`"
    if get_origin(found) in (typing.Union, types.UnionType):
        return "an item of a list or dict cannot be None: leave the item out, or use a message with a field `X | None`"
    return None


def _read(annotation: Any, kind: str | None, names: Names, where: str) -> Annotation:
    if get_origin(annotation) is typing.Annotated:
        annotation = get_args(annotation)[0]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        present = [argument for argument in arguments if argument is not type(None)]
        if len(present) != 1 or len(arguments) != 2:
            raise _Unsupported(annotation)
        return Annotation("optional", _element(present[0], kind, names, where))
    if origin is list:
        return Annotation("repeated", _element(arguments[0], kind, names, where))
    if origin is dict:
        key = _element(arguments[0], None, names, where)
        if key.python not in (str, int, bool):
            raise DeclarationError(f"{where}: the keys of a dict must be str, int or bool, not {_name(key.python)}")
        return Annotation("map", _element(arguments[1], kind, names, where), key)
    element = _element(annotation, kind, names, where)
    if issubclass(element.python, Later):
        # An absent field holds an empty message of the class, so the class must exist by now. This also prevents a
        # message from containing itself endlessly.
        name = element.python.__name__
        raise DeclarationError(
            f"{where}: {name} is not declared above; write `{name} | None`, or declare {name} first ({IMPORTED})"
        )
    return Annotation("single", element)


def _element(python: Any, kind: str | None, names: Names, where: str) -> Element:
    python = evaluated(python, names, where)
    if python is int or python is float:
        kinds = _INTEGERS if python is int else _FLOATS
        if kind is not None and kind not in kinds:
            raise DeclarationError(
                f"{where}: invalid kind={kind!r} for {_name(python)}; expected one of {', '.join(kinds)}"
            )
        return Element(kind or ("int64" if python is int else "double"), python)
    if kind is not None:
        raise DeclarationError(f"{where}: kind={kind!r} is only valid for an int or a float, not {_name(python)}")
    if not isinstance(python, type):
        raise _Unsupported(python)
    if python in _ELEMENTS:
        return _ELEMENTS[python]
    if issubclass(python, IntEnum):
        return _enum(python, where)
    if issubclass(python, (betterproto2.Message, Later)):
        return Element("message", python)
    raise _Unsupported(python)


def _enum(python: type[IntEnum], where: str) -> Element:
    values = {int(member) for member in python}
    if 0 not in values:
        raise DeclarationError(f"{where}: {_name(python)} must have a member with value 0, the value of an unset field")
    wide = [value for value in values if not -(1 << 31) <= value < 1 << 31]
    if wide:
        raise DeclarationError(
            f"{where}: {_name(python)} has the value {wide[0]}; the values of an enum must fit into 32 bits"
        )
    return Element("enum", python)


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else repr(annotation)

"""Derive the protobuf kind of a declared field from its annotation."""

import builtins
import datetime
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ForwardRef, Literal, get_args, get_origin

import betterproto2

from headway.errors import DeclarationError

Kind = Literal[
    "int32", "int64", "uint32", "uint64", "sint32", "sint64",
    "fixed32", "fixed64", "sfixed32", "sfixed64", "float", "double",
]  # fmt: skip

SUPPORTED = (
    "str, int, bool, float, bytes, datetime, timedelta, an IntEnum, another @headway.message class, "
    "any of them as `X | None` or in list[X], and dict[K, X] with str, int or bool for K"
)
_FLOATS = ("float", "double")
_INTEGERS = tuple(kind for kind in get_args(Kind) if kind not in _FLOATS)
_PLAIN = {str: "string", bytes: "bytes", bool: "bool"}


class Later:
    """The base of placeholders for classes that an annotation names before they exist."""


@dataclass(frozen=True)
class Element:
    """The type of a single value: its protobuf kind and its Python class."""

    proto_type: str
    python: type[Any]
    unwrap: Callable[[], type] | None = None


@dataclass(frozen=True)
class Annotation:
    """The type of a whole field."""

    shape: Literal["single", "optional", "repeated", "map"]
    element: Element
    key: Element | None = None


class Names(dict[str, Any]):
    """The names that an annotation may use, innermost first. An undefined name gives a `Later`."""

    def __init__(self, layers: list[Mapping[str, Any]]) -> None:
        super().__init__()
        self._layers = layers

    def __missing__(self, name: str) -> Any:
        for layer in (*self._layers, vars(builtins)):
            if name in layer:
                return layer[name]
        return type(name, (Later,), {})


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
        raise DeclarationError(f"{where}: invalid annotation {annotation!r}: {error}") from error


def read_annotation(annotation: Any, kind: str | None, names: Names, where: str) -> Annotation:
    """Return the type of a field with this annotation. ``where`` is the name of the field in errors."""
    annotation = evaluated(annotation, names, where)
    if get_origin(annotation) is typing.Annotated:
        annotation = get_args(annotation)[0]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        present = [argument for argument in arguments if argument is not type(None)]
        if len(present) != 1 or len(arguments) != 2:
            raise _unsupported(annotation, where)
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
        raise DeclarationError(f"{where}: {name} is not declared above; write `{name} | None`, or declare {name} first")
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
        raise _unsupported(python, where)
    if python in _PLAIN:
        return Element(_PLAIN[python], python)
    if python is datetime.datetime or python is datetime.timedelta:
        return Element("message", python, timestamp_message if python is datetime.datetime else duration_message)
    if issubclass(python, IntEnum):
        return _enum(python, where)
    if issubclass(python, (betterproto2.Message, Later)):
        return Element("message", python)
    raise _unsupported(python, where)


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


def timestamp_message() -> type:
    """Return the message class that encodes a datetime."""
    from headway._gen.google.protobuf import Timestamp

    return Timestamp


def duration_message() -> type:
    """Return the message class that encodes a timedelta."""
    from headway.protobuf._duration import Duration

    return Duration


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else repr(annotation)


def _unsupported(annotation: Any, where: str) -> DeclarationError:
    return DeclarationError(f"{where}: unsupported annotation {_name(annotation)}; a field can be {SUPPORTED}")

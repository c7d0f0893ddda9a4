"""Declared message classes: the classes of their fields, their names in protobuf, their removed and renamed fields."""

from __future__ import annotations

import copy
import dataclasses
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from types import FrameType
from typing import Any, ClassVar, NamedTuple, Self

import betterproto2

from headway.errors import DeclarationError
from headway.protobuf._annotation import IMPORTED, Annotation, Element, Later

HIGHEST_NUMBER = 536_870_911
"""The highest valid field number."""


class Declaration:
    """The fields of a declared message, and the frames that are searched for class names."""

    def __init__(self, own_name: str, fields: dict[str, Annotation], frames: list[FrameType]) -> None:
        self.fields = fields
        self._own_name = own_name
        self._frames = frames
        self._found: dict[str, type[Any]] = {}
        later = {a.element.python.__name__ for a in fields.values() if issubclass(a.element.python, Later)}
        self._missing = later - {own_name}
        if not self._missing:
            # Drop the frames: they would keep all their variables alive.
            self._frames = []

    def python(self, element: Element, cls: type[Any], field: str) -> type[Any]:
        """Return the class of an element. It may have been declared after the message."""
        if not issubclass(element.python, Later):
            return element.python
        name = element.python.__name__
        if name == self._own_name:
            return cls
        if name not in self._found:
            self._found[name] = self._look_up(name, cls, field)
            if self._missing <= self._found.keys():
                self._frames = []
        return self._found[name]

    def _look_up(self, name: str, cls: type[Any], field: str) -> type[Any]:
        where = f"{cls.__qualname__}.{field}"
        for layer in [*scopes(self._frames), vars(sys.modules.get(cls.__module__, types))]:
            if name in layer:
                found = layer[name]
                if isinstance(found, type) and issubclass(found, betterproto2.Message):
                    return found
                raise DeclarationError(
                    f"{where}: {name} is {found!r}; only a @headway.message class can be declared after its use"
                )
        raise DeclarationError(f"{where}: {name} not found in {cls.__module__} ({IMPORTED})")


def scopes(frames: list[FrameType]) -> list[dict[str, Any]]:
    """Return the variables of the frames, innermost first."""
    return [layer for frame in frames for layer in (frame.f_locals, frame.f_globals)]


class DeclaredMessage(betterproto2.Message):
    """The base of the classes that ``@headway.message`` makes."""

    # A class attribute, because a program's own __post_init__ may not call betterproto2's.
    _unknown_fields = b""
    _declaration: ClassVar[Declaration]
    # The full name in protobuf, or empty if it has no name of its own.
    _message_name: ClassVar[str]
    # The type that the class is named after, or empty for a declared name.
    _named_by: ClassVar[str] = ""
    # The answer of `holds_secrets`, once it was asked.
    _holds_secrets: ClassVar[bool]
    # Returns what to show of a message. `_secrets.py` sets it, because it needs the codec, which needs this module.
    _shown: ClassVar[Callable[[Any], Any]] = staticmethod(lambda message: message)

    def __repr__(self) -> str:
        """Return the fields that are set. A secret is redacted, because a repr ends in logs and error messages."""
        return betterproto2.Message.__repr__(DeclaredMessage._shown(self))

    # betterproto2's copies would lose the unknown fields, and would call a program's own __post_init__.
    def __copy__(self, _: Any = None) -> Self:
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        return made

    def __deepcopy__(self, memo: Any = None) -> Self:
        memo = {} if memo is None else memo
        memo[id(self)] = made = object.__new__(type(self))
        vars(made).update(copy.deepcopy(vars(self), memo))
        return made

    @classmethod
    def _type_hints(cls) -> dict[str, Any]:
        return {name: _hint(cls, name, field) for name, field in cls._declaration.fields.items()}

    @classmethod
    def _cls_for(cls, field: dataclasses.Field[Any], index: int = 0) -> Any:
        declared = cls._declaration.fields[field.name]
        if declared.key is not None and index == 0:
            return declared.key.python
        python = cls._declaration.python(declared.element, cls, field.name)
        return PlainEnum(python) if _is_plain_enum(python) else python


def _hint(cls: type[DeclaredMessage], name: str, declared: Annotation) -> Any:
    python: Any = cls._declaration.python(declared.element, cls, name)
    if _is_plain_enum(python):
        python = _named(python)
    if declared.key is not None:
        return types.GenericAlias(dict, (declared.key.python, python))
    if declared.shape == "repeated":
        return types.GenericAlias(list, (python,))
    return python | None if declared.shape == "optional" else python


def _is_plain_enum(python: type[Any]) -> bool:
    return issubclass(python, IntEnum) and not issubclass(python, betterproto2.Enum)


class PlainEnum:
    """A stand-in for an IntEnum, with the interface that betterproto2 expects of its own Enum.

    A number without a member is a value too, as proto3 requires.
    """

    def __init__(self, enum: type[IntEnum]) -> None:
        self.plain_enum = enum
        self.__name__ = enum.__name__
        self.__module__ = enum.__module__

    def __call__(self, value: int) -> IntEnum:
        """Return the member with this value or, like betterproto2, an instance without a name."""
        try:
            return self.plain_enum(value)
        except ValueError:
            unknown = int.__new__(self.plain_enum, value)
            unknown._value_ = value
            unknown._name_ = ""
            return unknown

    def from_string(self, name: str) -> IntEnum:
        """Return the member with this name."""
        try:
            return self.plain_enum[name]
        except KeyError as error:
            known = ", ".join(self.plain_enum.__members__)
            raise ValueError(f"{name!r} is not a member of {self.__name__}; expected one of {known}") from error

    def betterproto_renamed_proto_names_to_value(self) -> dict[str, int]:
        """Return an empty dict: all members have the same names in protobuf."""
        return {}


@cache
def _named(enum: type[IntEnum]) -> type[betterproto2.Enum]:
    """Return a betterproto2.Enum with the same members, which provides their names in JSON."""
    members = {name: member.value for name, member in enum.__members__.items()}
    return types.new_class(enum.__name__, (betterproto2.Enum,), exec_body=lambda body: body.update(members))


def dataclass_field(declared: Annotation, number: int, oneof: str | None = None) -> Any:
    """Return the dataclass field that betterproto2 expects for a declared field, which may be part of a oneof."""
    element = declared.element
    unwrap: Any = element.unwrap
    if declared.key is not None:
        map_meta = betterproto2.map_meta(declared.key.proto_type, element.proto_type, unwrap_2=unwrap)
        return betterproto2.field(number, betterproto2.TYPE_MAP, map_meta=map_meta)
    made = betterproto2.field(
        number,
        element.proto_type,
        unwrap=unwrap,
        group=oneof,
        optional=declared.shape == "optional" and not oneof,
        repeated=declared.shape == "repeated",
        default_factory=cache(lambda: PlainEnum(element.python)(0)) if element.proto_type == "enum" else None,
    )
    if declared.shape == "single" and element.proto_type == "message":
        # betterproto2's default would be None, which the annotation does not allow.
        made.default_factory = element.python if unwrap is None else lambda: unwrap()().to_wrapped()
    return made


def full_name(cls: type[Any]) -> str:
    """Return the full protobuf name of a message class, or an empty string if it has no name of its own.

    A declared class has none if it is declared without ``name=`` and is not the payload of a type. Then it is named
    after the message that contains it.
    """
    if issubclass(cls, DeclaredMessage):
        return cls._message_name
    # Generated classes are named only in the message pool of their package.
    pool = getattr(sys.modules.get(cls.__module__), "default_message_pool", None)
    url: str | None = pool.type_to_url.get(cls) if pool is not None else None
    return url.rpartition("/")[2] if url is not None else module_name(cls)


def bind_name(cls: type[Any], type: str) -> str:
    """Return the full protobuf name of the payload of a type. A declared class without a name keeps the type's name.

    Raises:
        DeclarationError: The class is already named after another type.
    """
    name = full_name(cls)
    if not issubclass(cls, DeclaredMessage) or (name and not cls._named_by):
        return name
    if not name:
        cls._message_name = cls._named_by = type
    elif cls._named_by != type:
        raise DeclarationError(
            f"type {type}: payload {cls.__name__} is already named {name} after another type. "
            f"Give the class a name of its own, for both types: @headway.message(name={type!r})"
        )
    return cls._message_name


@contextmanager
def named_if_declared(cls: object) -> Iterator[None]:
    """Take back the name that `bind_name` has given to a class during the block, if the block raises."""
    if not (isinstance(cls, type) and issubclass(cls, DeclaredMessage)):
        yield
        return
    before = cls._message_name, cls._named_by
    try:
        yield
    except BaseException:
        cls._message_name, cls._named_by = before
        raise


def nested_name(cls: type[Any], within: str) -> str:
    """Return the name of a class without a name of its own, which the message ``within`` contains."""
    return f"{within}.{_proto_name(cls.__name__)}"


def module_name(cls: type[Any]) -> str:
    """Return ``<module>.<class>`` as a valid protobuf name. Earlier releases named all declared classes this way."""
    parts = f"{cls.__module__}.{cls.__qualname__}".replace(".<locals>", "").split(".")
    return ".".join(map(_proto_name, parts))


def _proto_name(name: str) -> str:
    return re.sub(r"^(?=\d)|[^A-Za-z0-9_]", "_", name)


class Changes(NamedTuple):
    """The removed and renamed fields of one class.

    Attributes:
        reserved: the names of removed fields, by their numbers.
        renamed: the earlier names of fields, by their numbers.
    """

    reserved: Mapping[int, str]
    renamed: Mapping[int, tuple[str, ...]]


def changes_of(cls: type[Any]) -> Changes:
    """Return the changes that are declared for a message class, which may be a generated one."""
    found: Changes = cls.__dict__.get("_headway_changes") or Changes({}, {})
    return found


def declare_changes(cls: type[Any], reserved: object, renamed: object) -> None:
    """Attach declared changes to a class. Raises DeclarationError if they are invalid."""
    # Use the dataclass: betterproto2's metadata needs the classes of all fields, and some may be declared later.
    names = {betterproto2.FieldMetadata.get(each).number: each.name for each in dataclasses.fields(cls)}
    removed: dict[int, str] = {}
    for number, name in _items(cls, "reserved", reserved):
        _check(cls, "reserved", number, (name,), name)
        removed[number] = name
    for number, name in removed.items():
        if number in names:
            raise DeclarationError(
                f"{cls.__qualname__}: reserved={{{number}: {name!r}}} reserves the number of {names[number]!r}: "
                f"use {max(*names, *removed) + 1} for that field, or remove the reservation"
            )
    former: dict[int, tuple[str, ...]] = {}
    for number, given in _items(cls, "renamed", renamed):
        former[number] = given if isinstance(given, tuple) else (given,)
        _check(cls, "renamed", number, former[number], given)
        if number not in names:
            raise DeclarationError(
                f"{cls.__qualname__}: renamed={{{number}: {given!r}}} refers to no field: "
                f"for a removed field use reserved={{{number}: {former[number][0]!r}}}"
            )
    cls._headway_changes = Changes(removed, former)


def _items(cls: type[Any], option: str, given: object) -> list[tuple[Any, Any]]:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise _wrong(cls, option, repr(given))
    return [*given.items()]


def _check(cls: type[Any], option: str, number: object, names: tuple[object, ...], given: object) -> None:
    whole = isinstance(number, int) and not isinstance(number, bool) and 0 < number <= HIGHEST_NUMBER
    if not whole or not names or not all(isinstance(name, str) and name for name in names):
        raise _wrong(cls, option, f"{{{number!r}: {given!r}}}")


def _wrong(cls: type[Any], option: str, given: str) -> DeclarationError:
    return DeclarationError(
        f'{cls.__qualname__}: {option}={given} must map field numbers to names, such as {option}={{3: "old_name"}}'
    )

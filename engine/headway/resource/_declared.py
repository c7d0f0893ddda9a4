"""The base of declared messages: tells betterproto2 the classes of their fields, when it asks."""

import dataclasses
import sys
import types
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from types import FrameType
from typing import Any, ClassVar

import betterproto2

from headway.errors import DeclarationError
from headway.resource._annotation import Annotation, Element, Later


class Declaration:
    """What is known of a declared message, and of where its names are to be looked up."""

    def __init__(self, own_name: str, fields: dict[str, Annotation], frames: list[FrameType]) -> None:
        self.fields = fields
        self._own_name = own_name
        self._frames = frames
        self._found: dict[str, type[Any]] = {}
        later = {a.element.python.__name__ for a in fields.values() if issubclass(a.element.python, Later)}
        self._missing = later - {own_name}
        if not self._missing:
            # A frame keeps all its variables alive.
            self._frames = []

    def python(self, element: Element, cls: type[Any], field: str) -> type[Any]:
        """The class of an element, which may have been declared only after the message."""
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
                    f"{where}: {name} is {found!r}; only a @headway.message class may be declared after use"
                )
        raise DeclarationError(f"{where}: there is no {name} in {cls.__module__}")


def scopes(frames: list[FrameType]) -> list[Mapping[str, Any]]:
    """The variables of the frames, innermost first."""
    return [layer for frame in frames for layer in (frame.f_locals, frame.f_globals)]


class DeclaredMessage(betterproto2.Message):
    """What ``@headway.message`` makes of a class derives from this."""

    # A __post_init__ of the program's own need not call ours.
    _unknown_fields = b""
    _declaration: ClassVar[Declaration]
    # Its full name in protobuf; empty while it has none of its own.
    _message_name: ClassVar[str]
    # The type after which it is called; empty for a name that was given.
    _named_by: ClassVar[str] = ""

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
    """Stands for an IntEnum where betterproto2 makes values of its own Enum.

    A number without a member is a value too, as proto3 wants it.
    """

    def __init__(self, enum: type[IntEnum]) -> None:
        self.plain_enum = enum
        self.__name__ = enum.__name__
        self.__module__ = enum.__module__

    def __call__(self, value: int) -> IntEnum:
        """The member of the value; for an unknown one an instance without a name, as betterproto2 does it."""
        try:
            return self.plain_enum(value)
        except ValueError:
            unknown = int.__new__(self.plain_enum, value)
            unknown._value_ = value
            unknown._name_ = ""
            return unknown

    def from_string(self, name: str) -> IntEnum:
        """The member of the name."""
        try:
            return self.plain_enum[name]
        except KeyError as error:
            known = ", ".join(self.plain_enum.__members__)
            raise ValueError(f"{name!r} is no {self.__name__}; there are {known}") from error

    def betterproto_renamed_proto_names_to_value(self) -> dict[str, int]:
        """No member has another name in protobuf."""
        return {}


@cache
def _named(enum: type[IntEnum]) -> type[betterproto2.Enum]:
    """A betterproto2 Enum with the same members, for what only such a one can say: its names in JSON."""
    members = {name: member.value for name, member in enum.__members__.items()}
    return types.new_class(enum.__name__, (betterproto2.Enum,), exec_body=lambda body: body.update(members))

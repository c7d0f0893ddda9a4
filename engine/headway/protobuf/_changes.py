"""Declarations of the removed and renamed fields of a message."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import betterproto2

from headway.errors import DeclarationError
from headway.protobuf._declared import DeclaredMessage

HIGHEST_NUMBER = 536_870_911
"""The highest valid field number."""

_ATTRIBUTE = "_headway_changes"


class Changes(NamedTuple):
    """The changes that are declared for one class.

    Attributes:
        reserved: the names of removed fields, by their numbers.
        renamed: the former names of fields, by their numbers.
    """

    reserved: Mapping[int, str]
    renamed: Mapping[int, tuple[str, ...]]


_NONE = Changes({}, {})


def changes_of(cls: type[Any]) -> Changes:
    """Return the changes that are declared for a message class."""
    found: Changes = cls.__dict__.get(_ATTRIBUTE, _NONE)
    return found


def is_generated(cls: type[Any]) -> bool:
    """Return True if betterproto2 generated the class."""
    given: object = cls
    if not isinstance(given, type) or not issubclass(given, betterproto2.Message):
        return False
    return dataclasses.is_dataclass(given) and not issubclass(given, DeclaredMessage)


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
                f"for a removed field use reserved={{{number}: {former[number][-1]!r}}}"
            )
    setattr(cls, _ATTRIBUTE, Changes(removed, former))


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

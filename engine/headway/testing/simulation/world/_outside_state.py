"""The state of a world outside, as values that can be compared between two runs and look the same in every process."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from headway.errors import DeclarationError
from headway.testing.simulation.oracles import attributes_of, shown

_CONTAINERS = (Mapping, list, tuple, set, frozenset, deque, str, bytes)
_OPAQUE = {*sys.stdlib_module_names, "trio"}
"""The packages whose objects are compared by their class: a lock or a generator leads to the whole run."""


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Thing:
    """An object of a class without an ``__eq__`` of its own, as the name of its class and its attributes."""

    name: str
    attributes: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={shown(value)}' for name, value in self.attributes.items())})"

    def __getattr__(self, name: str) -> Any:
        # For the `__eq__` of a dataclass that contains the object.
        try:
            return self.attributes[name]
        except KeyError:
            raise AttributeError(name) from None


def made_outside(make: Callable[[], object] | None) -> Any:
    """Return a new world outside, or None if the program has none.

    Raises:
        DeclarationError: if the world has no state that can be compared.
    """
    if make is None:
        return None
    outside = make()
    if callable(getattr(outside, "state", None)) or not (
        isinstance(outside, _CONTAINERS) or attributes_of(outside) is None
    ):
        return outside
    raise DeclarationError(
        f"outside= returns a {type(outside).__name__}, which has no state that can be compared: expected an object "
        "with attributes, or with a method state(), such as a Cloud with self.disks"
    )


def outside_state(outside: object) -> Any:
    """Return a copy of the state that a world outside reports, or else of its attributes."""
    if outside is None:
        return None
    state = getattr(outside, "state", None)
    if callable(state):
        return _plain(state(), ())
    return {name: _plain(value, (id(outside),)) for name, value in (attributes_of(outside) or {}).items()}


def _plain(value: Any, path: tuple[int, ...]) -> Any:
    """Return a copy of a value in which objects without an ``__eq__`` are things. ``path`` are what contains it."""
    cls = type(value)
    if isinstance(value, Enum | type):
        return value
    if id(value) in path:
        return f"the {cls.__qualname__} that contains this"
    path = (*path, id(value))
    if isinstance(value, dict):
        return _plain_mapping(value, path)
    if isinstance(value, list | deque):
        made: Any = copy.copy(value)
        for at, each in enumerate(value):
            made[at] = _plain(each, path)
        return made
    if isinstance(value, tuple) and (cls is tuple or hasattr(cls, "_make")):
        return getattr(cls, "_make", tuple)(_plain(each, path) for each in value)
    if isinstance(value, set | frozenset):
        things = [_plain(each, path) for each in value]
        # Two objects may have equal attributes, and both count.
        is_same = set(map(_is_comparable, value)) <= {True}
        return copy.copy(value) if is_same else sorted(things, key=shown)
    if dataclasses.is_dataclass(cls) and cls.__dataclass_params__.eq:  # type: ignore[attr-defined]
        made = copy.copy(value)
        for name, each in (attributes_of(value) or {}).items():
            object.__setattr__(made, name, _plain(each, path))
        return made
    if _is_comparable(value):
        return copy.deepcopy(value)
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    opaque = cls.__module__.partition(".")[0] in _OPAQUE
    attributes = {} if opaque else attributes_of(value) or {}
    return Thing(cls.__qualname__, {name: _plain(each, path) for name, each in attributes.items()})


def _plain_mapping(value: dict[Any, Any], path: tuple[int, ...]) -> dict[Any, Any]:
    made = copy.copy(value)
    made.clear()
    for key, each in value.items():
        name = key
        if not _is_comparable(key):
            text = shown(_plain(key, path))
            number = sum(str(other).partition(" #")[0] == text for other in made)
            name = f"{text} #{number + 1}" if number else text
        made[name] = _plain(each, path)
    return made


def _is_comparable(value: object) -> bool:
    """Return True if a value equals others by its class's own rule."""
    cls = type(value)
    if callable(value) and hasattr(value, "__qualname__"):  # a bound method equals only those of the same object
        return isinstance(value, type)
    return isinstance(value, Enum) or cls.__eq__ is not object.__eq__

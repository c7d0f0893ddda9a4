"""The places that fields can own: paths of a payload, and entries of the metadata. Pure."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, Self, cast

import betterproto2

from headway.base import did_you_mean
from headway.errors import InvalidArgument
from headway.protobuf import copy_message, decode, equal, metadata_of
from headway.resource import (
    DELETION_TIMESTAMP,
    FIELD_OWNERS,
    FINALIZERS,
    Resource,
    ResourceType,
    quoted,
    unicode_problem,
)

_METADATA = "metadata:"
_LONGEST = 400
"""The maximum length of a path."""

_DEEPEST = 100
"""The maximum number of levels of a path. Payloads are not nested deeper."""

_REMEMBERED = 8192
"""The number of paths whose places are remembered: those of two resources with as many owned fields as possible."""


class State(NamedTuple):
    """The parts of a resource that have owners. Both belong to the state, and may be changed."""

    payload: Any
    metadata: dict[str, str]

    @classmethod
    def of(cls, resource: Resource[Any]) -> Self:
        """Return the state of a resource as it was read or made, with the caller's changes."""
        copied = resource.copy()
        return cls(copied.data, copied.metadata)

    @classmethod
    def empty(cls, type: ResourceType[Any]) -> Self:
        """Return the state of a resource without any field."""
        return cls(_new(type.payload), {})


class Place(Protocol):
    """A place in a state."""

    def put(self, target: State, source: State, *, around: bool = False) -> None:
        """Give the place in ``target`` the value that it has in ``source``.

        If it is the default, the messages around it are made only with ``around``, if they are set in ``source``.
        """
        ...

    def same(self, left: State, right: State) -> bool:
        """Return True if the place has the same value in both states."""
        ...

    def is_missing(self, state: State) -> bool:
        """Return True if the place is an entry of a map, or of the metadata, and there is no such entry."""
        ...


def place_of(type: ResourceType[Any], path: str) -> Place:
    """Return the place of a path: ``size``, ``spec.replicas``, ``labels.app`` for a map, or ``metadata:tier``.

    Raises:
        InvalidArgument: the type has no such field.
    """
    if len(path) > _LONGEST:
        raise InvalidArgument(f"field {quoted(path)} must have at most {_LONGEST} characters")
    if problem := unicode_problem("field", path):
        raise InvalidArgument(problem)
    if path.startswith(_METADATA):
        key = path.removeprefix(_METADATA)
        if key in ("", FINALIZERS, DELETION_TIMESTAMP, FIELD_OWNERS):
            raise InvalidArgument(f"field {path!r} must name an entry of the program's own, such as 'metadata:tier'")
        return _Entry(key)
    found = _field_or_error(cast("Hashable", type.payload), path)
    if isinstance(found, str):
        raise InvalidArgument(found)
    return found


def known_place(type: ResourceType[Any], path: str) -> Place | None:
    """Return the place of a path, or None if this program does not know the field."""
    try:
        return place_of(type, path)
    except InvalidArgument:
        return None


class _Entry(NamedTuple):
    """An entry of the metadata."""

    key: str

    def put(self, target: State, source: State, **_: bool) -> None:
        _put_entry(target.metadata, source.metadata, self.key)

    def same(self, left: State, right: State) -> bool:
        return left.metadata.get(self.key) == right.metadata.get(self.key)

    def is_missing(self, state: State) -> bool:
        return self.key not in state.metadata


class _Field(NamedTuple):
    """A field of a payload, or an entry of a map in it.

    Attributes:
        outer: the names of the messages around it, from the payload's own field on.
        holder: the class of the message that has the field.
        name: the field.
        key: the key of an entry; None for the whole field.
    """

    outer: tuple[str, ...]
    holder: type[Any]
    name: str
    key: Any = None

    def put(self, target: State, source: State, *, around: bool = False) -> None:
        found = self._found(source)
        is_there = found is None or not around or self._found(target) is not None
        if is_there and self.same(target, source):
            # Nothing is made around a field that is not set.
            return
        message = target.payload
        for name in self.outer:
            if getattr(message, name) is None:
                _set(message, name, _new(metadata_of(type(message)).cls_by_field[name]))
            message = getattr(message, name)
        given = getattr(_new(self.holder) if found is None else found, self.name)
        if self.key is None:
            _set(message, self.name, _copied(given))
        else:
            _put_entry(getattr(message, self.name), given, self.key)

    def same(self, left: State, right: State) -> bool:
        found, other = self._found(left), self._found(right)
        return found is other or equal(self._alone(found), self._alone(other))

    def is_missing(self, state: State) -> bool:
        if self.key is None:
            return False
        found = self._found(state)
        return found is None or self.key not in getattr(found, self.name)

    def _found(self, state: State) -> Any:
        """Return the message that has the field, or None if it is not set."""
        message = state.payload
        for name in self.outer:
            message = getattr(message, name)
            if message is None:
                return None
        return message

    def _alone(self, found: Any) -> Any:
        """Return a message with this field alone, so that `equal` compares nothing else."""
        made = _new(self.holder)
        if found is None:
            return made
        value = getattr(found, self.name)
        if self.key is not None:
            value = {self.key: value[self.key]} if self.key in value else {}
        setattr(made, self.name, value)
        return made


@lru_cache(_REMEMBERED)
def _field_or_error(payload: Hashable, path: str) -> _Field | str:
    """Return the field of a path, or the error if the payload has none."""
    try:
        return _field(cast("type[Any]", payload), path)
    except InvalidArgument as error:
        return str(error)


def _field(payload: type[Any], path: str) -> _Field:
    holder, names = payload, path.split(".")
    for at, name in enumerate(names):
        if at == _DEEPEST:
            raise InvalidArgument(f"field {quoted(path)} must have at most {_DEEPEST} levels")
        metadata = metadata_of(holder)
        meta = metadata.meta_by_field_name.get(name)
        if meta is None:
            hint = did_you_mean(name, metadata.meta_by_field_name)
            raise InvalidArgument(f"field {quoted(path)}: {holder.__name__} has no field {quoted(name)}{hint}")
        if at + 1 == len(names):
            return _Field(_outer(names[:at]), holder, name)
        if meta.map_meta is not None:
            # The value of an entry is owned as a whole, so all that follows is the key.
            key = _key(path, meta.map_meta[0].proto_type, ".".join(names[at + 1 :]))
            return _Field(_outer(names[:at]), holder, name, key)
        if meta.proto_type != betterproto2.TYPE_MESSAGE or meta.repeated or meta.unwrap is not None:
            what = "a list, which is owned as a whole" if meta.repeated else "not a message, so it has no fields"
            raise InvalidArgument(f"field {quoted(path)}: {holder.__name__}.{name} is {what}: use {quoted(name)}")
        holder = metadata.cls_by_field[name]
    raise AssertionError(path)


def _outer(names: list[str]) -> tuple[str, ...]:
    """Return names of fields as the classes have them, so that what is remembered stays small."""
    return tuple(map(sys.intern, names))


def _key(path: str, kind: str, text: str) -> Any:
    if kind == "string":
        return text
    keys: Mapping[str, Any] = {"true": True, "false": False}
    if kind != "bool":
        keys = {text: int(text)} if text.removeprefix("-").isdecimal() and str(int(text)) == text else {}
    if text not in keys:
        right = "true or false" if kind == "bool" else "a whole number, such as 5"
        raise InvalidArgument(f"field {quoted(path)}: the key {quoted(text)} must be {right}")
    return keys[text]


def _new(cls: Any) -> Any:
    """Return an empty message, made like one that was read: a constructor may demand values."""
    return decode(cls, b"")


def _set(message: Any, name: str, value: Any) -> None:
    """Set a field. Another field of its oneof is then no longer set."""
    metadata = metadata_of(type(message))
    group = metadata.meta_by_field_name[name].group
    if group and value is not None:
        for arm in metadata.oneof_field_by_group[group]:
            setattr(message, arm.name, None)
    setattr(message, name, value)


def _put_entry(target: dict[Any, Any], source: Mapping[Any, Any], key: Any) -> None:
    if key in source:
        target[key] = _copied(source[key])
    else:
        target.pop(key, None)


def _copied(value: Any) -> Any:
    """Return a copy of a value."""
    if _is_message(value):
        return copy_message(value)
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return {key: _copied(each) for key, each in value.items()} if isinstance(value, dict) else value


def _is_message(value: object) -> bool:
    return isinstance(value, betterproto2.Message)

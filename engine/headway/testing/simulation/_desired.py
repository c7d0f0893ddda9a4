"""Strategies for desired states: payloads of a type, and chains of them, drawn from the message's fields."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Any, TypeVar

import betterproto2
from hypothesis import strategies as st

from headway.errors import DeclarationError
from headway.protobuf import Payload
from headway.resource import ResourceType, did_you_mean

T = TypeVar("T", bound=Payload)

_TEXTS = st.sampled_from(["", "a", "b", "c"])
_SCALARS: dict[type, st.SearchStrategy[Any]] = {
    str: _TEXTS,
    int: st.integers(0, 3),
    float: st.sampled_from([0.0, 0.5, 1.0]),
    bool: st.booleans(),
    bytes: st.sampled_from([b"", b"a", b"b"]),
}


def desired(wanted: ResourceType[T], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Return a strategy for payloads of a type.

    Payloads are small and often equal, so that a chain of them has much to undo. Only payloads that the type's
    ``validate`` accepts are drawn.

    Args:
        fields: strategies for the fields of the message whose values have a meaning, such as names of existing
            resources.

    Raises:
        DeclarationError: if the message has no such field.
    """
    payloads = _messages(wanted.payload, fields)
    validate = wanted.hooks.validate
    if validate is None:
        return payloads

    def is_valid(payload: T) -> bool:
        try:
            validate(wanted.new("a", payload))
        except ValueError:
            return False
        return True

    return payloads.filter(is_valid)


def chains(
    wanted: ResourceType[T], *, most: int = 4, **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[list[T | None]]:
    """Return a strategy for the successive desired states of one resource. None stands for its deletion."""
    return st.lists(st.one_of(desired(wanted, **fields), st.none()), min_size=1, max_size=most)


def _messages(message: type[Any], fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(message)
    names = [each.name for each in dataclasses.fields(message) if not each.name.startswith("_")]
    for name in fields:
        if name not in names:
            hint = did_you_mean(name, names)
            raise DeclarationError(f"{message.__name__} has no field {name!r}{hint}: it has {', '.join(names)}")
    return st.builds(
        message, **{name: fields[name] if name in fields else _values(hints[name], name) for name in names}
    )


def _values(hint: Any, name: str) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        parts = [_values(each, name) for each in arguments if each is not types.NoneType]
        return st.one_of(st.none(), *parts) if types.NoneType in arguments else st.one_of(*parts)
    if origin is list:
        return st.lists(_values(arguments[0], name), max_size=3)
    if origin is dict:
        return st.dictionaries(_values(arguments[0], name), _values(arguments[1], name), max_size=3)
    if isinstance(hint, type):
        if issubclass(hint, enum.Enum):
            return st.sampled_from(list(hint))
        if issubclass(hint, betterproto2.Message):
            # Deferred, because a message may have a field of its own type.
            return st.deferred(lambda: _messages(hint, {}))
        if hint in _SCALARS:
            return _SCALARS[hint]
    raise DeclarationError(f"field {name!r} has the unsupported type {hint!r}: pass a strategy for it")

"""The answers as messages. Each class of `_answer.py` and `_lists.py` has a message of its name and fields. No I/O."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, TypeVar

from headway._gen.headway.observe import v1 as observe_pb
from headway.why.answers import _answer, _lists

T = TypeVar("T")

_EARLIEST, _LATEST = -62_135_596_800.0, 253_402_300_799.0
"""The years 1 and 9999, in seconds since 1970: the times that Python can show."""


def to_message(value: Any) -> Any:
    """Return an answer, or a part of one, as a message."""
    if isinstance(value, tuple):
        return [to_message(each) for each in value]
    if not dataclasses.is_dataclass(value):
        return value
    name = type(value).__name__
    known = _class_of(name)
    assert known is not None
    return getattr(observe_pb, name)(**{each: to_message(getattr(value, each)) for each in known[1]})


def from_message(cls: type[T], message: Any) -> T:
    """Return the answer of this class, or part of one, that a message holds.

    A time that cannot be shown becomes 0, which means unknown, and a resource whose type cannot be one becomes None. A
    process may have a wrong clock, or send anything, and must not prevent an answer.
    """
    made: T = _value(message)
    assert isinstance(made, cls)
    return made


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(each) for each in value)
    if isinstance(value, float):
        return value if _EARLIEST <= value <= _LATEST else 0.0
    if isinstance(value, observe_pb.Ref) and value.type.count(".") != 2:
        # Whoever compares it, or asks for a right to it, needs a group, a version and a kind.
        return None
    known = _class_of(type(value).__name__)
    if known is None:
        return value
    cls, names = known
    return cls(**{each: _value(getattr(value, each)) for each in names})


@cache
def _class_of(name: str) -> tuple[type, tuple[str, ...]] | None:
    """Return the class of the answers in messages of this name, and its fields; None if there is none."""
    cls = getattr(_answer, name, None) or getattr(_lists, name, None)
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        return None
    return cls, tuple(each.name for each in dataclasses.fields(cls))

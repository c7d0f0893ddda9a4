"""What another process has answered, without what cannot be shown. No I/O."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from headway._gen.headway.observe.v1 import Ref

M = TypeVar("M")

_EARLIEST, _LATEST = -62_135_596_800.0, 253_402_300_799.0
"""The years 1 and 9999, in seconds since 1970: the times that Python can show."""


def cleaned(message: M) -> M:
    """Return a copy of an answer, or of a part of one, with the fields that are known here.

    A time that cannot be shown becomes 0, which means unknown, and a resource whose type cannot be one becomes None. A
    process may have a wrong clock, or send anything, and must not prevent an answer.
    """
    made: M = _value(message)
    return made


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(each) for each in value]
    if isinstance(value, float):
        return value if _EARLIEST <= value <= _LATEST else 0.0
    if isinstance(value, Ref) and value.type.count(".") < 2:
        # Whoever compares it, or asks for a right to it, needs a group, a version and a kind.
        return None
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return type(value)(**{each.name: _value(getattr(value, each.name)) for each in dataclasses.fields(value)})

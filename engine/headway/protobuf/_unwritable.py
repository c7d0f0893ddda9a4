"""The error for a message that cannot be encoded. It names the field, and the element of a list or map. No I/O."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from typing import Any

import betterproto2

from headway.base import repr_text
from headway.errors import PayloadError
from headway.protobuf._compile import Codec
from headway.protobuf._plan import metadata_of

CodecOf = Callable[[type[Any]], Codec]
"""A function that returns the codec of a class."""

UNWRITABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error)
"""What a codec raises for an invalid value."""


def unwritable(message: Any, error: Exception, codec_of: CodecOf) -> PayloadError:
    """Return the error for the first field that cannot be encoded alone."""
    cls = type(message)

    def problem_of(name: str, value: object) -> Exception | None:
        """Return the error of a message that has only this value, or None if it can be encoded."""
        alone = cls()
        setattr(alone, name, value)
        try:
            codec_of(cls).encode(alone)
        except UNWRITABLE as found:
            return found
        return None

    if isinstance(error, RecursionError):
        return PayloadError(f"a {cls.__qualname__} cannot be encoded: it is nested too deeply, or contains itself")
    for name in metadata_of(cls).sorted_field_names:
        value, field = getattr(message, name), f"{cls.__qualname__}.{name}"
        secret = hasattr(cls, "_declaration") and cls._declaration.fields[name].secret
        for where, inner in _elements(value):
            if isinstance(inner, betterproto2.Message):
                try:
                    codec_of(inner.__class__).encode(inner)
                except UNWRITABLE as within:
                    deeper = unwritable(inner, within, codec_of)
                    # The key of a secret map may be secret, too.
                    return PayloadError(f"{field}{'' if secret else where}: {deeper}")
        found = problem_of(name, value)
        if found is None:
            continue
        wrong_kind = isinstance(found, AttributeError | TypeError) or "required argument" in str(found)
        wanted = cls.__dataclass_fields__[name].type
        why = f"expected {wanted.__name__ if isinstance(wanted, type) else wanted}" if wrong_kind else str(found)
        if secret:
            return PayloadError(f"{field} has an invalid value, which is secret: {why}")
        return PayloadError(
            f"{field} has the invalid value {_culprit(value, functools.partial(problem_of, name))}: {why}"
        )
    return PayloadError(f"a {cls.__qualname__} cannot be encoded: {error}")


def _culprit(value: Any, problem_of: Callable[[object], Exception | None]) -> str:
    """Return the text of an invalid value: of a large list or map, the first element that is invalid by itself."""
    if isinstance(value, dict):
        for key, each in value.items():
            if problem_of({key: each}) is not None:
                return f"{repr_text({key: each})}"
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            if problem_of([each]) is not None:
                return f"{repr_text(each)} at [{index}]"
    return f"{repr_text(value)}"


def _elements(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the elements of a list and the values of a map, each after its index or key, or any other single value."""
    if isinstance(value, dict):
        yield from ((f"[{repr_text(key, 80)}]", each) for key, each in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", each) for index, each in enumerate(value))
    else:
        yield "", value

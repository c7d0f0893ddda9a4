"""Put messages into bytes and back, copy and compare them, fast."""

import struct
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, TypeVar

from headway.errors import PayloadError
from headway.resource._payload_compile import codec_of
from headway.resource._payload_plan import metadata_of


class Payload(Protocol):
    """What a type checker knows of a message: generated ones and those of ``@headway.message`` alike."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


P = TypeVar("P", bound=Payload)

_UNWRITABLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)


def encode(message: Payload) -> bytes:
    """The message in protobuf's wire format: what ``bytes(message)`` says, in a fraction of the time.

    A value that its field can't hold is a PayloadError that names both.
    """
    codec = codec_of(message.__class__)
    try:
        return codec.encode(message)
    except _UNWRITABLE as error:
        raise _unwritable(message, error) from error


def decode(cls: type[P], data: bytes) -> P:
    """The message of a class that the bytes are; a PayloadError says why they are none."""
    data = bytes(data)
    codec = codec_of(cls)
    try:
        made: P = codec.decode(data, 0, len(data), 1)
    except PayloadError as error:
        raise PayloadError(f"not a {cls.__qualname__}: {error}") from error.__cause__
    return made


def payload_problem(cls: type[Any], data: bytes) -> str | None:
    """Return why the bytes are no message of a class, with the field that is wrong; None if they are one."""
    try:
        codec_of(cls).decode(data, 0, len(data), 1)
    except PayloadError as error:
        return f"not a {cls.__qualname__}: {error}"
    return None


def decoder_of(cls: type[P]) -> Callable[[bytes, int, int], P]:
    """``decoder(data, begin, end)``: the message that stands in the middle of data; for a reader of many."""
    read = codec_of(cls).decode
    return lambda data, begin, end: read(data, begin, end, 1)


def copy_message(message: P) -> P:
    """A message with the same fields, unknown ones too, that can be changed without changing this one."""
    copied: P = codec_of(message.__class__).copy(message)
    return copied


def equal(left: Payload | None, right: Payload | None) -> bool:
    """Whether two messages are of one class and hold the same; unknown fields count, NaN equals itself."""
    if left is None or right is None:
        return left is right
    return codec_of(left.__class__).equal(left, right)


def _unwritable(message: Any, error: Exception) -> PayloadError:
    """The error, with the first field that can't be written alone."""
    cls = type(message)
    if isinstance(error, RecursionError):
        return PayloadError(f"a {cls.__qualname__} can't be written: it is nested too deep, or holds itself")
    for name in metadata_of(cls).sorted_field_names:
        value = getattr(message, name)
        try:
            for inner in _elements(value):
                if hasattr(inner, "__dataclass_fields__"):
                    encode(inner)
        except PayloadError as deeper:
            return PayloadError(f"{cls.__qualname__}.{name}: {deeper}")
        try:
            alone = cls()
            setattr(alone, name, value)
            codec_of(cls).encode(alone)
        except _UNWRITABLE as found:
            wrong_kind = isinstance(found, AttributeError | TypeError)
            why = f"give it {_annotation(cls, name)}" if wrong_kind else str(found)
            return PayloadError(f"{cls.__qualname__}.{name} can't be {value!r:.120}: {why}")
    return PayloadError(f"a {cls.__qualname__} can't be written: {error}")


def _annotation(cls: Any, name: str) -> str:
    """How a field is declared: ``str``, ``list[str]``."""
    annotated = cls.__dataclass_fields__[name].type
    return annotated.__name__ if isinstance(annotated, type) else str(annotated)


def _elements(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else [value]

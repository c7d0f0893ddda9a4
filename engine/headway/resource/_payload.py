"""Put messages into bytes and back, copy and compare them, fast."""

from typing import Any, ClassVar, Protocol, TypeVar, cast

from headway.errors import PayloadError
from headway.resource._payload_compile import codec_of
from headway.resource._payload_plan import MessageClass


class Payload(Protocol):
    """What a type checker knows of a message: generated ones and those of ``@headway.message`` alike."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


P = TypeVar("P", bound=Payload)


def encode(message: Payload) -> bytes:
    """The message in protobuf's wire format: what ``bytes(message)`` says, in a fraction of the time.

    A value that its field can't hold is a PayloadError that names both.
    """
    codec = codec_of(cast(MessageClass, message.__class__))
    try:
        return codec.encode(message)
    except Exception as error:
        raise _unwritable(message, error) from error


def decode(cls: type[P], data: bytes) -> P:
    """The message of a class that the bytes are; what they are instead, if they are none, is in the PayloadError."""
    data = bytes(data)
    try:
        return cast(P, codec_of(cast(MessageClass, cls)).decode(data, 0, len(data), 1))
    except PayloadError as error:
        raise PayloadError(f"not a {cls.__qualname__}: {error}") from error.__cause__


def copy_message(message: P) -> P:
    """A message with the same fields, unknown ones included, that can be changed without changing this one."""
    return cast(P, codec_of(cast(MessageClass, message.__class__)).copy(message))


def equal(left: Payload | None, right: Payload | None) -> bool:
    """Whether two messages are of one class and hold the same; unknown fields count, and NaN equals itself."""
    if left is None or right is None:
        return left is right
    return codec_of(cast(MessageClass, left.__class__)).equal(left, right)


def _unwritable(message: Payload, error: Exception) -> PayloadError:
    """The error, with the first field that can't be written alone."""
    cls = cast(MessageClass, message.__class__)
    for name in cls._betterproto.sorted_field_names:
        alone = cls()
        value = getattr(message, name)
        setattr(alone, name, value)
        try:
            codec_of(cls).encode(alone)
        except Exception as found:
            return PayloadError(f"{cls.__qualname__}.{name} can't be {value!r:.120}: {found}")
    return PayloadError(f"{cls.__qualname__} can't be written: {error}")

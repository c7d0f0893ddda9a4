"""Decode and encode large messages in steps, by functions that are compiled for each message class."""

from __future__ import annotations

from typing import Any

from headway.base import Steps
from headway.errors import PayloadError
from headway.protobuf._codec import P, Payload, codec_of, decode
from headway.protobuf._compile import STEPWISE, Stepwise, compile_stepwise
from headway.protobuf._unwritable import UNWRITABLE, unwritable

SMALL = 512
"""The most bytes of a message that is decoded at once. That takes some hundred microseconds at most."""


def decoding(cls: type[P], data: bytes) -> Steps[P]:
    """Decode a message of a class, like `decode`, in steps."""
    if len(data) <= SMALL:
        return decode(cls, data)
    data = bytes(data)
    try:
        made: P = yield from _stepwise(cls).decode(data, 0, len(data), 1)
    except PayloadError as error:
        raise PayloadError(f"not a valid {cls.__qualname__}: {error}") from error.__cause__
    return made


def encoding(message: Payload) -> Steps[bytes]:
    """Return the message in protobuf's wire format, like `encode`, in steps. It must not change meanwhile."""
    try:
        return (yield from _stepwise(message.__class__).encode(message))
    except UNWRITABLE as error:
        raise unwritable(message, error, codec_of) from error


def _stepwise(cls: type[Any]) -> Stepwise:
    return cls.__dict__.get(STEPWISE) or compile_stepwise(cls)

"""The wrapper messages of protobuf, whose absence differs from 0."""

from __future__ import annotations

from headway import field, message


@message(name="google.protobuf.UInt32Value")
class UInt32Value:
    """A number that may be absent."""

    value: int = field(1, kind="uint32")


@message(name="google.protobuf.UInt64Value")
class UInt64Value:
    """A large number that may be absent."""

    value: int = field(1, kind="uint64")


@message(name="google.protobuf.BoolValue")
class BoolValue:
    """A choice that may be absent."""

    value: bool = field(1)


@message(name="google.protobuf.Struct")
class Struct:
    """A JSON object. Validation refuses each one, so its content is not declared."""

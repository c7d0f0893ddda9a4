"""Resources that are stored in another version or schema than the requested one, and cannot be shown as that."""

from __future__ import annotations

from headway._gen.google.protobuf import Any as AnyMessage
from headway._gen.headway.resource import v1 as pb
from headway.errors import ConversionFailed, InvalidArgument
from headway.resource._ids import resource_id, type_name

_URL = "type.googleapis.com/headway.resource.v1.Unconverted"
"""The type URL of the payload that such a resource has instead of its own.

A client that decodes by the URL fails, instead of misreading the payload.
"""


def unreadable(stored_as: str = "") -> AnyMessage:
    """Return the payload for a resource that is stored as this type; empty if it had another schema."""
    return AnyMessage(type_url=_URL, value=stored_as.encode())


def with_payload(stored: pb.Resource, data: AnyMessage | None) -> pb.Resource:
    """Return a stored resource with another payload. The rest is shared with it."""
    return pb.Resource(
        id=stored.id,
        owner=stored.owner,
        version=stored.version,
        generation=stored.generation,
        metadata=stored.metadata,
        status=stored.status,
        data=data,
    )


def is_unreadable(message: pb.Resource) -> bool:
    """Return True if a resource has such a payload."""
    return message.data is not None and message.data.type_url == _URL


def unreadable_error(message: pb.Resource) -> ConversionFailed:
    """Return the error that reading the payload of such a resource raises."""
    id = resource_id(message.id)
    stored_as = message.data.value.decode(errors="replace") if message.data is not None else ""
    if not stored_as:
        return ConversionFailed(
            f"{id} at version {message.version} can't be read: {id.type} had an incompatible schema then, which this "
            "one has replaced"
        )
    return ConversionFailed(
        f"{id} is stored as {stored_as}, and converting it to {id.type} failed: the server's ConversionFailed event "
        "says why; correct the converter, or write the resource as the stored version"
    )


def other_version_error(stored: pb.Resource, wanted: str) -> InvalidArgument:
    """Return the refusal of a request for a version as which a resource cannot be shown."""
    assert stored.id is not None
    return InvalidArgument(
        f"{resource_id(stored.id)} is stored as {type_name(stored.id.type)}, but was requested as version "
        f"{wanted!r}; use the stored one, write it as {wanted!r} first, or declare a converter between them"
    )

"""The payload that stands for one that the server cannot give, because it is stored in another version or schema."""

from __future__ import annotations

from headway._gen.google.protobuf import Any as AnyMessage
from headway._gen.headway.resource import v1 as pb
from headway.errors import ConversionFailed
from headway.resource._ids import resource_id

_URL = "type.googleapis.com/headway.resource.v1.Unconverted"
"""The type URL of such a payload. A client that decodes by the URL fails, instead of misreading the payload."""


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

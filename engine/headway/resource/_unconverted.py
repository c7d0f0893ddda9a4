"""The payload of a resource that is stored in another version and could not be converted, or with another schema."""

from __future__ import annotations

from headway._gen.google.protobuf import Any as AnyMessage
from headway._gen.headway.resource import v1 as pb
from headway.errors import ConversionFailed
from headway.resource._ids import resource_id

_UNCONVERTED_URL = "type.googleapis.com/headway.resource.v1.Unconverted"
"""The type URL of a payload that could not be converted.

A client that decodes by the URL fails, instead of misreading the payload.
"""


def unconverted(stored_as: str) -> AnyMessage:
    """Return the payload for a resource that is stored as this type and could not be converted."""
    return AnyMessage(type_url=_UNCONVERTED_URL, value=stored_as.encode())


def of_former_schema(stored: pb.Resource) -> pb.Resource:
    """Return a state from before its type's schema was replaced by an incompatible one. Its payload is left out."""
    return with_payload(stored, AnyMessage(type_url=_UNCONVERTED_URL))


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


def is_unconverted(message: pb.Resource) -> bool:
    """Return True if the payload of a resource could not be converted, or has a former schema of its type."""
    return message.data is not None and message.data.type_url == _UNCONVERTED_URL


def unconverted_error(message: pb.Resource) -> ConversionFailed:
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

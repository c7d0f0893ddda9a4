"""Resources whose stored version could not be converted. They have all fields except the payload."""

from __future__ import annotations

from headway._gen.google.protobuf import Any as AnyMessage
from headway._gen.headway.resource import v1 as pb
from headway.errors import ConversionFailed
from headway.resource._ids import resource_id

UNCONVERTED_URL = "type.googleapis.com/headway.resource.v1.Unconverted"
"""The type URL of such a payload. A client that decodes by the URL fails, instead of misreading the payload."""


def unconverted(stored_as: str) -> AnyMessage:
    """Return the payload for a resource that is stored as this type and could not be converted."""
    return AnyMessage(type_url=UNCONVERTED_URL, value=stored_as.encode())


def is_unconverted(message: pb.Resource) -> bool:
    """Return True if the payload of a resource could not be converted."""
    return message.data is not None and message.data.type_url == UNCONVERTED_URL


def unconverted_error(message: pb.Resource) -> ConversionFailed:
    """Return the error that reading such a payload raises."""
    id = resource_id(message.id)
    stored_as = message.data.value.decode(errors="replace") if message.data is not None else ""
    return ConversionFailed(
        f"{id} is stored as {stored_as}, and converting it to {id.type} failed: the server's ConversionFailed event "
        "says why; correct the converter, or write the resource as the stored version"
    )

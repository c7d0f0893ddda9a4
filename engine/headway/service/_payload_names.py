"""The name of a payload's message, which is the one of its type, or the one that is stored."""

from __future__ import annotations

from typing import Any

from headway.api import MAX_TEXT
from headway.errors import InvalidArgument
from headway.resource import ResourceType, pb
from headway.service._access import AccessChecks


def check_payload_name(
    access: AccessChecks, type: ResourceType[Any], payload_name: str, stored: pb.Resource | None
) -> None:
    """Refuse a payload whose message name is not its type's.

    The stored payload's name is accepted too, if the caller may read the resource. It is another one after the class
    was renamed or given a name, and a client writes the payload back as it was read.
    """
    if not payload_name:
        return
    held = stored.data if stored is not None and access.shows(stored) else None
    if held is not None and short_name(held.type_url) == payload_name:
        return
    raise InvalidArgument(f"resource.data of {type.name} must be {short_name(type.type_url)}, not {payload_name}")


def short_name(type_url: str) -> str:
    """Return the name of a message in a type URL."""
    last = type_url[-MAX_TEXT:].rpartition("/")[2]
    return last or "(no type)"

"""Whether a resource that is to be written says what is stored already."""

from __future__ import annotations

from typing import Any

from headway.resource import ResourceType, equal, pb, same_owner


def same_content(type: ResourceType[Any], stored: pb.Resource, wanted: pb.Resource) -> bool:
    """Return True if a write of what is wanted would change nothing. An owner without a uid is the stored one."""
    if stored.metadata != wanted.metadata:
        return False
    if not same_owner(wanted.owner, stored.owner):
        return False
    if stored.data == wanted.data:
        return True
    # The same message may have other bytes (the order of a map): compare what they mean.
    return equal(type.view(stored).data, type.view(wanted).data)

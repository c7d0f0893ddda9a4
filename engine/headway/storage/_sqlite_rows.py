"""The stored form of a resource: its message, and a seal that detects damage.

SQLite detects damage to the structure of its pages, but not to their contents.
"""

from __future__ import annotations

import zlib

from headway.errors import StoreUnusable
from headway.protobuf import decode
from headway.resource import pb


def seal(version: int, body: bytes) -> int:
    """Return the checksum of a body and of the version that its row gives it."""
    return zlib.crc32(body, version & 0xFFFFFFFF)


def resource_from(version: int, sealed: int, body: bytes) -> pb.Resource:
    """Return a stored resource from its row. Raises StoreUnusable if it is not what was written."""
    # A damaged row may hold a value of another type.
    if not isinstance(body, bytes) or seal(version, body) != sealed:  # type: ignore[redundant-expr]
        raise StoreUnusable(
            f"the resource stored at revision {version} is damaged{_whose(body)}: its row is not as it was written. "
            "Other resources can be read; `headway store check` finds all damage, and "
            "`headway restore` restores a backup"
        )
    resource = decode(pb.Resource, body)
    resource.version = str(version)
    return resource


def _whose(body: bytes) -> str:
    try:
        id = decode(pb.Resource, body).id
    except Exception:  # noqa: BLE001  # whatever a decoder makes of damaged bytes
        return ""
    if id is None or id.type is None:
        return ""
    return f" ({id.type.kind} {id.name!r}, as far as it can be read)"

"""What a row holds of a resource: its message, and a seal by which damage to it is found.

SQLite finds damage to how its pages hang together, and not to what stands in them.
"""

from __future__ import annotations

import zlib

from headway.errors import StoreUnusable
from headway.resource import decode, pb


def seal(version: int, body: bytes) -> int:
    """The checksum of a body and of the version that its row gives it."""
    return zlib.crc32(body, version & 0xFFFFFFFF)


def resource_from(version: int, sealed: int, body: bytes) -> pb.Resource:
    """A stored resource from its row. Raises StoreUnusable when that isn't what was written."""
    # Damaged, a row may hold a value of another kind, too.
    if not isinstance(body, bytes) or seal(version, body) != sealed:  # type: ignore[redundant-expr]
        raise StoreUnusable(
            f"what was stored at revision {version} is damaged{_whose(body)}: its row isn't as it was written. "
            "What else is stored can be read; `headway store check` finds all that is damaged, and "
            "`headway restore` brings a backup back"
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

"""The leases that are held, as `headway leases` shows them."""

from __future__ import annotations

from typing import Any

from headway._gen.headway.lease import v1 as lease_pb
from headway.http import Exchange

LEASES = 500
"""The number of leases that are shown."""
_LIST = "/headway.lease.v1.LeaseService/List"


async def leases(exchange: Exchange, prefix: str) -> dict[str, Any]:
    """Return the leases that are held, that the caller may read, and whose names begin so, in order of their names."""

    async def requested() -> lease_pb.ListRequest:
        return lease_pb.ListRequest(name_prefix=prefix)

    found: lease_pb.ListResponse = await exchange.call(_LIST, requested)
    return {
        "leases": [_shown(each) for each in found.leases[:LEASES]],
        "more": max(len(found.leases) - LEASES, 0),
    }


def _shown(lease: lease_pb.Lease) -> dict[str, Any]:
    ttl, left = lease.ttl_ms / 1000, lease.expires_in_ms / 1000
    return {
        "name": lease.name,
        "holder": lease.holder,
        "since": None if lease.acquired_at is None else lease.acquired_at.timestamp(),
        # The browser's clock may differ from the store's, so this says how long ago, and how soon.
        "renewed": max(ttl - left, 0),
        "ends": left,
        "ttl": ttl,
        "term": lease.term,
    }

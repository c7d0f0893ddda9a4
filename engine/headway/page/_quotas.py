"""The quotas with their use, as `headway quotas` shows them."""

from __future__ import annotations

from typing import Any

from headway._gen.headway.quota import v1 as quota_pb
from headway.http import Exchange

QUOTAS = 500
"""The number of quotas that are shown, those that are used most first."""
_LIST = "/headway.quota.v1.QuotaService/List"


async def quotas(exchange: Exchange) -> dict[str, Any]:
    """Return the quotas that the caller may read, those that are used most first."""

    async def requested() -> quota_pb.ListRequest:
        return quota_pb.ListRequest()

    found: quota_pb.ListResponse = await exchange.call(_LIST, requested)
    shown = sorted(map(_shown, found.quotas), key=lambda each: (-each["used"], each["name"]))
    return {"quotas": shown[:QUOTAS], "more": max(len(shown) - QUOTAS, 0)}


def _shown(quota: quota_pb.QuotaUse) -> dict[str, Any]:
    limits = ((quota.resources, quota.max_resources), (quota.bytes, quota.max_bytes))
    return {
        "name": quota.name,
        "partition": quota.partition,
        "namespace": quota.namespace,
        "type": f"{quota.group}.{quota.kind}" if quota.kind else "",
        "resources": quota.resources,
        "maxResources": quota.max_resources,
        "bytes": quota.bytes,
        "maxBytes": quota.max_bytes,
        "refused": quota.refused,
        # The share of the limit that is nearest to its end; a limit of 0 is at its end from the beginning.
        "used": max((use / most if most else 1.0 for use, most in limits if most is not None), default=0.0),
    }

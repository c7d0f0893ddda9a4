"""Declaring quotas and reading their use, for operators' programs, over any client."""

from __future__ import annotations

from typing import NamedTuple

from headway._gen.headway.quota import v1 as quota_pb
from headway.client import Client, call_service
from headway.quotas._service import QuotaApi


class QuotaInfo(NamedTuple):
    """A quota and its use.

    Attributes:
        name: the name of the quota, a resource of type ``tenancy.v1.Quota``.
        partition: the partition that it limits.
        namespace: the namespace that it limits, or empty for the whole partition.
        type: the only type that it counts, such as ``staff.Team``, in all of its versions; empty for every type.
        max_resources: the maximum number of resources, or None.
        max_bytes: the maximum number of their bytes, or None.
        resources: the number of resources now.
        bytes: the number of their bytes now.
        refused: the number of writes that the answering process has refused because of the quota.
    """

    name: str
    partition: str
    namespace: str
    type: str
    max_resources: int | None
    max_bytes: int | None
    resources: int
    bytes: int
    refused: int


async def list_quotas(client: Client) -> list[QuotaInfo]:
    """Return the quotas that the caller may read, in order of name, with their use.

    The first call after a quota was declared, or after its process began, counts what is stored.

    Raises:
        PermissionDenied: the caller may not list resources of type ``tenancy.v1.Quota``.
        FailedPrecondition: the store keeps no quotas.
    """
    request = quota_pb.ListRequest()
    reply = await call_service(client, lambda channel: QuotaApi.over(channel).list, request, write=False)
    return [_info(each) for each in reply.quotas]


def _info(quota: quota_pb.QuotaUse) -> QuotaInfo:
    return QuotaInfo(
        quota.name,
        quota.partition,
        quota.namespace,
        f"{quota.group}.{quota.kind}" if quota.kind else "",
        quota.max_resources,
        quota.max_bytes,
        quota.resources,
        quota.bytes,
        quota.refused,
    )

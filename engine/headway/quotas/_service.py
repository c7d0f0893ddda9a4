"""The quota service: the declared quotas with their use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from typing_extensions import override

from headway._gen.headway.quota import v1 as quota_pb
from headway.api import Api, Call, method
from headway.quotas._checks import check_kept
from headway.quotas._keeping import list_uses
from headway.quotas._limits import QuotaUse
from headway.quotas._type import QUOTA
from headway.resource import Registry, Within, pb
from headway.service import AccessChecks, Permissions, current_position
from headway.storage import Backend

QUOTA_SERVICE = "headway.quota.v1.QuotaService"


class QuotaApi(Api, Protocol, service=QUOTA_SERVICE):
    """The quotas of a store."""

    @method("List", quota_pb.ListRequest, quota_pb.ListResponse)
    async def list(self, call: Call, request: quota_pb.ListRequest, /) -> quota_pb.ListResponse:
        """Return the quotas and their use."""
        ...


class QuotaService(QuotaApi):
    """List over a store.

    Args:
        permissions: what each caller may do; without them, every caller may do everything.
        elsewhere: returns how many commits the other processes of this server have refused, by the names of quotas.
    """

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        permissions: Permissions | None = None,
        elsewhere: Callable[[], Awaitable[Mapping[str, int]]] | None = None,
    ) -> None:
        self._backend = backend
        self._elsewhere = elsewhere
        self._access = AccessChecks(permissions, registry)

    @override
    async def list(self, call: Call, request: quota_pb.ListRequest) -> quota_pb.ListResponse:
        """Return the quotas and their use, to a caller who may list quotas, and as far as they may read them."""
        self._access.check_known(QUOTA.name)
        self._access.check_list(QUOTA.name, Within("", ""))
        check_kept(self._backend)
        here = await current_position(self._backend)
        listed = await list_uses(self._backend)
        others = {} if self._elsewhere is None else await self._elsewhere()
        shown = [_message(each, others) for each in listed if self._access.may_read(_id(each.limit.name))]
        return quota_pb.ListResponse(quotas=shown, position=here.message())


def _id(name: str) -> pb.Id:
    return pb.Id(name=name, type=QUOTA.message, tenancy=pb.Tenancy())


def _message(quota: QuotaUse, elsewhere: Mapping[str, int]) -> quota_pb.QuotaUse:
    limit, use, refused = quota
    group, kind = limit.place.kind or ("", "")
    return quota_pb.QuotaUse(
        name=limit.name,
        partition=limit.place.partition,
        namespace=limit.place.namespace,
        group=group,
        kind=kind,
        max_resources=limit.resources,
        max_bytes=limit.bytes,
        resources=use.resources,
        bytes=use.bytes,
        refused=refused + elsewhere.get(limit.name, 0),
    )

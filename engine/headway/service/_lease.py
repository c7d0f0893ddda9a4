"""The lease service: raising fences, and noting beside them what is settled."""

from __future__ import annotations

from headway._gen.headway.lease import v1 as lease_pb
from headway._gen.headway.lease.v1 import LeaseServiceBase
from headway.resource import pb
from headway.service._fence import fence_of
from headway.service._refusals import STORE_ERRORS, invalid, refusal
from headway.storage import Backend


class LeaseService(LeaseServiceBase):
    """Raise and RecordSettled over a store. (Acquire, KeepAlive and Release answer UNIMPLEMENTED: a store in
    the process has one engine, which the file's lock sees to.)
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def raise_(self, message: lease_pb.RaiseRequest) -> lease_pb.RaiseResponse:
        """Raise a fence by a commit."""
        if not message.controller:
            raise invalid("controller is required")
        try:
            raised = await self._backend.raise_fence(message.controller, message.member, message.term, message.number)
        except STORE_ERRORS as error:
            raise refusal(error) from error
        fence = raised.fence
        return lease_pb.RaiseResponse(
            fence=pb.Fence(controller=fence.controller, member=fence.member, term=fence.term, number=fence.number),
            position=raised.position.message(),
            settled_revision=raised.settled,
        )

    async def record_settled(self, message: lease_pb.RecordSettledRequest) -> lease_pb.RecordSettledResponse:
        """Note up to which revision the fence's controller owes nothing."""
        fence = fence_of(message.fence)
        if fence is None:
            raise invalid("fence is required")
        try:
            await self._backend.record_settled(fence, message.revision)
        except STORE_ERRORS as error:
            raise refusal(error) from error
        return lease_pb.RecordSettledResponse()

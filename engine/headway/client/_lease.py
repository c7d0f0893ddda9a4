"""The lease service's client: a run's fence."""

from __future__ import annotations

from typing import NamedTuple

from grpclib import GRPCError

from headway._gen.headway.lease import v1 as lease_pb
from headway.client._refusals import client_error
from headway.errors import Unavailable
from headway.resource import Position, pb, position
from headway.rpc import Channel

_SERVICE = "/headway.lease.v1.LeaseService/"


class RunFence(NamedTuple):
    """A raised fence: what a run's writes carry, the commit that raised it, and what its predecessor owed nothing of.

    Attributes:
        fence: for Write, WriteStatus and Delete.
        position: of the commit: a run's starting revision, or what its keys wait for after a settling.
        settled: up to this revision the predecessor owed nothing; without one, that of the fence's first raise.
    """

    fence: pb.Fence
    position: Position
    settled: int


class LeaseClient:
    """Raises fences by a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def raise_fence(self, controller: str, member: str, *, term: int = 0, number: int = 0) -> RunFence:
        """Raise the fence by a commit; term 0: one above the stored term. Raises Fenced when another is higher."""
        request = lease_pb.RaiseRequest(controller=controller, member=member, term=term, number=number)
        try:
            reply = await self._channel.unary(f"{_SERVICE}Raise", request, lease_pb.RaiseResponse)
        except GRPCError as error:
            raise client_error(error) from error
        raised_at = position(reply.position)
        if reply.fence is None or raised_at is None:
            raise Unavailable("Raise answered without a fence or a position")
        return RunFence(reply.fence, raised_at, reply.settled_revision)

    async def record_settled(self, fence: pb.Fence, revision: int) -> None:
        """Note beside the fence that its controller owes nothing up to ``revision``."""
        request = lease_pb.RecordSettledRequest(fence=fence, revision=revision)
        try:
            await self._channel.unary(f"{_SERVICE}RecordSettled", request, lease_pb.RecordSettledResponse)
        except GRPCError as error:
            raise client_error(error) from error

"""The lease service's client: leases, and the fence of a run."""

from __future__ import annotations

import builtins
import datetime
import math
from typing import NamedTuple, TypeVar

import trio
from grpclib import GRPCError

from headway._gen.headway.lease import v1 as lease_pb
from headway.client._refusals import client_error
from headway.errors import InvalidArgument, Unavailable
from headway.resource import Position, pb, position
from headway.rpc import Channel, Metadata

_SERVICE = "/headway.lease.v1.LeaseService/"

Reply = TypeVar("Reply")


class RunFence(NamedTuple):
    """A raised fence: what a run's writes carry, the commit that raised it, and what its predecessor owed nothing of.

    Attributes:
        fence: for Write, WriteStatus and Delete.
        position: of the commit: a run's starting revision, or what its keys wait for after a settling.
        checkpoint: up to this revision the predecessor owed nothing; without one, that of the fence's first raise.
    """

    fence: pb.Fence
    position: Position
    checkpoint: int


class LeaseAnswer(NamedTuple):
    """How a request for a lease has ended.

    Attributes:
        acquired: whether the caller holds it now.
        holder: who holds it.
        term: in which term.
        retry_after: when it is another's, seconds before which it does not run out.
    """

    acquired: bool
    holder: str
    term: int
    retry_after: float


class LeaseInfo(NamedTuple):
    """A lease that is held. ``expires_in`` are the seconds that are left of its ``ttl``, unless it is renewed."""

    name: str
    holder: str
    term: int
    ttl: float
    expires_in: float
    acquired_at: datetime.datetime | None


class LeaseClient:
    """Takes leases and raises fences by a channel. Every call raises Unavailable when it isn't answered in time.

    Args:
        metadata: sent with each request.
        timeout: seconds for an answer.
    """

    def __init__(self, channel: Channel, *, metadata: Metadata | None = None, timeout: float = 10.0) -> None:
        self._channel = channel
        self._metadata = metadata
        self._timeout = timeout

    @property
    def settles(self) -> bool:
        """True if a call that is cancelled has done nothing, as inside the process."""
        return self._channel.knows_outcomes

    @property
    def lasting(self) -> bool:
        """True if a lease that `hold_lease` takes doesn't run out by time.

        This process has the store alone and listens nowhere, so that no other process could take the lease.
        """
        return bool(getattr(self._channel, "lasting_leases", False))

    async def acquire(
        self, name: str, holder: str, ttl: float, *, attempt: str = "", wait: float = 0.0, patience: float = 0.0
    ) -> LeaseAnswer:
        """Take a lease for ``ttl`` seconds, or say who holds it. `hold_lease` does all that belongs to it.

        Args:
            attempt: a text that no other request for this lease has but the repetitions of this one. A request that
                wasn't answered may be sent again. Each answer has a higher term, and only the highest counts. A
                repetition that arrives when the term is in use is refused. Empty: no request repeats another.
            wait: seconds, up to 20, for which the server may wait for another holder to leave.
            patience: seconds more for the answer. A request that is given up and sent again ends the term of its former
                answer, should that be on its way.
        """
        request = lease_pb.AcquireRequest(
            name=name,
            holder=holder,
            ttl_ms=_milliseconds("ttl", ttl),
            attempt=attempt,
            wait_ms=_milliseconds("wait", wait),
        )
        timeout = self._timeout + max(wait, patience)
        reply = await self._call("Acquire", request, lease_pb.AcquireResponse, timeout)
        return LeaseAnswer(reply.acquired, reply.holder, reply.term, reply.retry_after_ms / 1000)

    async def keep_alive(self, name: str, holder: str, term: int, *, timeout: float = math.inf) -> None:
        """Have a whole ttl from now on. Raises LeaseLost when the term has ended."""
        request = lease_pb.KeepAliveRequest(name=name, holder=holder, term=term)
        await self._call("KeepAlive", request, lease_pb.KeepAliveResponse, min(timeout, self._timeout))

    async def release(self, name: str, holder: str, term: int, *, timeout: float = math.inf) -> None:
        """Give a lease back before it runs out. No error when it has ended already."""
        request = lease_pb.ReleaseRequest(name=name, holder=holder, term=term)
        await self._call("Release", request, lease_pb.ReleaseResponse, min(timeout, self._timeout))

    async def list(self, name_prefix: str = "") -> builtins.list[LeaseInfo]:
        """The leases that are held and whose names begin so, in order of name."""
        request = lease_pb.ListRequest(name_prefix=name_prefix)
        reply = await self._call("List", request, lease_pb.ListResponse, self._timeout)
        return [_info(each) for each in reply.leases]

    async def raise_fence(self, controller: str, member: str, *, term: int = 0, number: int = 0) -> RunFence:
        """Raise the fence by a commit; term 0: one above the stored term. Raises Fenced when another is higher, or
        when its lease is held in another term.
        """
        request = lease_pb.RaiseRequest(controller=controller, member=member, term=term, number=number)
        reply = await self._call("Raise", request, lease_pb.RaiseResponse, self._timeout)
        raised_at = position(reply.position)
        if reply.fence is None or raised_at is None:
            raise Unavailable("Raise answered without a fence or a position")
        return RunFence(reply.fence, raised_at, reply.settled_revision)

    async def record_checkpoint(self, fence: pb.Fence, revision: int) -> None:
        """Note beside the fence that its controller owes nothing up to ``revision``."""
        request = lease_pb.RecordSettledRequest(fence=fence, revision=revision)
        await self._call("RecordSettled", request, lease_pb.RecordSettledResponse, self._timeout)

    async def _call(self, method: str, request: object, reply_type: type[Reply], timeout: float) -> Reply:
        with trio.move_on_after(timeout):
            try:
                return await self._channel.unary(_SERVICE + method, request, reply_type, metadata=self._metadata)
            except GRPCError as error:
                raise client_error(error) from error
        raise Unavailable(f"{method} was not answered within {timeout:g} s")


def _milliseconds(field: str, seconds: float) -> int:
    if not 0 <= seconds <= 2**31 / 1000:
        raise InvalidArgument(f"{field} must be a number of seconds, not {seconds!r}")
    return math.ceil(seconds * 1000)


def _info(lease: lease_pb.Lease) -> LeaseInfo:
    ttl, expires_in = lease.ttl_ms / 1000, lease.expires_in_ms / 1000
    return LeaseInfo(lease.name, lease.holder, lease.term, ttl, expires_in, lease.acquired_at)

"""The client of the lease service: leases, and the fences of controllers' runs."""

from __future__ import annotations

import builtins
import datetime
import math
from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple, TypeVar

import trio

from headway._gen.headway.lease import v1 as lease_pb
from headway.api import MAX_WAIT_MS, Call, Channel, LeaseApi, Metadata
from headway.base import Range, checked
from headway.client._arguments import Number, Patience, Ttl, milliseconds
from headway.client._refusals import of_client
from headway.errors import InvalidArgument, Unavailable
from headway.resource import Position, pb, position

_checked = checked(
    InvalidArgument,
    name="'staff/reports'",
    holder="'web-1'",
    attempt="str(uuid.uuid4())",
    term="the `term` of acquire()'s answer",
    name_prefix="'staff/'",
    controller="'staff/teams'",
    member="'1', or '' without shards",
    number="1",
    fence="the `fence` of raise_fence()'s answer",
    revision="event.revision",
)

Request = TypeVar("Request")
Reply = TypeVar("Reply")
Term = Annotated[Number, Range(1)]
Wait = Annotated[float, Range(0, MAX_WAIT_MS / 1000, unit="seconds")]


class RunFence(NamedTuple):
    """A raised fence.

    Attributes:
        fence: the fence that the run's writes carry.
        position: the position of the commit that raised the fence. A run starts from it; after a write with an unknown
            outcome, the affected keys wait for it.
        checkpoint: the last recorded revision up to which the previous run had no pending work. For a member without a
            record, it comes from the controller's other members; for the first of them, it is this commit's revision.
    """

    fence: pb.Fence
    position: Position
    checkpoint: int


class LeaseAnswer(NamedTuple):
    """The reply to a request for a lease.

    Attributes:
        acquired: True if the caller now holds the lease.
        holder: the name of the holder.
        term: the holder's term.
        retry_after: if another holder has the lease, it doesn't expire within this many seconds.
    """

    acquired: bool
    holder: str
    term: int
    retry_after: float


class LeaseInfo(NamedTuple):
    """A lease that is held. It expires in ``expires_in`` seconds unless it is renewed."""

    name: str
    holder: str
    term: int
    ttl: float
    expires_in: float
    acquired_at: datetime.datetime | None


class LeaseClient:
    """A client that acquires leases and raises fences. Every call raises Unavailable if it times out.

    Args:
        channel: the channel to the lease service.
        metadata: the metadata of each request.
        timeout: the timeout of a call in seconds.
    """

    def __init__(self, channel: Channel, *, metadata: Metadata | None = None, timeout: float = 10.0) -> None:
        self._channel = channel
        self._leases = LeaseApi.over(channel)
        self._metadata = metadata
        self._timeout = timeout

    @property
    def knows_outcomes(self) -> bool:
        """True if a canceled call certainly had no effect, as within the process."""
        return self._channel.knows_outcomes

    @property
    def lasting(self) -> bool:
        """True if a lease acquired by `hold_lease` doesn't expire.

        That is so if this process owns the store and accepts no connections. No other process can then acquire the
        lease.
        """
        return bool(getattr(self._channel, "lasting_leases", False))

    @_checked
    async def acquire(
        self, name: str, holder: str, ttl: Ttl, *, attempt: str = "", wait: Wait = 0.0, patience: Patience = 0.0
    ) -> LeaseAnswer:
        """Acquire a lease for ``ttl`` seconds, or return its current holder.

        Most programs should use `hold_lease`, which also renews and releases the lease.

        Args:
            name: the name of the lease.
            holder: the name of the caller, which no other process has.
            ttl: the seconds until the lease expires, unless it is renewed.
            attempt: a text that is unique to this request and its repetitions. A request without a reply may be
                repeated. Each repetition that succeeds begins a higher term, and only the highest is valid. A late
                repetition is rejected once the term is in use. If empty, the request can't be repeated.
            wait: the seconds, up to 20, that the server may wait for another holder to release the lease.
            patience: extra seconds to wait for the reply. Repeating a request too early ends the term that the server
                may have just granted.
        """
        request = lease_pb.AcquireRequest(
            name=name,
            holder=holder,
            ttl_ms=milliseconds(ttl),
            attempt=attempt,
            wait_ms=milliseconds(wait),
        )
        timeout = self._timeout + max(wait, patience)
        reply = await self._call(self._leases.acquire, request, timeout)
        return LeaseAnswer(reply.acquired, reply.holder, reply.term, reply.retry_after_ms / 1000)

    @_checked
    async def keep_alive(self, name: str, holder: str, term: Term, *, timeout: Patience = math.inf) -> None:
        """Renew a lease for another ttl.

        Raises:
            LeaseLost: the term has ended.
        """
        request = lease_pb.KeepAliveRequest(name=name, holder=holder, term=term)
        await self._call(self._leases.keep_alive, request, min(timeout, self._timeout))

    @_checked
    async def release(self, name: str, holder: str, term: Term, *, timeout: Patience = math.inf) -> None:
        """Release a lease before it expires. If the term has already ended, do nothing."""
        request = lease_pb.ReleaseRequest(name=name, holder=holder, term=term)
        await self._call(self._leases.release, request, min(timeout, self._timeout))

    @_checked
    async def list(self, name_prefix: str = "") -> builtins.list[LeaseInfo]:
        """Return the held leases whose names begin with the prefix, sorted by name."""
        request = lease_pb.ListRequest(name_prefix=name_prefix)
        reply = await self._call(self._leases.list, request, self._timeout)
        return [_info(each) for each in reply.leases]

    @_checked
    async def raise_fence(self, controller: str, member: str, *, term: Number = 0, number: Number = 0) -> RunFence:
        """Raise a controller's fence by a commit. With term 0, the new term is one above the stored one.

        Raises:
            Fenced: the stored fence is higher, or the lease is held in another term.
        """
        request = lease_pb.RaiseRequest(controller=controller, member=member, term=term, number=number)
        reply = await self._call(self._leases.raise_fence, request, self._timeout)
        raised_at = position(reply.position)
        if reply.fence is None or raised_at is None:
            raise Unavailable("the reply to Raise has no fence or no position")
        return RunFence(reply.fence, raised_at, reply.settled_revision)

    @_checked
    async def record_checkpoint(self, fence: pb.Fence, revision: Number, known: Position | None = None) -> None:
        """Store with the fence that its controller has no pending work up to ``revision``.

        ``known`` is the newest position that the controller has seen. StoreChanged is raised if the store never had it:
        it was restored since, and the revision belongs to a history that is lost.
        """
        request = lease_pb.RecordSettledRequest(
            fence=fence, revision=revision, known=None if known is None else known.message()
        )
        await self._call(self._leases.record_checkpoint, request, self._timeout)

    async def _call(
        self, method: Callable[[Call, Request], Awaitable[Reply]], request: Request, timeout: float
    ) -> Reply:
        with trio.move_on_after(timeout):
            with of_client():
                return await method(Call(self._metadata), request)
        what = type(request).__name__.removesuffix("Request")
        raise Unavailable(f"{what} was not answered within {timeout:g} s")


def _info(lease: lease_pb.Lease) -> LeaseInfo:
    ttl, expires_in = lease.ttl_ms / 1000, lease.expires_in_ms / 1000
    return LeaseInfo(lease.name, lease.holder, lease.term, ttl, expires_in, lease.acquired_at)

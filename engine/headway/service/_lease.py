"""The lease service: who holds which lease, and the fences that leases govern.

A lease is named as the controller whose fence it governs, "staff/accounts", or after a "#" a member of it too,
"staff/accounts#3". Names that are no controller's, "members/staff/ada", are leases like all others: their fences
are borne by nobody.

The store decides; here is what a request may ask, who may ask it, and the waiting for a lease that another holds.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import trio
from grpclib.const import Handler

from headway._gen.headway.lease import v1 as lease_pb
from headway.resource import pb, quoted
from headway.service._ask import ask
from headway.service._fence import check_fence, check_granted, fence_of
from headway.service._handlers import unary_handlers
from headway.service._lease_bounds import (
    MAX_NUMBER,
    MAX_TTL_MS,
    MAX_WAIT_MS,
    MIN_TTL_MS,
    check_lease,
    check_printable,
    check_range,
    check_scope,
    check_term,
)
from headway.service._refusals import STORE_ERRORS, denied, invalid, refusal
from headway.storage import Acquired, Backend, Fence, HeldLease, lease_of


class LeaseAccess(Protocol):
    """Decides for the caller of the request that is being handled, before anything is looked up. It must not wait."""

    def may_take_lease(self, name: str) -> bool:
        """Whether the lease may be taken, kept and released, and the fence that it governs be raised."""
        ...

    def may_list_leases(self, name_prefix: str) -> bool:
        """Whether the leases whose names begin so may be listed. Each is asked for besides."""
        ...

    def may_read_lease(self, name: str) -> bool:
        """Whether the lease may be shown in a list."""
        ...


class _Asked:
    """A request for a lease that is being answered."""

    superseded = False


class LeaseWaits:
    """The waits for leases that others hold, so that a server that stops needn't see them out."""

    def __init__(self) -> None:
        self.ended = False
        self._scopes: set[trio.CancelScope] = set()
        # The newest request of each attempt, by what it asks for; as long as it is being answered.
        self._newest: dict[tuple[str, str, str], _Asked] = {}

    @contextmanager
    def request(self, name: str, holder: str, attempt: str) -> Iterator[_Asked]:
        """A request is answered in the block; it learns when a newer one of its attempt has come.

        The sender has stopped waiting for the older one. If that took the lease as well, it would end the term that the
        newer one has just been granted.
        """
        asked, key = _Asked(), (name, holder, attempt)
        if attempt:
            if (older := self._newest.get(key)) is not None:
                older.superseded = True
            self._newest[key] = asked
        try:
            yield asked
        finally:
            if self._newest.get(key) is asked:
                del self._newest[key]

    @contextmanager
    def wait(self, seconds: float) -> Iterator[None]:
        """A block that is left after so many seconds, or when all waits are ended."""
        with trio.move_on_after(seconds) as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.remove(scope)

    def end(self) -> None:
        """End every wait; from now on there are none."""
        self.ended = True
        for scope in self._scopes:
            scope.cancel()


class LeaseService:
    """Leases and fences over a store. Its methods are grpclib handlers.

    Args:
        authorizer: decides who may do what; without one everybody may do everything.
        waits: those of this service and of others beside it, to be ended together.
    """

    def __init__(
        self, backend: Backend, authorizer: LeaseAccess | None = None, waits: LeaseWaits | None = None
    ) -> None:
        self._backend = backend
        self._authorizer = authorizer
        self._waits = waits or LeaseWaits()

    async def acquire(self, message: lease_pb.AcquireRequest) -> lease_pb.AcquireResponse:
        """Take a lease, if need be when its holder has left it, or say who holds it."""
        check_lease(message.name, message.holder)
        check_range("ttl_ms", message.ttl_ms, MIN_TTL_MS, MAX_TTL_MS)
        check_range("wait_ms", message.wait_ms, 0, MAX_WAIT_MS)
        check_printable("attempt", message.attempt)
        with self._waits.request(message.name, message.holder, message.attempt) as asked:
            acquired = await self._acquire(message, asked)
        lease, remaining = acquired.held
        return lease_pb.AcquireResponse(
            acquired=acquired.acquired,
            holder=lease.holder,
            term=lease.term,
            retry_after_ms=0 if acquired.acquired else milliseconds(remaining),
            position=acquired.position.message(),
        )

    async def _acquire(self, message: lease_pb.AcquireRequest, asked: _Asked) -> Acquired:
        until = trio.current_time() + message.wait_ms / 1000
        while True:
            # Anew after every wait: a caller may have lost the right meanwhile.
            self._check_take(message.name)
            try:
                acquired = await self._backend.acquire_lease(
                    message.name, message.holder, message.ttl_ms / 1000, message.attempt
                )
                left = until - trio.current_time()
                if acquired.acquired or left <= 0 or self._waits.ended:
                    return acquired
                lease = acquired.held.lease
                if lease.holder == message.holder:
                    # The request is late: its sender has the lease. It must not take it once more when that ends.
                    return acquired
                with self._waits.wait(left):
                    await self._backend.wait_lease_ended(message.name, lease.term)
            except STORE_ERRORS as error:
                raise refusal(error) from error
            if asked.superseded:
                return acquired

    async def keep_alive(self, message: lease_pb.KeepAliveRequest) -> lease_pb.KeepAliveResponse:
        """Put the expiry off to a whole ttl from now."""
        check_lease(message.name, message.holder)
        check_term(message.term)
        self._check_take(message.name)
        try:
            await self._backend.keep_lease(message.name, message.holder, message.term)
        except STORE_ERRORS as error:
            raise refusal(error) from error
        return lease_pb.KeepAliveResponse()

    async def release(self, message: lease_pb.ReleaseRequest) -> lease_pb.ReleaseResponse:
        """End a term early, if it has not ended."""
        check_lease(message.name, message.holder)
        check_term(message.term)
        self._check_take(message.name)
        try:
            await self._backend.release_lease(message.name, message.holder, message.term)
        except STORE_ERRORS as error:
            raise refusal(error) from error
        return lease_pb.ReleaseResponse()

    async def list(self, message: lease_pb.ListRequest) -> lease_pb.ListResponse:
        """The leases that are held, of those that the caller may see."""
        check_printable("name_prefix", message.name_prefix)
        authorizer = self._authorizer
        if authorizer is not None and not ask(authorizer.may_list_leases, message.name_prefix):
            raise denied(f"leases {message.name_prefix}* may not be listed by you")
        try:
            leases, position = await self._backend.list_leases(message.name_prefix)
        except STORE_ERRORS as error:
            raise refusal(error) from error
        if authorizer is not None:
            leases = [each for each in leases if ask(authorizer.may_read_lease, each.lease.name)]
        shown = [_lease(each) for each in leases]
        return lease_pb.ListResponse(leases=shown, position=position.message())

    async def raise_(self, message: lease_pb.RaiseRequest) -> lease_pb.RaiseResponse:
        """Raise a fence by a commit."""
        if not message.controller:
            raise invalid("controller is required")
        if "#" in message.controller:
            raise invalid(f"controller {quoted(message.controller)} must have no #: what follows it is a field, member")
        check_scope(message.controller, message.member)
        check_range("term", message.term, 0, MAX_NUMBER)
        check_range("number", message.number, 0, MAX_NUMBER)
        self._check_take(lease_of(message.controller, message.member))
        try:
            await check_granted(self._backend, message.controller, message.member, message.term)
            raised = await self._backend.raise_fence(message.controller, message.member, message.term, message.number)
        except STORE_ERRORS as error:
            raise refusal(error) from error
        fence = raised.fence
        return lease_pb.RaiseResponse(
            fence=pb.Fence(controller=fence.controller, member=fence.member, term=fence.term, number=fence.number),
            position=raised.position.message(),
            settled_revision=raised.checkpoint,
        )

    async def record_checkpoint(self, message: lease_pb.RecordSettledRequest) -> lease_pb.RecordSettledResponse:
        """Note up to which revision the fence's controller owes nothing."""
        fence = fence_of(message.fence)
        if fence is None:
            raise invalid("fence is required")
        self._check_take(lease_of(fence.controller, fence.member))
        try:
            await self._check_reached(fence, message.revision)
            await check_granted(self._backend, fence.controller, fence.member, fence.term)
            await self._backend.record_checkpoint(fence, message.revision)
        except STORE_ERRORS as error:
            raise refusal(error) from error
        return lease_pb.RecordSettledResponse()

    def __mapping__(self) -> dict[str, Handler]:
        """The handlers."""
        return unary_handlers(
            "headway.lease.v1.LeaseService",
            Acquire=(self.acquire, lease_pb.AcquireRequest, lease_pb.AcquireResponse),
            KeepAlive=(self.keep_alive, lease_pb.KeepAliveRequest, lease_pb.KeepAliveResponse),
            Release=(self.release, lease_pb.ReleaseRequest, lease_pb.ReleaseResponse),
            List=(self.list, lease_pb.ListRequest, lease_pb.ListResponse),
            Raise=(self.raise_, lease_pb.RaiseRequest, lease_pb.RaiseResponse),
            RecordSettled=(self.record_checkpoint, lease_pb.RecordSettledRequest, lease_pb.RecordSettledResponse),
        )

    async def _check_reached(self, fence: Fence, revision: int) -> None:
        """Refuse to note a revision that the store will only reach: the next run would miss what happens up to it."""
        here = self._backend.position
        if revision > here.revision:
            # An engine on a shared store hears later of what others commit; a read is told of all that has happened.
            _, here = await self._backend.list_leases()
        if not 0 <= revision <= here.revision:
            # A run that has been superseded is told that.
            await check_fence(self._backend, fence)
            raise invalid(
                f"revision {revision} is above the store's own, {here.revision}: send one that a watch has reached"
            )

    def _check_take(self, name: str) -> None:
        if self._authorizer is not None and not ask(self._authorizer.may_take_lease, name):
            raise denied(f"lease {name} may not be taken by you")


def milliseconds(seconds: float) -> int:
    """What is told of seconds that are left; 0 where none are."""
    # Rounded up, but not for what is only a float's last digit: ten seconds from now are 10,000 ms, at any time.
    return max(0, math.ceil(round(seconds * 1000, 6)))


def _lease(held: HeldLease) -> lease_pb.Lease:
    lease = held.lease
    return lease_pb.Lease(
        name=lease.name,
        holder=lease.holder,
        term=lease.term,
        ttl_ms=milliseconds(lease.ttl),
        expires_in_ms=milliseconds(held.remaining),
        acquired_at=datetime.datetime.fromtimestamp(lease.acquired_at, datetime.UTC),
    )

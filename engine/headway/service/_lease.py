"""The lease service: acquiring, keeping and listing leases, and the fences that leases govern.

A lease is named after the controller whose fence it governs ("staff/accounts"), or after one of its members
("staff/accounts#3"). A lease whose name is not a controller's ("members/staff/ada") works alike, but no writer uses its
fence.

The store decides who holds a lease. This module checks requests and the permissions of their callers, and waits for
leases that others hold.
"""

from __future__ import annotations

import datetime
import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import trio
from typing_extensions import override

from headway._gen.headway.lease import v1 as lease_pb
from headway.api import MAX_NUMBER, MAX_TTL_MS, MAX_WAIT_MS, MIN_TTL_MS, Call, LeaseApi
from headway.base import CallerTurns
from headway.errors import InvalidArgument, PermissionDenied
from headway.resource import pb, position, quoted
from headway.service._access import ask
from headway.service._fences import (
    check_fence,
    check_granted,
    check_lease,
    check_printable,
    check_range,
    check_scope,
    check_term,
    fence_of,
)
from headway.service._position import check_known, check_position, current_position
from headway.storage import Acquired, Backend, CurrentLease, Fence, lease_of


class LeasePermissions(Protocol):
    """The permissions of the caller of the current request. They are checked before any look-up and must not block."""

    def may_take_lease(self, name: str) -> bool:
        """Return True if the caller may acquire, renew and release the lease, and raise the fence that it governs."""
        ...

    def may_list_leases(self, name_prefix: str) -> bool:
        """Return True if the caller may list the leases with this prefix. In addition, `may_read_lease` is called for
        each.
        """
        ...

    def may_read_lease(self, name: str) -> bool:
        """Return True if a list may show the lease."""
        ...


class _PendingAcquire:
    """An Acquire request in progress."""

    superseded = False


class _Place:
    """A place in the line for a lease."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self._called = trio.Event()

    async def called(self) -> None:
        """Wait until this is the first place, or the holder has been granted the lease for another request."""
        await self._called.wait()

    def call(self) -> None:
        self._called.set()


class LeaseWaits:
    """The waits for leases that others hold, so that a stopping server can end them.

    The requests for a lease stand in line, and only the first one waits at the store. Otherwise, the end of a term
    would wake thousands at once, each of which would ask the store and find that another one was faster.
    """

    def __init__(self) -> None:
        self.ended = False
        self._scopes: set[trio.CancelScope] = set()
        # By the name of the lease. No line is empty.
        self._lines: dict[str, OrderedDict[_Place, None]] = {}
        # Thousands of waits may end at one moment. Those that ask the store then begin one after the other.
        self._turns = CallerTurns(1)
        # The newest request in progress of each attempt, by name, holder and attempt.
        self._newest: dict[tuple[str, str, str], _PendingAcquire] = {}

    @contextmanager
    def request(self, name: str, holder: str, attempt: str) -> Iterator[_PendingAcquire]:
        """Register a request for the duration of the block, and mark an older request of the same attempt as
        superseded.

        The sender no longer waits for the older request. If that one acquired the lease as well, it would end the term
        that was just granted to the newer one.
        """
        pending, key = _PendingAcquire(), (name, holder, attempt)
        if attempt:
            if (older := self._newest.get(key)) is not None:
                older.superseded = True
            self._newest[key] = pending
        try:
            yield pending
        finally:
            if self._newest.get(key) is pending:
                del self._newest[key]

    @contextmanager
    def line(self, name: str, holder: str) -> Iterator[_Place]:
        """Stand in line for a lease during the block."""
        place, line = _Place(holder), self._lines.setdefault(name, OrderedDict())
        line[place] = None
        next(iter(line)).call()
        try:
            yield place
        finally:
            del line[place]
            if line:
                next(iter(line)).call()
            else:
                del self._lines[name]

    def granted(self, name: str, holder: str) -> None:
        """Call the other requests of the holder, which may begin a new term or are late."""
        for place in self._lines.get(name, ()):
            if place.holder == holder:
                place.call()

    async def turn(self) -> None:
        """Wait until the waits that have ended before have gone on."""
        async with self._turns:
            pass

    @contextmanager
    def wait(self, seconds: float) -> Iterator[None]:
        """Leave the block after ``seconds``, or as soon as all waits are ended."""
        with trio.move_on_after(seconds) as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.remove(scope)

    def end(self) -> None:
        """End all waits, and prevent new ones."""
        self.ended = True
        for scope in self._scopes:
            scope.cancel()


class LeaseService(LeaseApi):
    """Leases and fences over a store.

    Args:
        permissions: what each caller may do; without them, every caller may do everything.
        waits: waits shared with other services, so that they can be ended together.
    """

    def __init__(
        self, backend: Backend, permissions: LeasePermissions | None = None, waits: LeaseWaits | None = None
    ) -> None:
        self._backend = backend
        self._permissions = permissions
        self._waits = waits or LeaseWaits()

    @override
    async def acquire(self, call: Call, request: lease_pb.AcquireRequest) -> lease_pb.AcquireResponse:
        """Acquire a lease, waiting for its holder to release it if requested, or return its holder."""
        check_lease(request.name, request.holder)
        check_range("ttl_ms", request.ttl_ms, MIN_TTL_MS, MAX_TTL_MS)
        check_range("wait_ms", request.wait_ms, 0, MAX_WAIT_MS)
        check_printable("attempt", request.attempt)
        with self._waits.request(request.name, request.holder, request.attempt) as pending:
            acquired = await self._acquire(request, pending)
        lease, remaining = acquired.held
        return lease_pb.AcquireResponse(
            acquired=acquired.acquired,
            holder=lease.holder,
            term=lease.term,
            retry_after_ms=0 if acquired.acquired else milliseconds(remaining),
            position=acquired.position.message(),
        )

    async def _acquire(self, request: lease_pb.AcquireRequest, pending: _PendingAcquire) -> Acquired:
        name, waits = request.name, self._waits
        until = trio.current_time() + request.wait_ms / 1000
        acquired = await self._try(request)
        if self._is_over(request, acquired, until):
            return acquired
        with waits.line(name, request.holder) as place:
            while True:
                with waits.wait(until - trio.current_time()):
                    await place.called()
                    await self._backend.wait_lease_ended(name, acquired.held.lease.term)
                await waits.turn()
                if pending.superseded:
                    return acquired
                acquired = await self._try(request)
                if self._is_over(request, acquired, until):
                    return acquired

    async def _try(self, request: lease_pb.AcquireRequest) -> Acquired:
        # Check again after each wait: the caller may have lost the right.
        self._check_take(request.name)
        acquired = await self._backend.acquire_lease(
            request.name, request.holder, request.ttl_ms / 1000, request.attempt
        )
        if acquired.acquired:
            self._waits.granted(request.name, request.holder)
        return acquired

    def _is_over(self, request: lease_pb.AcquireRequest, acquired: Acquired, until: float) -> bool:
        """Return True if the request waits no longer."""
        if acquired.acquired or trio.current_time() >= until or self._waits.ended:
            return True
        # This is a late duplicate: its sender already has the lease. It must not acquire it again when that term ends.
        return acquired.held.lease.holder == request.holder

    @override
    async def keep_alive(self, call: Call, request: lease_pb.KeepAliveRequest) -> lease_pb.KeepAliveResponse:
        """Renew a lease for a whole ttl from now."""
        check_lease(request.name, request.holder)
        check_term(request.term)
        self._check_take(request.name)
        await self._backend.keep_lease(request.name, request.holder, request.term)
        return lease_pb.KeepAliveResponse()

    @override
    async def release(self, call: Call, request: lease_pb.ReleaseRequest) -> lease_pb.ReleaseResponse:
        """End a term early, unless it has ended."""
        check_lease(request.name, request.holder)
        check_term(request.term)
        self._check_take(request.name)
        await self._backend.release_lease(request.name, request.holder, request.term)
        return lease_pb.ReleaseResponse()

    @override
    async def list(self, call: Call, request: lease_pb.ListRequest) -> lease_pb.ListResponse:
        """Return the leases that are held and that the caller may see."""
        check_printable("name_prefix", request.name_prefix)
        permissions = self._permissions
        if permissions is not None and not ask(permissions.may_list_leases, request.name_prefix):
            raise PermissionDenied(f"permission denied: you may not list leases {request.name_prefix}*")
        leases, position = await self._backend.list_leases(request.name_prefix)
        if permissions is not None:
            leases = [each for each in leases if ask(permissions.may_read_lease, each.lease.name)]
        shown = [_lease(each) for each in leases]
        return lease_pb.ListResponse(leases=shown, position=position.message())

    @override
    async def raise_fence(self, call: Call, request: lease_pb.RaiseRequest) -> lease_pb.RaiseResponse:
        """Commit a raised fence and return it."""
        if not request.controller:
            raise InvalidArgument("controller is required")
        if "#" in request.controller:
            raise InvalidArgument(
                f"controller {quoted(request.controller)} must not contain #: send what follows it as member"
            )
        check_scope(request.controller, request.member)
        check_range("term", request.term, 0, MAX_NUMBER)
        check_range("number", request.number, 0, MAX_NUMBER)
        self._check_take(lease_of(request.controller, request.member))
        await check_granted(self._backend, request.controller, request.member, request.term)
        raised = await self._backend.raise_fence(request.controller, request.member, request.term, request.number)
        fence = raised.fence
        return lease_pb.RaiseResponse(
            fence=pb.Fence(controller=fence.controller, member=fence.member, term=fence.term, number=fence.number),
            position=raised.position.message(),
            settled_revision=raised.checkpoint,
        )

    @override
    async def record_checkpoint(
        self, call: Call, request: lease_pb.RecordSettledRequest
    ) -> lease_pb.RecordSettledResponse:
        """Record the revision up to which the fence's controller has no work left."""
        fence = fence_of(request.fence)
        if fence is None:
            raise InvalidArgument("fence is required")
        self._check_take(lease_of(fence.controller, fence.member))
        check_position(request.known, "known")
        await check_known(self._backend, ("", ""), position(request.known))
        await self._check_reached(fence, request.revision)
        await check_granted(self._backend, fence.controller, fence.member, fence.term)
        await self._backend.record_checkpoint(fence, request.revision)
        return lease_pb.RecordSettledResponse()

    async def _check_reached(self, fence: Fence, revision: int) -> None:
        """Refuse a checkpoint above the store's revision: the next run would miss the changes up to it."""
        here = self._backend.position
        if revision > here.revision:
            here = await current_position(self._backend)
        if not 0 <= revision <= here.revision:
            # A superseded run gets that error instead.
            await check_fence(self._backend, fence)
            raise InvalidArgument(
                f"revision {revision} is above the store's, {here.revision}: send one that a watch has reached"
            )

    def _check_take(self, name: str) -> None:
        if self._permissions is not None and not ask(self._permissions.may_take_lease, name):
            raise PermissionDenied(f"permission denied: you may not acquire lease {name}")


def milliseconds(seconds: float) -> int:
    """Return seconds in milliseconds, rounded up; 0 for a negative number."""
    # Round first, so that the last digit of a float does not count: ten seconds from now are always 10,000 ms.
    return max(0, math.ceil(round(seconds * 1000, 6)))


def _lease(held: CurrentLease) -> lease_pb.Lease:
    lease = held.lease
    return lease_pb.Lease(
        name=lease.name,
        holder=lease.holder,
        term=lease.term,
        ttl_ms=milliseconds(lease.ttl),
        expires_in_ms=milliseconds(held.remaining),
        acquired_at=datetime.datetime.fromtimestamp(lease.acquired_at, datetime.UTC),
    )

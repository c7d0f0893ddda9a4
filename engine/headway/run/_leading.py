"""The lease of a singleton: wait for it with a warm cache, and run while holding it (C3, C7, C8).

- The lease is acquired through the service, even by the process that has the store, so that all compete equally.
- A run begins when the lease is held, and raises its fence in the lease's term. Each run has a term of its own: a run
  that fails releases the lease, and any process that waits for it may continue.
- The run lasts as long as the lease's block, so its nursery has closed before the lease is released. It is canceled a
  fifth of the ttl before another process could acquire the lease.
- While another process holds the lease, this process opens and follows the controller's types. A run that begins then
  need not wait for a snapshot, only for its starting revision. While the lease is free, nothing is opened early: a run
  reads nothing before its fence.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from headway.base import story
from headway.client import HeldLease, LeaseClient, hold_lease
from headway.errors import HeadwayError
from headway.events import LeaseAwaited, LeaseDelayed, LeaseTaken, Report

LEASE_TTL = 15.0


class Leading:
    """The lease of a controller, and how this process acquires it.

    Args:
        name: the name of the lease, which is also the name of the controller's fence.
        process: the name of this process as a holder.
        ttl: how long the lease of a dead process lasts, in seconds.
        check: raises if a run may not begin. Then the lease is not acquired either, because that would be a commit.
        warm: called while another process holds the lease, to open and follow what the run will need.

    Attributes:
        leader: the other process that holds the lease; empty if none is known.
        answered: True once a server has reported the holder of the lease.
        delayed_at: when the requests for the lease began to fail, by Trio's clock, if the last one failed.
    """

    def __init__(
        self,
        leases: LeaseClient,
        name: str,
        process: str,
        ttl: float,
        report: Report,
        *,
        check: Callable[[], None],
        warm: Callable[[], None],
    ) -> None:
        self._leases = leases
        self._name = name
        self._process = process
        self._ttl = ttl
        self._report = report
        self._check = check
        self._warm = warm
        self.leader = ""
        self.answered = False
        self.delayed_at = 0.0
        self._error = ""
        self._lease: HeldLease | None = None
        # The end of the lease at the last failed renewal. A successful renewal moves the end beyond it.
        self._until = 0.0

    @asynccontextmanager
    async def lead(self, on_standby: Callable[[], None]) -> AsyncIterator[HeldLease]:
        """Wait for the lease, and hold it while the block runs. Raises LeaseLost if the lease is lost.

        ``on_standby`` is called whenever another process is found to hold the lease.
        """
        self._check()
        try:
            async with hold_lease(
                self._leases,
                self._name,
                holder=self._process,
                ttl=self._ttl,
                report=partial(self._on_event, on_standby),
            ) as lease:
                self._lease = lease
                yield lease
        finally:
            self.leader = self._error = ""
            self._lease = None

    @property
    def error(self) -> str:
        """The reason that the lease cannot be acquired or renewed now, or that no run could begin with it; or empty."""
        if self._lease is not None and self._lease.until > self._until:
            return ""
        if self._lease is None and not self._error:
            try:
                self._check()
            except HeadwayError as error:
                return story(error)
        return self._error

    def _on_event(self, on_standby: Callable[[], None], event: object) -> None:
        self.answered = self.answered or isinstance(event, LeaseAwaited | LeaseTaken)
        if isinstance(event, LeaseAwaited):
            self.leader, self._error = event.holder, ""
            self._warm()
            on_standby()
        elif isinstance(event, LeaseTaken):
            self.leader = self._error = ""
        elif isinstance(event, LeaseDelayed):
            if not self._error:
                self.delayed_at = trio.current_time()
            self._error = story(event.error)
            self._until = self._lease.until if self._lease is not None else 0.0
        self._report(event)

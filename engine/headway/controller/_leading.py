"""A singleton's lease: waiting for it with a warm cache, and running inside of it (C3, C7, C8).

- The lease is taken through the service, also by the process that has the store, so that all compete alike.
- A run begins when the lease is held, and raises its fence in the lease's term. Each run has a term of its own: a run
  that fails gives the lease back, and whoever waits for it goes on.
- The run is the lease's block, so that its nursery has closed before the lease is given back, and is cancelled a fifth
  of the ttl before the lease can be another's.
- While another process holds the lease, the controller's types are opened and followed here. So the run that begins
  then has no snapshot to wait for, but only its starting revision. While the lease is free nothing is opened early:
  a run reads nothing before its fence.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from headway._groups import story
from headway.client import HeldLease, LeaseClient, hold_lease
from headway.errors import HeadwayError
from headway.events import LeaseAwaited, LeaseDelayed, LeaseTaken, Report

LEASE_TTL = 15.0


def _nothing() -> None:
    """Nobody is told."""


class Leading:
    """How a controller comes by its lease.

    Args:
        name: of the lease, which is that of the controller's fence.
        process: who holds it here.
        ttl: seconds after which the lease of a process that has died is free.
        check: raises what forbids a run to begin: it forbids its lease, which is a commit, as well.
        warm: is called while another process holds the lease: to open and follow what the run will need.

    Attributes:
        leader: who holds the lease instead; empty while nobody is known to.
        answered: True once a server has said who holds the lease.
        error: why it can't be asked for or renewed now, or no run could begin with it; empty: nothing is wrong.
        on_standby: is called when another process is found to hold the lease.
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
        self._error = ""
        self._lease: HeldLease | None = None
        # Up to when the lease was held when a renewal failed; one that succeeds moves that.
        self._until = 0.0
        self.on_standby: Callable[[], None] = _nothing

    @asynccontextmanager
    async def lead(self) -> AsyncIterator[HeldLease]:
        """Wait for the lease, and hold it while the block runs. Raises LeaseLost when it was lost."""
        self._check()
        try:
            async with hold_lease(
                self._leases, self._name, holder=self._process, ttl=self._ttl, report=self._heard
            ) as lease:
                self._lease = lease
                yield lease
        finally:
            self.leader = self._error = ""
            self._lease = None

    @property
    def error(self) -> str:
        """See `Leading`."""
        if self._lease is not None and self._lease.until > self._until:
            return ""
        if self._lease is None and not self._error:
            try:
                self._check()
            except HeadwayError as error:
                return story(error)
        return self._error

    def _heard(self, event: object) -> None:
        self.answered = self.answered or isinstance(event, LeaseAwaited | LeaseTaken)
        if isinstance(event, LeaseAwaited):
            self.leader, self._error = event.holder, ""
            self._warm()
            self.on_standby()
        elif isinstance(event, LeaseTaken):
            self.leader = self._error = ""
        elif isinstance(event, LeaseDelayed):
            self._error = story(event.error)
            self._until = self._lease.until if self._lease is not None else 0.0
        self._report(event)

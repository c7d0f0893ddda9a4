"""A running engine: its client, its controllers, and the question of whether all of its work is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from headway.base import check_trio
from headway.cache import Informers
from headway.client import Client
from headway.engine._store_health import StoreHealth
from headway.run import ControllerStatus, Supervisor
from headway.storage import StoreProblem


class Engine:
    """A running engine, as returned by `open_engine` and `open_workers`.

    Attributes:
        client: reads and writes resources, without a controller's fence.
        addresses: the addresses it listens on, with the actual ports; empty unless ``listen`` was given.
        controllers: the controllers by name. For example, ``engine.controllers["accounts"].status()`` returns the state
            of one. If two apps have a controller of the same name, each is listed under "app/name".
    """

    def __init__(
        self,
        client: Client,
        revision: Callable[[], Awaitable[int]],
        supervisors: Sequence[Supervisor],
        addresses: Sequence[str] = (),
        informers: Sequence[Informers] = (),
        store: StoreHealth | None = None,
    ) -> None:
        self.client = client
        self.addresses = list(addresses)
        self._revision = revision
        self._supervisors = supervisors
        self._informers = informers
        self._store = store
        self.controllers = _by_name(supervisors)

    def accept_store(self) -> bool:
        """Accept the current state of a store that was rolled back (`StoreRolledBack`). This is an operator's decision.

        All cached data is discarded. The supervisors begin new runs within a minute, and these runs see the current
        content of the store. Return True if the store was rolled back; otherwise do nothing and return False. This
        method never blocks.
        """
        self._check_open()
        # Call every one of them: any() would stop at the first that returns True.
        accepted = {informers.accept_store() for informers in self._informers}
        return True in accepted

    @property
    def store_problem(self) -> StoreProblem | None:
        """The reason that the store cannot be used, up to two seconds old, or None. Always None for `open_workers`."""
        return None if self._store is None else self._store.problem

    def status(self) -> list[ControllerStatus]:
        """Return the state of every controller, including Headway's own."""
        return [supervisor.status() for supervisor in self._supervisors]

    async def wait_idle(self) -> None:
        """Wait until every controller is idle: every change so far is mapped and reconciled without failure.

        A controller that runs in several processes counts only with its work in this one; a singleton on standby owes
        nothing here. Keys that wait only for a time that they requested do not count. A key that keeps failing does
        count, so call this under a deadline (`trio.fail_after`).
        """
        check_trio("wait_idle")
        while True:
            await trio.lowlevel.checkpoint()
            self._check_open()
            # Every run begins with a commit, so no run has begun at revision 0.
            revision = max(1, await self._revision())
            for each in self._supervisors:
                await each.wait_idle(revision)
            if await self._revision() <= revision and all(each.checkpoint() >= revision for each in self._supervisors):
                return

    def _check_open(self) -> None:
        for each in self._supervisors:
            each.check_open()


def _by_name(supervisors: Sequence[Supervisor]) -> dict[str, Supervisor]:
    names = [supervisor.name for supervisor in supervisors]
    return {
        supervisor.name if names.count(supervisor.name) == 1 else supervisor.fence_name: supervisor
        for supervisor in supervisors
    }

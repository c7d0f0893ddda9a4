"""A running engine: its client, its controllers, and the question of whether all of its work is done."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from headway.base import async_block, check_trio, current_run, repr_text
from headway.cache import CachedType, Index, Query
from headway.client import Client
from headway.engine._extension import Observer
from headway.engine._store_health import StoreHealth
from headway.errors import InvalidArgument
from headway.events import Report, ignore
from headway.informers import Informers
from headway.resource import Registry, ResourceId, did_you_mean
from headway.run import ControllerStatus, Supervisor
from headway.storage import Backend, StoreProblem

if TYPE_CHECKING:
    from headway._gen.headway.observe.v1 import StuckList, Why
    from headway.notify import PrimedCache


class Engine:
    """A running engine. You get one from `open_engine` or `open_workers`.

    Attributes:
        client: reads and writes resources, without a controller's fence.
        addresses: the addresses it listens on, with the actual ports; empty without `Network.listen`.
        http: the address at which it serves HTTP, with the actual port; None without `Network.http`.
    """

    def __init__(
        self,
        client: Client,
        revision: Callable[[], Awaitable[int]],
        supervisors: Sequence[Supervisor],
        addresses: Sequence[str] = (),
        informers: Sequence[Informers] = (),
        store: StoreHealth | None = None,
        *,
        registry: Registry | None = None,
        report: Report = ignore,
        observe: Observer | None = None,
        begin_late: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
        http: str | None = None,
        on_accepted: Callable[[], None] = lambda: None,
    ) -> None:
        self.client = client
        self.addresses = list(addresses)
        self._revision = revision
        self._supervisors = supervisors
        self._registry = registry or Registry()
        self._report = report
        self._observe = observe
        self._informers = informers
        self._store = store
        self._begin_late = begin_late
        self._on_accepted = on_accepted
        self.http = http
        self._home = current_run()

    @async_block
    async def open_cache(
        self,
        *,
        watches: Sequence[CachedType[Any]],
        indexes: Sequence[Index[Any, Any]] = (),
        queries: Sequence[Query[Any, Any]] = (),
    ) -> AsyncIterator[PrimedCache]:
        """``async with engine.open_cache(watches=[TEAM], indexes=[BY_LEAD]) as cache: ...``

        Open a cache for code in this process that is not a controller. It works like `headway.open_cache`, and shares
        the streams and the resources of the controllers and of other caches. Raises DeclarationError.
        """
        self._check_call("open_cache")
        from headway.notify import Wanted, open_primed

        wanted = Wanted(watches, indexes, queries)
        wanted.check(self._registry)
        async with open_primed(wanted, self._informers[0], self._report, self.accept_store) as cache:
            yield cache

    def accept_store(self) -> bool:
        """Accept the current state of a store that was rolled back (`StoreRolledBack`). This is an operator's decision.

        If the store was rolled back, discard all cached data and return True. The controllers then begin new runs
        within a minute, which see the current content of the store. Otherwise do nothing and return False. This method
        never blocks.
        """
        self._check_open()
        if not any(informers.rolled_back for informers in self._informers):
            return False
        # Those whose streams have not noticed it yet would stay rolled back.
        for informers in self._informers:
            informers.begin_anew()
        self._on_accepted()
        return True

    @property
    def store_problem(self) -> StoreProblem | None:
        """The reason why the store cannot be used, or None. It is up to two seconds old.

        With `open_workers` it is always None.
        """
        return None if self._store is None else self._store.problem

    @property
    def backend(self) -> Backend | None:
        """The store, for extensions. With `open_workers` it is None."""
        return None if self._store is None else self._store.backend

    @property
    def controllers(self) -> Mapping[str, Supervisor]:
        """The controllers by their full names: ``engine.controllers["staff/accounts"].status()`` returns one's state.

        A look-up also accepts the controller's name alone if only one app has a controller of that name. Some of
        Headway's own controllers are listed once there is a resource for them.
        """
        return Controllers(self._supervisors)

    def status(self) -> list[ControllerStatus]:
        """Return the state of every controller, including Headway's own.

        With `open_engine`, this includes the controllers that workers ran and that run in no process now, in the phase
        ``absent``. They count if they have run within the day, or manage a type that has resources.

        After the block has ended, every controller's phase is ``ended``, and its ``error`` is the error of its last
        failed run, if a run failed.
        """
        absent = () if self._observe is None else self._observe.absent_status()
        return [*(supervisor.status() for supervisor in self._supervisors), *absent]

    async def why(self, id: ResourceId) -> Why:
        """Return why the controllers are, or are not, done with a resource: `headway.why.sentences` for people.

        With `open_engine`, this also asks the processes of `open_workers` that work for this engine, and takes up to
        two seconds if one of them does not answer. With `open_workers`, it asks only this process.

        Raises:
            InvalidArgument: if ``id`` is not an id of a type of the apps.
            NotFound: if ``id`` has a uid, and another incarnation has its name now.
            Unavailable: if the store cannot be read.
        """
        given: object = id
        if not isinstance(given, ResourceId) or given.type not in self._registry:
            raise InvalidArgument(
                f"why() expects the id of a resource of the apps, such as team.id, not {repr_text(given)}"
            )
        return await self._asked().why(id)

    async def stuck(self, longer_than: float = 60.0) -> StuckList:
        """Return all work that has been owed for longer than this many seconds, the oldest first.

        It asks the same processes as `why`. Raises InvalidArgument if ``longer_than`` is not a number >= 0.
        """
        given: object = longer_than
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
            raise InvalidArgument(f"longer_than must be >= 0 seconds, not {repr_text(given)}")
        return await self._asked().stuck(longer_than)

    def _asked(self) -> Observer:
        self._check_call("why and stuck")
        assert self._observe is not None
        return self._observe

    async def wait_idle(self) -> None:
        """Wait until every controller is idle: every change so far is mapped and reconciled without failure.

        Only work in this process counts, so a singleton on standby is always idle. Keys that only wait for a requested
        time do not count either. A key that keeps failing does, so use a deadline::

            with trio.fail_after(10):
                await engine.wait_idle()
        """
        self._check_call("wait_idle")
        while True:
            self._check_open()
            await self._begin_late()
            await trio.lowlevel.checkpoint()
            self._check_open()
            runs = [supervisor.run for supervisor in self._supervisors]
            reconciled = self._reconciled()
            # Every run begins with a commit, so no run has begun at revision 0.
            revision = max(1, await self._revision())
            for each, run in zip(self._supervisors, runs, strict=False):
                await each.wait_idle(revision, run)
            # Others may write all the time. What the controllers wrote was below the revision if they have done nothing
            # since.
            still = await self._revision() <= revision or self._reconciled() == reconciled
            if still and all(each.checkpoint() >= revision for each in self._supervisors):
                return

    def _reconciled(self) -> int:
        return sum(each.reconciled for each in self._supervisors)

    def _check_call(self, what: str) -> None:
        self._check_open()
        check_trio(what, self._home)

    def _check_open(self) -> None:
        for each in self._supervisors:
            each.check_open()


class Controllers(Mapping[str, Supervisor]):
    """The controllers of a process, by "app/name", and for a look-up also by a name that only one app has."""

    def __init__(self, supervisors: Sequence[Supervisor]) -> None:
        self._full = {each.fence_name: each for each in supervisors}

    def __getitem__(self, name: str) -> Supervisor:
        """Return a controller. Raises KeyError, which names the controllers that there are."""
        found = self._full.get(name)
        if found is not None:
            return found
        alike = {full: each for full, each in self._full.items() if each.name == name}
        if len(alike) == 1:
            return next(iter(alike.values()))
        if alike:
            raise KeyError(f"several apps have a controller {name!r}: use {' or '.join(map(repr, sorted(alike)))}")
        raise KeyError(f"controller {name!r} not found{did_you_mean(str(name), sorted(self._full))}")

    def __iter__(self) -> Iterator[str]:
        """Return an iterator of the full names."""
        return iter(self._full)

    def __len__(self) -> int:
        """Return the number of controllers."""
        return len(self._full)

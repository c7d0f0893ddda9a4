"""The controllers that run in no process, although workers ran them and somebody waits for their work.

A server does not declare the controllers of its workers. It keeps a record of each in the store, so that it misses them
after a restart too. A record is only refreshed every ten minutes: with many workers, it must not cost many commits.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import NoReturn

import trio

from headway._gen.headway.internal.v1 import ControllerRecord
from headway.base import bounded, wall_time
from headway.client import Client
from headway.errors import HeadwayError
from headway.resource import CONTROLLER_RECORD, Kind, Registry, Resource, TypeName, pause_name
from headway.why._elsewhere import Absent
from headway.why._host import ObserveHost

GRACE = 10.0
"""The time, in seconds, that a controller may run nowhere before it is missed. Workers that restart are back sooner."""
DAY = 86_400.0
"""A controller is wanted for this many seconds after it has run, and as long as there are resources that it manages."""
REFRESH = 600.0
"""The age of a record, in seconds, from which a process that runs the controller has it written again."""
LOOK = 5.0
"""The time between two looks, in seconds. A store without records, and a server without workers, are not looked at."""
MOST_RECORDS = 1000
"""The number of records in a store. A caller chooses the names of its controllers."""


class Absences:
    """Keeps the records of controllers, and finds the controllers that run nowhere.

    Args:
        client: reads and writes the records.
        kinds: returns the kinds that have stored resources.
        shared: True if other servers may have the same store open, with workers of their own.
    """

    def __init__(
        self,
        host: ObserveHost,
        client: Client,
        registry: Registry,
        kinds: Callable[[], Awaitable[Collection[Kind]]],
        *,
        shared: bool = False,
    ) -> None:
        self._host = host
        self._client = client
        self._types = {type.kind: type for type in reversed(list(registry))}
        self._kinds = kinds
        self._shared = shared
        # Before it began, this process cannot know what ran.
        self._began = wall_time()

    async def follow(self) -> NoReturn:
        """Look again and again, until canceled."""
        try:
            while True:
                attended, known = self._host.attended_next, True
                # While the store cannot be read, what was found before is the best answer.
                with suppress(HeadwayError):
                    known = await self._look()
                if known:
                    await trio.sleep(LOOK)
                else:
                    await attended.wait()
        finally:
            self._host.absent = ()

    async def _look(self) -> bool:
        """Look once. Return False if there are no records."""
        records = {each.data.controller: each for each in await self._client.list(CONTROLLER_RECORD)}
        running = self._host.running()
        for name, (process, kind) in running.items():
            await self._record(name, process, kind, records)
        absent = [each for each, ran in self._missing(records, running) if await self._is_wanted(each, ran)]
        self._host.absent = sorted(absent)
        return bool(records)

    async def _record(
        self, name: str, process: str, kind: Kind, records: dict[str, Resource[ControllerRecord]]
    ) -> None:
        """Write the record of a controller that a worker runs, unless it is new enough."""
        known, now, type = records.get(name), wall_time(), self._types.get(kind)
        if type is None or (known is None and len(records) >= MOST_RECORDS):
            return
        manages = str(type.name)
        if known is not None and known.data.manages == manages and _seen(known) > now - REFRESH:
            return
        seen = datetime.datetime.fromtimestamp(now, datetime.UTC)
        record = ControllerRecord(controller=name, manages=manages, process=process, seen=seen)
        records[name] = await self._client.apply(CONTROLLER_RECORD.new(pause_name(name), record))

    def _missing(
        self, records: Mapping[str, Resource[ControllerRecord]], running: Mapping[str, object]
    ) -> Iterable[tuple[Absent, float]]:
        """Yield each controller that runs nowhere, and when it ran last."""
        now = wall_time()
        for name, record in records.items():
            manages = TypeName(*parts) if len(parts := record.data.manages.split(".")) == 3 else None
            type = None if manages is None else self._types.get(manages.unversioned)
            if type is None or name in running or self._host.runs_here(name):
                continue
            left, process = self._host.left(name) or (0.0, record.data.process)
            seen = _seen(record)
            # Another server refreshes the records of the controllers that its workers run.
            if self._shared and seen > max(left, now - 2 * REFRESH):
                continue
            ran = left or seen
            since = max(ran, self._began)
            if now - since >= GRACE:
                yield Absent(name, type.name, bounded(process, 100), since), ran

    async def _is_wanted(self, absent: Absent, ran: float) -> bool:
        if await self._host.holds_lease(absent.controller):
            return False
        return wall_time() - ran < DAY or absent.manages.unversioned in await self._kinds()


def _seen(record: Resource[ControllerRecord]) -> float:
    return 0.0 if record.data.seen is None else record.data.seen.timestamp()

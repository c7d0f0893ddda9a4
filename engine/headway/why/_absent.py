"""The controllers that run in no process, although workers ran them and somebody waits for their work.

A server does not declare the controllers of its workers. It keeps a record of each in the store, so that it misses them
after a restart too. A record is only refreshed every ten minutes: with many workers, it must not cost many commits.

A worker may also be connected to another server of the store. So a server that misses a controller first says so in the
record, and waits: a server that knows a process with the controller clears it. All waiting is counted in looks, so that
neither the clocks of other machines nor a process that was stopped for a while shortens it.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, NoReturn

import trio

from headway._gen.headway.internal.v1 import ControllerRecord
from headway._gen.headway.observe.v1 import Ref, StuckItem
from headway.base import bounded, wall_time
from headway.client import Client
from headway.errors import Conflict, HeadwayError
from headway.events import ControllersClash, Report, ignore
from headway.pauses import pause_name
from headway.resource import CONTROLLER_RECORD, Kind, Registry, Resource, TypeName
from headway.why._elsewhere import Absent
from headway.why._host import ObserveHost

LOOK = 5.0
"""The time between two looks, in seconds. A server without workers, on a store of its own without records, does not
look."""
GRACE = 2
"""The looks for which a controller is missed before it is absent: workers that restart are back sooner."""
SHARED_GRACE = 6
"""The same on a store that other servers have open too: each of them looks several times before this is over."""
DAY = 86_400.0
"""A controller is wanted for this many seconds after it has run, and as long as there are resources that it manages."""
REFRESH = 120
"""The looks after which a server that knows a process with the controller writes a record again."""
BELIEVED = 240
"""The looks for which a record shows, once another server has written it, that the controller runs there."""
FORGET = 7 * DAY
"""The age of a record, in seconds, from which it is deleted if there are no resources that its controller manages."""
MOST_RECORDS = 1000
"""The number of records in a store. A caller chooses the names of its controllers."""
_APP_RECORDS = 3 / 4
"""The part of the records that one app may have. Most callers may take the leases of one app only."""


class _Heard(NamedTuple):
    """What this process knows of the last version of a record.

    Attributes:
        look: the number of the look that found it.
        left: which process with the controller had left this server last, and when.
        news: False if the first look found it, so that nobody knows how old it is.
    """

    version: str
    look: int
    left: tuple[float, str] | None
    news: bool


class _Write(NamedTuple):
    current: Resource[ControllerRecord] | None
    record: ControllerRecord


class Absences:
    """Keeps the records of controllers, and finds the controllers that run nowhere.

    Args:
        client: reads and writes the records.
        kinds: returns the kinds that have stored resources.
        shared: True if other servers may have the same store open, with workers of their own.
        report: is told of controllers that share a finalizer and a status.
        ready: set once workers can connect; None if they can already.
    """

    def __init__(
        self,
        host: ObserveHost,
        client: Client,
        registry: Registry,
        kinds: Callable[[], Awaitable[Collection[Kind]]],
        *,
        shared: bool = False,
        report: Report = ignore,
        ready: trio.Event | None = None,
    ) -> None:
        self._host = host
        self._client = client
        self._types = {type.kind: type for type in reversed(list(registry))}
        self._kinds = kinds
        self._shared = shared
        self._ready = ready
        self._report = report
        # Before it began, this process cannot know what ran.
        self._began = wall_time()
        self._looks = 0
        self._heard: dict[str, _Heard] = {}

    async def follow(self) -> NoReturn:
        """Look again and again, until canceled."""
        try:
            while True:
                attended, known = self._host.attended_next, True
                # While the store cannot be read, what was found before is the best answer.
                with suppress(HeadwayError):
                    known = await self._look()
                running = self._host.running()
                self._host.absent = [each for each in self._host.absent if not self._runs(each.controller, running)]
                # Another server may ask at any time whether a controller runs here.
                if known or self._shared:
                    await trio.sleep(LOOK)
                else:
                    await attended.wait()
        finally:
            self._host.absent = ()

    async def _look(self) -> bool:
        """Look once. Return False if there are no records."""
        records = {each.data.controller: each for each in await self._client.list(CONTROLLER_RECORD)}
        # Looks before workers can connect do not count.
        self._looks += self._ready is None or self._ready.is_set()
        self._hear(records)
        running = self._host.running()
        # Those of this server itself have a record only if a worker has run them before.
        own = {name: each for name, each in records.items() if name not in running and self._host.runs_here(name)}
        running |= {name: (each.data.process, kind) for name, each in own.items() if (kind := _kind(each)) is not None}
        missing = [name for name in records if name not in running and not self._is_believed(name, records[name])]
        stored = await self._kinds() if missing else ()
        absent, writes, forgotten = [], [], []
        for name in missing:
            record, kind = records[name], _kind(records[name])
            age = wall_time() - _at(record.data.seen)
            wanted = age < DAY or kind in stored
            if (not wanted and age < FORGET) or await self._host.holds_lease(name):
                continue
            type = None if kind is None else self._types.get(kind)
            if not wanted:
                forgotten.append(record)
            elif type is None:
                # No server of this program can run it.
                continue
            elif record.data.missed is None:
                writes.append(_Write(record, self._missed(name, record.data)))
            elif self._looks - self._heard[name].look >= (SHARED_GRACE if self._shared else GRACE):
                process = bounded(record.data.process, 100)
                absent.append(Absent(name, type.name, process, record.data.missed.timestamp()))
        self._host.absent = sorted(absent)
        self._find_clashes(records)
        # After what could be read is known: a store may refuse every write for a while.
        writes += self._refreshed(running, records)
        for each in writes:
            await self._write(each)
        for record in forgotten:
            with suppress(Conflict):
                await self._client.delete(record, version=record.version)
        return bool(records or writes)

    def _find_clashes(self, records: Mapping[str, Resource[ControllerRecord]]) -> None:
        """Find controllers of one kind and name in several apps, in whichever processes they run.

        An engine and `open_workers` refuse them in one process. Several processes may run them for a moment, while an
        app gets another name. So they are reported, and not refused.
        """
        scoped, kinds = self._host.scoped(), self._host.kinds()
        for name, record in records.items():
            if name not in kinds and self._is_believed(name, record) and (kind := _kind(record)) is not None:
                kinds[name] = kind
                scoped |= {name} if record.data.scoped else set()
        named: dict[tuple[Kind, str], list[str]] = {}
        for name in sorted(kinds.keys() - scoped):
            named.setdefault((kinds[name], name.rpartition("/")[2]), []).append(name)
        known, found = {each.controller: each for each in self._host.clashes}, list[StuckItem]()
        for (kind, short), names in named.items():
            type = self._types.get(kind)
            if len(names) == 1 or type is None:
                continue
            text = (
                f"{' and '.join(names)} share the finalizer and the status {short!r} of a {type.name}, so that one may "
                "not clean up: give one of them another name, such as @app.controller(..., name='other')"
            )
            before = known.get(names[0])
            if before is None or before.error != text:
                before = StuckItem(
                    names[0], "several processes", Ref(str(type.name)), "clashing", wall_time(), error=text
                )
                self._report(ControllersClash(type.name, short, tuple(names)))
            found.append(before)
        self._host.clashes = found

    def _hear(self, records: Mapping[str, Resource[ControllerRecord]]) -> None:
        """Note which records have changed since the last look."""
        for name, record in records.items():
            heard = self._heard.get(name)
            if heard is None or heard.version != record.version:
                look = max(self._looks, 1)
                self._heard[name] = _Heard(record.version, look, self._host.left(name), look > 1)
        for name in self._heard.keys() - records.keys():
            del self._heard[name]

    def _runs(self, name: str, running: Collection[str]) -> bool:
        return name in running or self._host.runs_here(name)

    def _is_believed(self, name: str, record: Resource[ControllerRecord]) -> bool:
        """Return True if another server has said recently that the controller runs."""
        heard = self._heard[name]
        return (
            self._shared
            and record.data.missed is None
            and heard.news
            and self._looks - heard.look < BELIEVED
            and heard.left == self._host.left(name)
        )

    def _missed(self, name: str, record: ControllerRecord) -> ControllerRecord:
        """Return a record that asks the other servers whether they know a process that runs the controller."""
        now = wall_time()
        ran, process = self._host.left(name) or (_at(record.seen), record.process)
        ran = min(ran, now)
        since = max(ran, self._began)
        return ControllerRecord(
            controller=name,
            manages=record.manages,
            process=process,
            seen=_time(ran),
            missed=_time(since),
            scoped=record.scoped,
        )

    def _refreshed(
        self, running: Mapping[str, tuple[str, Kind]], records: Mapping[str, Resource[ControllerRecord]]
    ) -> Iterable[_Write]:
        """Yield a new record of each controller that runs, unless the one in the store says so and is new enough."""
        now, room, scoped = _time(wall_time()), MOST_RECORDS - len(records), self._host.scoped()
        of_app = Counter(map(_app_of, records))
        for name, (process, kind) in running.items():
            known, type = records.get(name), self._types.get(kind)
            if type is None or (known is None and (room <= 0 or of_app[_app_of(name)] >= _APP_RECORDS * MOST_RECORDS)):
                continue
            if known is None:
                room -= 1
                of_app[_app_of(name)] += 1
            manages = str(type.name)
            if known is None or not self._is_fresh(name, known.data, manages):
                yield _Write(
                    known,
                    ControllerRecord(
                        controller=name, manages=manages, process=process, seen=now, scoped=name in scoped
                    ),
                )

    def _is_fresh(self, name: str, record: ControllerRecord, manages: str) -> bool:
        heard = self._heard[name]
        right = record.manages == manages and record.missed is None
        return right and heard.news and self._looks - heard.look < REFRESH

    async def _write(self, write: _Write) -> None:
        name = write.record.controller
        left = self._host.left(name)
        # Another server may write the same record. The next look finds what it has written.
        with suppress(Conflict):
            wanted = CONTROLLER_RECORD.new(pause_name(name), write.record)
            stored = await self._client.apply_over(write.current, wanted)
            self._heard[name] = _Heard(stored.version, self._looks, left, news=True)


def _app_of(name: str) -> str:
    return name.partition("/")[0]


def _kind(record: Resource[ControllerRecord]) -> Kind | None:
    parts = record.data.manages.rsplit(".", 2)
    return TypeName(*parts).unversioned if len(parts) == 3 else None


def _at(time: datetime.datetime | None) -> float:
    return 0.0 if time is None else time.timestamp()


def _time(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, datetime.UTC)

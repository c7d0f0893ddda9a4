"""The events that reconcilers record about resources: they wait here, merged, until a task writes them to the store.

Recording never waits and never fails: a reconcile does not depend on whether its events can be written. The writes
carry no fence, so they hold no key back, and no cache waits for them. Everything that waits is bounded, and what cannot
be written is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NoReturn

import trio

from headway.base import BoundedReport, retry_delay, story, utc_now, wall_time
from headway.client import Client, EventWrite
from headway.errors import Conflict, HeadwayError, PermissionDenied, RemoteError
from headway.events import EventNotStored, Report
from headway.resource import MOST_EVENTS, Entry, Registry, ResourceId

INTERVAL = 1.0
"""The seconds between two writes of one resource's events."""
MOST_WAITING = 1000
"""The number of resources of which events may wait. Each may have `MOST_EVENTS` different ones."""
PATIENCE = 300.0
"""The seconds for which a write is repeated while the store does not answer."""
LAST = 2.0
"""The seconds that the end of an engine waits for the last writes."""
_AT_ONCE = 8
_DENIED_FOR = 30.0
_MOST_DENIED = 100
_CALL = 10.0
_RACES = 5

Lost = Literal["full", "denied", "refused", "unavailable", "ended"]
"""Why events were not stored: too many waited, no right, another refusal, no answer, or the engine ended first."""


@dataclass(slots=True)
class LostEvents:
    """The events of one controller that were not stored in this process.

    Attributes:
        count: their number.
        error: why the last of them was not stored.
        at: when it was lost, in seconds since 1970.
    """

    count: int = 0
    error: str = ""
    at: float = 0.0


class _Waiting:
    """The events of one resource that are not stored yet, or the time until it may be written again."""

    def __init__(self, of: ResourceId) -> None:
        self.of = of
        # Invariant: at most `MOST_EVENTS`, the latest last.
        self.entries: dict[tuple[str, str, str, bool], Entry] = {}
        self.dropped = 0
        self.write: EventWrite | None = None

    def add(self, entry: Entry) -> None:
        same = (entry.controller, entry.reason, entry.text, entry.warning)
        known = self.entries.pop(same, None)
        if known is not None:
            known.count, known.last = known.count + entry.count, entry.last
            entry = known
        self.entries[same] = entry
        if len(self.entries) > MOST_EVENTS:
            del self.entries[next(iter(self.entries))]
            self.dropped += 1

    def next_write(self) -> EventWrite | None:
        """Return the write to send: the one that has not succeeded yet, or else one of all events that wait."""
        if self.write is None and self.entries:
            self.write = EventWrite(self.of, list(self.entries.values()), self.dropped)
            self.entries, self.dropped = {}, 0
        return self.write

    def left(self) -> Iterable[Entry]:
        """Return the events that are not stored."""
        return [*(() if self.write is None else self.write.entries), *self.entries.values()]


class EventRecorder:
    """The events of all controllers of a process. Call `run` in a task, and `finish` when all controllers have ended.

    Args:
        client: writes the events. It has no fence.
        registry: the types of the resources.
        report: receives `EventNotStored`.
    """

    def __init__(self, client: Client, registry: Registry, report: Report) -> None:
        self._client = client
        self._registry = registry
        self._bounded = BoundedReport(report)
        self._waiting: dict[str, _Waiting] = {}
        self._new: deque[_Waiting] = deque()
        self._arrived = trio.Event()
        self._limiter = trio.CapacityLimiter(_AT_ONCE)
        # Until when no write is tried in a partition and namespace, because the last one was denied.
        self._denied: dict[tuple[str, str], tuple[float, BaseException]] = {}
        self._lost: dict[str, LostEvents] = {}

    def record(self, of: ResourceId, controller: str, reason: str, text: str, *, warning: bool) -> None:
        """Record an event of a stored resource. It is written soon."""
        now = utc_now()
        entry = Entry(controller=controller, reason=reason, text=text, warning=warning, count=1, first=now, last=now)
        until, denied = self._denied.get((of.partition, of.namespace), (0.0, None))
        if denied is not None and trio.current_time() < until:
            self._lose("denied", denied, of, (entry,))
            return
        waiting = self._waiting.get(of.uid)
        if waiting is None:
            if len(self._waiting) >= MOST_WAITING:
                self._lose("full", None, of, (entry,))
                return
            waiting = self._waiting[of.uid] = _Waiting(of)
            self._new.append(waiting)
            self._arrived.set()
        waiting.add(entry)

    def lost(self, controller: str) -> LostEvents:
        """Return the events of a controller that were not stored."""
        return self._lost.get(controller) or LostEvents()

    async def run(self) -> NoReturn:
        """Write events as they are recorded, until canceled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._bounded.report_rest, name="reporting lost events")
            while True:
                await self._arrived.wait()
                self._arrived = trio.Event()
                while self._new:
                    waiting = self._new.popleft()
                    nursery.start_soon(self._keep_writing, waiting, name=f"the events of {waiting.of}")

    async def finish(self) -> None:
        """Write what is left, even if the caller is canceled. It takes at most two seconds."""
        with trio.move_on_after(LAST, shield=True):
            async with trio.open_nursery() as nursery:
                for waiting in list(self._waiting.values()):
                    nursery.start_soon(self._finish, waiting)
        for waiting in self._waiting.values():
            self._lose("ended", None, waiting.of, waiting.left())
        self._waiting.clear()

    async def _finish(self, waiting: _Waiting) -> None:
        while waiting.next_write() is not None:
            await self._write(waiting)

    async def _keep_writing(self, waiting: _Waiting) -> None:
        """Write the events of one resource, at most once a second, until there are no more."""
        while waiting.next_write() is not None:
            await self._write(waiting)
            # A resource stays here for this long, so that its next events wait, and are merged.
            await trio.sleep(INTERVAL)
        del self._waiting[waiting.of.uid]

    async def _write(self, waiting: _Waiting) -> None:
        """Send a resource's next write until it is done or lost."""
        write = waiting.write
        assert write is not None
        give_up, failures, races = trio.current_time() + PATIENCE, 0, 0
        while True:
            try:
                async with self._limiter:
                    with trio.fail_after(_CALL):
                        await write.send(self._client)
                break
            except Conflict:
                races += 1
                await trio.sleep(0 if races < _RACES else INTERVAL)
            except (RemoteError, trio.TooSlowError) as error:
                if trio.current_time() >= give_up:
                    self._lose("unavailable", error, write.of, write.entries)
                    break
                await trio.sleep(retry_delay(failures))
                failures += 1
            except PermissionDenied as error:
                self._deny(write.of, error)
                self._lose("denied", error, write.of, write.entries)
                break
            except Exception as error:  # noqa: BLE001  # nothing that happens to an event may end the engine
                if not await self._is_gone(write.of):
                    self._lose("refused", error, write.of, write.entries)
                break
        waiting.write = None

    async def _is_gone(self, of: ResourceId) -> bool:
        """Return True if the resource no longer exists. Its events would have gone with it, so none is lost."""
        try:
            return await self._client.get(self._registry.resolve(of.type), of) is None
        except HeadwayError:
            return False

    def _deny(self, of: ResourceId, error: BaseException) -> None:
        """Try no writes near this resource for a while, so that the server does not refuse thousands."""
        if len(self._denied) >= _MOST_DENIED:
            self._denied.clear()
        self._denied[of.partition, of.namespace] = trio.current_time() + _DENIED_FOR, error

    def _lose(self, why: Lost, error: BaseException | None, of: ResourceId, entries: Iterable[Entry]) -> None:
        """Count events that are not stored, and report them at a bounded rate."""
        text = _WHY[why] + ("" if error is None else f": {story(error)}")
        for each in entries:
            lost = self._lost.setdefault(each.controller, LostEvents())
            lost.count += each.count
            lost.error, lost.at = text, wall_time()
            self._bounded(
                EventNotStored,
                of=(each.controller, why),
                controller=each.controller,
                type=of.type,
                key=of.key,
                reason=each.reason,
                why=why,
                error=error,
            )


_WHY: dict[Lost, str] = {
    "full": f"the events of {MOST_WAITING} resources waited already",
    "denied": "this process may not write events there",
    "refused": "the server refused them",
    "unavailable": f"the store did not answer for {PATIENCE:.0f} s",
    "ended": "the engine ended before they could be written",
}


class ControllerEvents:
    """The events of one controller. This is the `RecordEvent` of its reconcile contexts.

    Args:
        controller: the app and the name of the controller, ``staff/teams``.
        recorder: the recorder of the process.
    """

    def __init__(self, controller: str, recorder: EventRecorder) -> None:
        self._controller = controller
        self._recorder = recorder

    def __call__(self, of: ResourceId, reason: str, text: str, warning: bool) -> None:
        """Record an event."""
        self._recorder.record(of, self._controller, reason, text, warning=warning)

    @property
    def lost(self) -> LostEvents:
        """The events of the controller that were not stored in this process."""
        return self._recorder.lost(self._controller)

"""The changes of a run whose mapping has failed: when each is mapped again, and what is reported of it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import trio

from headway.base import BoundedReport, give_way, leaving, ordinary, story
from headway.cache import Applied
from headway.controller import Definition
from headway.events import MappingFailed
from headway.mapper import FailedChanges, MapItem, MapQueue
from headway.reconcile import MAPPING, Reason
from headway.resource import Key, TypeName, redact_error, secret_types
from headway.run._change_mapper import ChangeMapper

STEP = 500
"""The number of changes that are mapped between two checkpoints."""
TURN = 0.05
"""The time, in seconds on Trio's clock, after which mapping has a checkpoint before the next change."""


class Unmapped(NamedTuple):
    """A resource whose changes could not be mapped, so that the keys of these changes are not known.

    Times are on Trio's clock, in seconds.

    Attributes:
        function: the mapper or predicate that raised.
        error: the class and message of what it raised.
        failures: the number of consecutive failures.
        since: the time of the first failure.
        due: the time of the next attempt.
    """

    type: TypeName
    key: Key
    revision: int
    function: str
    error: str
    failures: int
    since: float
    due: float


def _unmapped(failed: FailedChanges) -> Unmapped:
    return Unmapped(
        failed.type,
        failed.changes[0].key,
        failed.changes[-1].revision,
        failed.function,
        failed.error,
        failed.failures,
        failed.since,
        failed.due,
    )


class MappingRetries:
    """The changes in a map queue whose mapping has failed, with their retries."""

    def __init__(
        self,
        definition: Definition,
        changes: MapQueue,
        mapper: ChangeMapper,
        bounded: BoundedReport,
        on_progress: Callable[[], None],
    ) -> None:
        self._definition = definition
        self._changes = changes
        self._mapper = mapper
        self._bounded = bounded
        self._on_progress = on_progress
        self._secret = secret_types(definition.types)
        self._has_kept = trio.Event()

    def unmapped(self) -> list[Unmapped]:
        """Return the resources whose mapping failed, those that have waited longest first."""
        return sorted(map(_unmapped, self._changes.failed()), key=lambda each: each.since)

    def newest_unmapped(self, most: int) -> tuple[list[Unmapped], int]:
        """Return up to ``most`` resources of each type whose mapping failed, and the number of all that have failed.

        The newest failures come first. A failure of one type does not replace one of another type.
        """
        failed = self._changes.failed()
        of_types: dict[TypeName, list[FailedChanges]] = {}
        for each in failed:
            of_types.setdefault(each.type, []).append(each)
        newest = [each for of in of_types.values() for each in heapq.nlargest(most, of, key=lambda each: each.since)]
        newest.sort(key=lambda each: each.since, reverse=True)
        return list(map(_unmapped, newest)), len(failed)

    def keep(self, item: MapItem, raised: BaseException) -> None:
        """Keep a change whose mapping raised this, for a retry. Raise it again if it has to end the run."""
        error = ordinary(raised)
        if error is None:
            # The next run maps the change (C6).
            self._changes.defer(item, trio.current_time())
            raise leaving(raised) from raised.__cause__
        now = trio.current_time()
        delay = self._definition.backoff.delay(0)
        kept = self._changes.defer(item, now + delay)
        self._has_kept.set()
        # It waits together with earlier changes of its resource, for as long as they do.
        delay = delay if kept.changes[0] is item.applied else max(kept.due - now, 0.0)
        self._fail(kept, item.applied, error, delay)

    async def run(self) -> None:
        """Retry each change when it is due, until canceled."""
        at_work, clock = self._mapper.at_work, trio.lowlevel.current_clock().current_time
        MAPPING.set(at_work)
        while True:
            due = self._changes.next_due()
            with trio.CancelScope(deadline=trio.current_time() + 3600 if due is None else due):
                await self._has_kept.wait()
            self._has_kept = trio.Event()
            # What fails again during this pass is left to the next one, so that a slow pass ends.
            now, step = trio.current_time(), 0
            until = now + TURN
            while (kept := self._changes.pop_due(now)) is not None:
                step += len(kept.changes)
                self._map_again(kept)
                # Here each change is either mapped or in the queue again, so that a cancellation loses none.
                if step >= STEP or clock() >= until:
                    step = 0
                    await give_way()
                    until = clock() + TURN
            at_work.key = None
            self._on_progress()

    def _map_again(self, kept: FailedChanges) -> None:
        done = 0
        try:
            for applied in kept.changes:
                self._mapper.map_change(kept.type, applied, backlog=kept.backlog)
                done += 1
        except BaseException as raised:  # noqa: BLE001  # cancellation and interrupts are raised again
            error = ordinary(raised)
            if error is None:
                self._changes.defer_again(kept, trio.current_time())
                raise leaving(raised) from raised.__cause__
            failed = kept.changes[done]
            del kept.changes[:done]
            delay = self._definition.backoff.delay(kept.failures)
            self._changes.defer_again(kept, trio.current_time() + delay)
            self._fail(kept, failed, error, delay)
        else:
            if kept.lost:
                self._mapper.add_every(Reason("changed", kept.type, kept.name[1], kept.changes[-1].revision))

    def _fail(self, kept: FailedChanges, applied: Applied, error: Exception, delay: float) -> None:
        type, name = kept.type, self._mapper.calling
        if (secret := self._secret.get(type)) is not None:
            redact_error(error, [secret.view(each) for each in (applied.old, applied.new) if each is not None])
        kept.function, kept.error = name, story(error)
        kept.since = kept.since or trio.current_time()
        self._bounded(
            MappingFailed,
            of=(type, name),
            controller=self._definition.full_name,
            mapper=name,
            type=type,
            key=applied.key,
            error=error,
            retry_after=delay,
        )

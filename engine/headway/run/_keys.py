"""The state of one key in a run: its place in the queue, its last failure, and the reasons why it has to wait."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from headway.queue import KeyInQueue
from headway.reconcile import Reason
from headway.resource import Key, TypeName
from headway.run._fence import Hold
from headway.run._mapping_retries import Unmapped
from headway.run._ownership import PrimedRun
from headway.run._status import NotDone, Results
from headway.run._worker import Worker


class KeyStatus(NamedTuple):
    """The state of a key in a run. Times are on Trio's clock, in seconds.

    Attributes:
        queued: its place in the queue; None if it owes nothing.
        began: the time since which it is being reconciled; None if it is not.
        stack: the program's own frames where its reconcile waits.
        not_done: its last reconcile, if that did not succeed.
        hold: the reason that every key is held back; None if they are not.
        unmapped: the resources whose mapping failed, those that have waited longest first.
        waiting: the number of changes that wait until every type has reached them.
        shard: the number of its shard; None unless the controller is sharded.
        here: True if this process reconciles the key: False if another one has its shard.
        busy: the key that has been reconciled for longest, and since when; None if a worker is free.
        priority: its priority; 0 for a normal key.
        before: the number of keys before it in line.
    """

    queued: KeyInQueue[Reason] | None
    began: float | None
    stack: str
    not_done: NotDone | None
    hold: Hold | None
    unmapped: tuple[Unmapped, ...]
    waiting: int
    shard: int | None = None
    here: bool = True
    busy: tuple[Key, float] | None = None
    priority: int = 0
    before: int = 0


class LeftOutOf(NamedTuple):
    """The keys of a type that an index lacks, because its function raised. There is at least one."""

    type: TypeName
    name: str
    keys: Collection[Key]


class Pending(NamedTuple):
    """The work of a run that became pending before a given time. Times are on Trio's clock, in seconds.

    Attributes:
        keys: the pending keys, the oldest first, each with its place in the queue and its last failure.
        total: the number of all pending keys. ``keys`` may have only some of them.
        given_up: the keys that have failed permanently.
        unmapped: the resources whose mapping failed.
        hold: the reason that every key is held back.
        stacks: of each key that is being reconciled, the program's own frames where it waits.
    """

    keys: Sequence[tuple[Key, KeyInQueue[Reason], NotDone | None]] = ()
    total: int = 0
    given_up: Sequence[NotDone] = ()
    unmapped: Sequence[Unmapped] = ()
    hold: Hold | None = None
    stacks: Mapping[Key, str] = MappingProxyType({})


class RunKeys:
    """The states of the keys of a primed run.

    Attributes:
        worker: its workers; None before they begin.
    """

    def __init__(self, run: PrimedRun, results: Results) -> None:
        self.worker: Worker | None = None
        self._run = run
        self._ownership, self._mapping = run.ownership, run.mapping
        self._results = results

    def status(self, key: Key) -> KeyStatus:
        """Return the state of a key."""
        own = self._ownership
        running = None if self.worker is None else self.worker.at_work.stack(key)
        unmapped = self._mapping.retries.unmapped()
        shard, shards = own.shard_number(key), own.shards()
        queued = own.queue.find(key)
        return KeyStatus(
            queued=queued,
            began=None if running is None else running[0],
            stack="" if running is None else running[1],
            not_done=self._results.not_done.get(key),
            hold=self._run.hold(),
            unmapped=tuple(unmapped),
            waiting=self._mapping.unmapped - len(unmapped),
            shard=shard,
            here=shard is None or shards is None or shard in shards,
            busy=None if self.worker is None else self.worker.at_work.busy(),
            priority=own.priority(key),
            before=own.machine.before(key) if queued is not None and queued.state == "ready" else 0,
        )

    def left_out(self) -> list[LeftOutOf]:
        """Return the indexes that lack resources."""
        return [
            LeftOutOf(type, name, table.failed)
            for type, subscription in self._run.caches.subscriptions.items()
            for name, table in subscription.tables.items()
            if table.failed
        ]

    def newest_unmapped(self, most: int) -> tuple[list[Unmapped], int]:
        """Return up to ``most`` resources of each type whose mapping failed, the newest first, and how many failed."""
        return self._mapping.retries.newest_unmapped(most)

    def retry(self, key: Key) -> bool | None:
        """Enqueue a key for an operator, whatever delay it has.

        Return True if it is being reconciled, and so is reconciled again after that; None for a key of another process.
        """
        status = self.status(key)
        if not status.here:
            return None
        self._ownership.queue.end_interval(key)
        self._ownership.queue.add(key, Reason("operator"))
        return status.began is not None

    def pending_since(self, before: float, most: int) -> Pending:
        """Return the work that became pending before a time on Trio's clock, with at most ``most`` keys."""
        queue = self._ownership.queue
        found = queue.oldest(before)
        keys = [
            (key, queued, self._results.not_done.get(key))
            for _, key in heapq.nsmallest(most, found)
            if (queued := queue.find(key)) is not None
        ]
        given_up = [each for each in self._results.list() if each.outcome == "permanent" and each.at < before]
        unmapped = [each for each in self._mapping.retries.unmapped() if each.since < before]
        worker = self.worker
        running = () if worker is None else [key for key, queued, _ in keys if queued.state == "in hand"]
        stacks = {key: stack[1] for key in running if worker and (stack := worker.at_work.stack(key)) is not None}
        return Pending(keys, len(found), given_up, unmapped, self._run.hold(), stacks)

"""The outcomes of reconciles. Each key goes back to the queue; the status, the journal and an event say how it went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import trio

from headway.base import all_are, own_frames, story
from headway.controller import Definition
from headway.errors import PermanentFailure
from headway.events import Reconciled, Report, SelfTriggered, receives_successes
from headway.journal import ControllerJournal
from headway.queue import Dequeued, WaitingQueue
from headway.reconcile import NotDue, OwnStatuses, Reason, Reconciling, RequeueAfter, trace_id_of
from headway.resource import Key, ResourceId
from headway.run._self_triggers import Fight, SelfTriggers
from headway.run._status import NotDone, Results

_RETRY = Reason("retry")
_REQUEUE = Reason("requeue")
MOST_AT_ONCE = 1_000
"""The number of consecutive immediate requeues of a key that are reported."""
AT_ONCE_SECONDS = 100.0
"""Requeues that take longer together, in seconds, are not reported: such a key waits for something in its reconcile."""


class Outcomes:
    """The outcomes of the reconciles of one run."""

    def __init__(
        self,
        definition: Definition,
        queue: WaitingQueue[Key, Reason],
        report: Report,
        on_done: Callable[[], None],
        self_triggers: SelfTriggers,
        results: Results,
        journal: ControllerJournal | None,
    ) -> None:
        self._definition = definition
        self._queue = queue
        self._report = report
        self._reports_all = receives_successes(report)
        self._on_done = on_done
        self._self_triggers = self_triggers
        self_triggers.on_fight = self._fought
        self._results = results
        self._journal = journal
        # The keys whose last results were immediate requeues without any other reason: how many, and since when.
        self._at_once: dict[Key, tuple[int, float]] = {}

    def done(
        self,
        dequeued: Dequeued[Key, Reason],
        id: ResourceId,
        began: float,
        result: RequeueAfter | None,
        error: Exception | None,
        reconciling: Reconciling,
        *,
        timed_out: bool,
    ) -> float:
        """Handle the end of a reconcile that began at this time, by its result or its exception. Return its end."""
        key, reasons, _, queued_at, attempt = dequeued
        if (statuses := reconciling.statuses) is not None:
            self._end_statuses(key, statuses)
            reconciling.statuses = None
        if self._self_triggers.loops:
            self._self_triggers.ended(key, wrote=reconciling.wrote)
        reconciling.key, reconciling.wrote = None, False
        now = trio.current_time()
        if type(result) is NotDue and error is None:
            # The program's function was not called, so there is nothing to count or to tell.
            self._queue.requeue_after(key, result.seconds, _REQUEUE)
            reconciling.reads.clear()
            self._forget(key, now)
            self._on_done()
            return now
        outcome, retry_after = self._finish(key, result, error, now)
        self._results.counts[outcome] += 1
        if retry_after == 0.0 and error is None:
            self._requeued_at_once(dequeued, id, now)
        elif self._at_once:
            self._at_once.pop(key, None)
        writes = reconciling.writes
        if (journal := self._journal) is not None:
            reads = reconciling.reads
            try:
                read_type, read = reads
                (reason,) = reasons
            except ValueError:
                reason = None
            if reason is None or writes or outcome != "done":
                self._record(journal, dequeued, outcome, began, now, error, retry_after, reconciling)
            else:
                if read == key:
                    # Most reconciles read their own resource. The entry then keeps no tuple of its own in memory.
                    read = key
                values = (now, key, began, queued_at, attempt, reason, read_type, read)
                runs = journal.runs
                runs += values
                if journal.added is not None:
                    journal.added(values)
            reads.clear()
        if writes:
            writes.clear()
        if error is not None:
            until = None if retry_after is None else now + retry_after
            failed: Literal["failed", "permanent"] = "permanent" if until is None else "failed"
            since = self._pending_since(key)
            self._results.note(NotDone(id, failed, story(error), attempt, now, until, timed_out, since))
        else:
            self._forget(key, now)
        if self._reports_all or error is not None:
            self._report_reconcile(dequeued, id, outcome, began, error, retry_after, timed_out=timed_out)
        self._on_done()
        return now

    def _forget(self, key: Key, now: float) -> None:
        """Forget the failure of a key that was reconciled, or its fight, unless it waits for the end of the delay."""
        if self._results.not_done and not (self._self_triggers.is_slowed(key, now) and self._queue.find(key)):
            self._results.done(key)

    def _end_statuses(self, key: Key, statuses: OwnStatuses) -> None:
        """Enqueue the key of a reconcile that ends for its own statuses, if it has looked at what they change."""
        statuses.ended = True
        if statuses.looked:
            for reason in statuses.put_off:
                self._queue.add(key, reason, due=self._self_triggers.queued(key, reason, trio.current_time()))

    def broke_off(
        self,
        dequeued: Dequeued[Key, Reason],
        id: ResourceId,
        began: float,
        error: BaseException,
        reconciling: Reconciling,
        *,
        timed_out: bool,
    ) -> None:
        """Record and report a reconcile that ends the run. Its key stays in hand, so the next run reconciles it."""
        self._results.counts["failed"] += 1
        self._report_reconcile(dequeued, id, "failed", began, error, None, timed_out=timed_out)
        if self._journal is not None:
            self._record(self._journal, dequeued, "failed", began, trio.current_time(), error, None, reconciling)

    def delayed(self, dequeued: Dequeued[Key, Reason], now: float) -> bool:
        """Delay a key that has triggered itself too often, instead of reconciling it, and return True if so."""
        key = dequeued.key
        if (fights := self._self_triggers.fights) is not None:
            fights.wait = now - dequeued.queued_at
        delay = self._self_triggers.delay(key, dequeued.reasons, dequeued.attempt, now)
        if delay is None:
            return False
        self._queue.back_off(key, delay.seconds, now)
        if not delay.quiet:
            id = ResourceId(self._definition.manages.name, key[2], key[0], key[1])
            about = (dequeued.attempt, trace_id_of(dequeued.reasons))
            self._report(SelfTriggered(self._definition.full_name, id, delay.writes, delay.runs, delay.seconds, *about))
            text = f"triggers itself with its own writes: {', '.join(map(str, delay.writes))}"
            since = self._pending_since(key)
            slowed = NotDone(id, "slowed", text, delay.runs, now, now + delay.seconds, pending_since=since)
            self._results.note(slowed)
        return True

    def _fought(self, key: Key, fight: Fight, seconds: float, own: bool) -> None:
        """Note that a key is delayed because it fights. Report it, unless its own write is the reason."""
        fights = self._self_triggers.fights
        assert fights is not None
        id, now = ResourceId(self._definition.manages.name, key[2], key[0], key[1]), trio.current_time()
        if own and (noted := self._results.not_done.get(key)) is not None and (noted.until or 0.0) >= now:
            return
        event, text = fights.event(id, fight, seconds)
        if not own and not fights.is_told(key, seconds, now):
            self._report(event)
        self._results.note(NotDone(id, "slowed", text, 1, now, now + seconds, False, self._pending_since(key) or now))

    def _requeued_at_once(self, dequeued: Dequeued[Key, Reason], id: ResourceId, now: float) -> None:
        """Count an immediate requeue, and report a key once that does nothing else. It is not delayed.

        A reconciler may do a large work in many steps, between which other keys have their turn.
        """
        key, reasons = dequeued.key, dequeued.reasons
        count, since = self._at_once.get(key, (0, now))
        if any(each.what != _REQUEUE.what for each in reasons) or (
            count == MOST_AT_ONCE - 1 and now - since > AT_ONCE_SECONDS
        ):
            count, since = 0, now
        self._at_once[key] = count + 1, since
        if count + 1 == MOST_AT_ONCE:
            about = (dequeued.attempt, trace_id_of(reasons))
            self._report(SelfTriggered(self._definition.full_name, id, (), count + 1, 0.0, *about))

    def _pending_since(self, key: Key) -> float | None:
        queued = self._queue.find(key)
        return None if queued is None else queued.since

    def _finish(
        self, key: Key, result: RequeueAfter | None, error: Exception | None, now: float
    ) -> tuple[str, float | None]:
        """Report the key back to the queue. Return the name of the outcome, and the seconds until the next attempt."""
        queue = self._queue
        if error is None:
            if result is None:
                queue.succeeded(key, now)
                return "done", None
            queue.requeue_after(key, result.seconds, _REQUEUE)
            return "requeue", result.seconds
        # In a group, another task has failed for a reason that a retry may remove.
        if all_are(error, PermanentFailure):
            queue.dropped(key)
            return "permanent", None
        return "failed", queue.failed(key, _RETRY)

    def _record(
        self,
        journal: ControllerJournal,
        dequeued: Dequeued[Key, Reason],
        outcome: str,
        began: float,
        now: float,
        error: BaseException | None,
        retry_after: float | None,
        reconciling: Reconciling,
    ) -> None:
        """Add the reconcile to the journal, with what it has read and written."""
        key, reasons, _, queued_at, attempt = dequeued
        told, trace = ("", "") if error is None else (story(error), own_frames(error))
        reads, writes = reconciling.reads, reconciling.writes
        of = (now, key, outcome, now - began, began - queued_at, attempt)
        journal.ran(*of, reasons, reads, writes, told, trace, retry_after)

    def _report_reconcile(
        self,
        dequeued: Dequeued[Key, Reason],
        id: ResourceId,
        outcome: str,
        began: float,
        error: BaseException | None,
        retry_after: float | None,
        *,
        timed_out: bool,
    ) -> None:
        seconds = trio.current_time() - began
        name = self._definition.full_name
        # A key with a requested delay is queued from the end of the delay, and the clock may be read in between.
        waited = max(began - dequeued.queued_at, 0.0)
        attempt, reasons = dequeued.attempt, dequeued.reasons
        self._report(Reconciled(name, id, outcome, seconds, error, retry_after, reasons, waited, attempt, timed_out))

"""The work queue, which decides which key is reconciled next, and when.

A controller's changes enter as keys with reasons. Its workers dequeue one key at a time and report the result. The
queue merges repeated keys, backs off failed ones, delays those that requested it, and prefers live changes to the
start-up backlog without starving it.

The queue keeps no payload (a reconcile reads the cache, which is newer than any queued data), never hands one key to
two workers at once, never loses an add, returns nothing after it is closed, and never calls user code.

Start with `_machine.py`, which does no I/O and holds the rules. `_waiting.py` adds Trio: waiting for a key, time, and
holding the queue.
"""

from headway.queue._backoff import Backoff as Backoff
from headway.queue._entries import LIVE_PER_BACKLOG as LIVE_PER_BACKLOG
from headway.queue._machine import WorkQueue as WorkQueue
from headway.queue._ranked import RankedQueue as RankedQueue
from headway.queue._values import BACKLOG as BACKLOG
from headway.queue._values import LIVE as LIVE
from headway.queue._values import Dequeued as Dequeued
from headway.queue._values import KeyInQueue as KeyInQueue
from headway.queue._values import NotInHandError as NotInHandError
from headway.queue._values import Priority as Priority
from headway.queue._values import QueueStatistics as QueueStatistics
from headway.queue._waiting import WaitingQueue as WaitingQueue

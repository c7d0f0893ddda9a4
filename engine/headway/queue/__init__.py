"""The queue: which key, when.

A controller's changes come in here as keys with reasons; its workers take them out one at a time and report
back what became of them. The queue merges what repeats, rests what fails, delays what asked for it, and lets
live changes go before the start-up backlog without starving it.

What never happens here: no payload is kept (a reconcile reads the cache, which is newer than anything a queue
could hold), no key is handed to two workers at once, no add is lost, nothing comes out of a closed queue, and
nobody's code is called.

Open `_machine.py` first: it is pure and holds the rules. `_waiting.py` adds Trio: waiting for a key, time,
and the hold.
"""

from headway.queue._backoff import Backoff as Backoff
from headway.queue._entry import BACKLOG as BACKLOG
from headway.queue._entry import LIVE as LIVE
from headway.queue._entry import NotInHandError as NotInHandError
from headway.queue._entry import Priority as Priority
from headway.queue._entry import QueueStatistics as QueueStatistics
from headway.queue._entry import Taken as Taken
from headway.queue._machine import LIVE_PER_BACKLOG as LIVE_PER_BACKLOG
from headway.queue._machine import WorkQueue as WorkQueue
from headway.queue._waiting import WaitingQueue as WaitingQueue

"""Histories: what many processes have observed of one store, as facts, and the judge of them.

Start with `_facts.py`, then read `_history.py`. All of it but `_recording.py` is pure.
"""

from headway.testing.history._facts import BookmarkDelivered as BookmarkDelivered
from headway.testing.history._facts import CacheSeen as CacheSeen
from headway.testing.history._facts import ChangesDelivered as ChangesDelivered
from headway.testing.history._facts import DeletionsMissed as DeletionsMissed
from headway.testing.history._facts import DeliveredResource as DeliveredResource
from headway.testing.history._facts import Fact as Fact
from headway.testing.history._facts import ReadAnswered as ReadAnswered
from headway.testing.history._facts import ReconcileDone as ReconcileDone
from headway.testing.history._facts import SnapshotDelivered as SnapshotDelivered
from headway.testing.history._facts import SnapshotEnded as SnapshotEnded
from headway.testing.history._facts import TermHeld as TermHeld
from headway.testing.history._facts import WatchOpened as WatchOpened
from headway.testing.history._facts import WriteAnswered as WriteAnswered
from headway.testing.history._facts import WriteSent as WriteSent
from headway.testing.history._facts import digest_of as digest_of
from headway.testing.history._facts import fact_line as fact_line
from headway.testing.history._facts import read_fact as read_fact
from headway.testing.history._history import HISTORY_RULES as HISTORY_RULES
from headway.testing.history._history import History as History
from headway.testing.history._recording import RecordingChannel as RecordingChannel
from headway.testing.history._truth import Violation as Violation

"""Tools for testing programs and stores made with Headway. They ship with the package and import no test framework.

`verdicts` and `check_backend` check a store against every promise of `headway.storage.Backend`. A check is an async
function named after its claim; it raises AssertionError with an explanation if the claim does not hold.

`open_engine` opens an engine as `headway.open_engine` does, with options that only tests use. A `ScriptedChannel`
stands between such an engine and its store and simulates network failures on command. `one_shot` runs one controller
without workers: a test calls its reconciler or a mapper once and looks at the result. `stored` makes a resource as a
store returns it.

`History` judges what many processes have seen of one store while they wrote to it, watched it and were killed. A
`RecordingChannel` records what a process sees; a test can also add facts itself.

`check_converters` checks that the converters of an app keep their rules.

`LiveRun` drives a live run under virtual time from synchronous code, such as the rules of a state machine.
"""

from headway.testing._converters import check_converters as check_converters
from headway.testing._engine import open_engine as open_engine
from headway.testing._live_run import LiveRun as LiveRun
from headway.testing._one_shot import OneShot as OneShot
from headway.testing._one_shot import RecordedEvent as RecordedEvent
from headway.testing._one_shot import Shot as Shot
from headway.testing._one_shot import Written as Written
from headway.testing._one_shot import one_shot as one_shot
from headway.testing._scripted_channel import Call as Call
from headway.testing._scripted_channel import Fault as Fault
from headway.testing._scripted_channel import ScriptedChannel as ScriptedChannel
from headway.testing._stored import stored as stored
from headway.testing.conformance import BACKEND_CHECKS as BACKEND_CHECKS
from headway.testing.conformance import SHORT_HISTORY as SHORT_HISTORY
from headway.testing.conformance import BackendCheck as BackendCheck
from headway.testing.conformance import Capability as Capability
from headway.testing.conformance import OpenStore as OpenStore
from headway.testing.conformance import StoreUnderTest as StoreUnderTest
from headway.testing.conformance import Verdict as Verdict
from headway.testing.conformance import check_backend as check_backend
from headway.testing.conformance import claim_of as claim_of
from headway.testing.conformance import run_backend_check as run_backend_check
from headway.testing.conformance import verdicts as verdicts
from headway.testing.history import HISTORY_RULES as HISTORY_RULES
from headway.testing.history import BookmarkDelivered as BookmarkDelivered
from headway.testing.history import CacheSeen as CacheSeen
from headway.testing.history import ChangesDelivered as ChangesDelivered
from headway.testing.history import DeletionsMissed as DeletionsMissed
from headway.testing.history import DeliveredResource as DeliveredResource
from headway.testing.history import Fact as Fact
from headway.testing.history import History as History
from headway.testing.history import ReadAnswered as ReadAnswered
from headway.testing.history import ReconcileDone as ReconcileDone
from headway.testing.history import RecordingChannel as RecordingChannel
from headway.testing.history import SnapshotDelivered as SnapshotDelivered
from headway.testing.history import SnapshotEnded as SnapshotEnded
from headway.testing.history import TermHeld as TermHeld
from headway.testing.history import Violation as Violation
from headway.testing.history import WatchOpened as WatchOpened
from headway.testing.history import WriteAnswered as WriteAnswered
from headway.testing.history import WriteSent as WriteSent
from headway.testing.history import fact_line as fact_line
from headway.testing.history import read_fact as read_fact

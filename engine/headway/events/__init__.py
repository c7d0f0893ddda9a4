"""The events that Headway reports. Logs, metrics and traces are derived from them elsewhere. No I/O.

Each event is an immutable record. Its fields, which `vars` returns, name the object and describe what happened. A
`Report` is a function that accepts an event. It must not block and must not raise.

`_engine.py` has the events of controllers, `_server.py` those of network servers and of whole processes.
"""

from headway.events._engine import BookmarkRefused as BookmarkRefused
from headway.events._engine import CallbackFailed as CallbackFailed
from headway.events._engine import CallDelayed as CallDelayed
from headway.events._engine import ControllersClash as ControllersClash
from headway.events._engine import ControllersFight as ControllersFight
from headway.events._engine import ConversionFailed as ConversionFailed
from headway.events._engine import DaemonEnded as DaemonEnded
from headway.events._engine import DeletionsUnknown as DeletionsUnknown
from headway.events._engine import EventNotStored as EventNotStored
from headway.events._engine import HandlerFailed as HandlerFailed
from headway.events._engine import IndexFailed as IndexFailed
from headway.events._engine import LeaseAwaited as LeaseAwaited
from headway.events._engine import LeaseDelayed as LeaseDelayed
from headway.events._engine import LeaseEnded as LeaseEnded
from headway.events._engine import LeaseTaken as LeaseTaken
from headway.events._engine import MappingFailed as MappingFailed
from headway.events._engine import PayloadUndecodable as PayloadUndecodable
from headway.events._engine import Primed as Primed
from headway.events._engine import Priming as Priming
from headway.events._engine import ProjectionFailed as ProjectionFailed
from headway.events._engine import Reconciled as Reconciled
from headway.events._engine import ReconcileSlow as ReconcileSlow
from headway.events._engine import RunEnded as RunEnded
from headway.events._engine import RunStarted as RunStarted
from headway.events._engine import SelfTriggered as SelfTriggered
from headway.events._engine import SourceFailed as SourceFailed
from headway.events._engine import StaleRefused as StaleRefused
from headway.events._engine import StreamEnded as StreamEnded
from headway.events._engine import StreamLagging as StreamLagging
from headway.events._engine import StreamOpened as StreamOpened
from headway.events._engine import WatchAdded as WatchAdded
from headway.events._engine import WriteResolved as WriteResolved
from headway.events._engine import WritesHeld as WritesHeld
from headway.events._engine import WriteUnknown as WriteUnknown
from headway.events._record import Record as Record
from headway.events._record import Report as Report
from headway.events._record import ignore as ignore
from headway.events._record import receives_successes as receives_successes
from headway.events._server import AccessChanged as AccessChanged
from headway.events._server import AuthenticationFailed as AuthenticationFailed
from headway.events._server import CallDenied as CallDenied
from headway.events._server import CallLimited as CallLimited
from headway.events._server import CertificateRefused as CertificateRefused
from headway.events._server import CertificateRenewed as CertificateRenewed
from headway.events._server import ConnectionEnded as ConnectionEnded
from headway.events._server import ConnectionRefused as ConnectionRefused
from headway.events._server import IssuerFailed as IssuerFailed
from headway.events._server import IssuerKeysChanged as IssuerKeysChanged
from headway.events._server import IssuerKeysRead as IssuerKeysRead
from headway.events._server import LoginRefused as LoginRefused
from headway.events._server import LoopBlocked as LoopBlocked
from headway.events._server import PeerNotNotified as PeerNotNotified
from headway.events._server import PeerRefused as PeerRefused
from headway.events._server import PeerStoreReplaced as PeerStoreReplaced
from headway.events._server import ServerWarned as ServerWarned
from headway.events._server import ShutdownBlocked as ShutdownBlocked
from headway.events._server import StoreFailed as StoreFailed
from headway.events._server import StoreRecovered as StoreRecovered

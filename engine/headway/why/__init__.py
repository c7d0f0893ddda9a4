"""The question why a resource is not done, and what is stuck: answers as values, as sentences, and as a service.

Nothing here affects what the engine does. Start with `answers` (values and sentences), then read `_local.py`
(where the values come from in one process). `_host.py` asks all processes, and `_service.py` serves the answers.
"""

from headway.why._absent import Absences as Absences
from headway.why._attend import attend as attend
from headway.why._attend import pass_answer as pass_answer
from headway.why._attend import relay as relay
from headway.why._attending import Attending as Attending
from headway.why._attending import asker_of as asker_of
from headway.why._elsewhere import Absent as Absent
from headway.why._elsewhere import Elsewhere as Elsewhere
from headway.why._host import ObserveHost as ObserveHost
from headway.why._leases import Leases as Leases
from headway.why._local import stuck_here as stuck_here
from headway.why._local import to_wall as to_wall
from headway.why._now import failing_of as failing_of
from headway.why._service import ATTEND as ATTEND
from headway.why._service import OBSERVE_SERVICE as OBSERVE_SERVICE
from headway.why._service import ObservePermissions as ObservePermissions
from headway.why._service import ObserveService as ObserveService
from headway.why._service import QuestionDecoder as QuestionDecoder
from headway.why._service import redacted as redacted
from headway.why.answers import Cause as Cause
from headway.why.answers import Condition as Condition
from headway.why.answers import ControllerNow as ControllerNow
from headway.why.answers import ControllerWhy as ControllerWhy
from headway.why.answers import Failing as Failing
from headway.why.answers import Finalizer as Finalizer
from headway.why.answers import Gone as Gone
from headway.why.answers import LeaseNow as LeaseNow
from headway.why.answers import LeftOut as LeftOut
from headway.why.answers import PastEvent as PastEvent
from headway.why.answers import PastReconcile as PastReconcile
from headway.why.answers import PastWrite as PastWrite
from headway.why.answers import PrimingType as PrimingType
from headway.why.answers import Ref as Ref
from headway.why.answers import Standby as Standby
from headway.why.answers import Stored as Stored
from headway.why.answers import StuckItem as StuckItem
from headway.why.answers import StuckList as StuckList
from headway.why.answers import Touched as Touched
from headway.why.answers import TurnedAwayChange as TurnedAwayChange
from headway.why.answers import UnmappedChange as UnmappedChange
from headway.why.answers import Why as Why
from headway.why.answers import attempts_text as attempts_text
from headway.why.answers import from_message as from_message
from headway.why.answers import reconcile_texts as reconcile_texts

"""The question why a resource is not done, and what is stuck: answers, their sentences, and the service.

Nothing here affects what the engine does. Start with `answers`, then read `_local.py`
(where the values come from in one process). `_host.py` asks all processes, and `_service.py` serves the answers.
"""

from headway._gen.headway.observe.v1 import Cause as Cause
from headway._gen.headway.observe.v1 import Condition as Condition
from headway._gen.headway.observe.v1 import ControllerNow as ControllerNow
from headway._gen.headway.observe.v1 import ControllerWhy as ControllerWhy
from headway._gen.headway.observe.v1 import Failing as Failing
from headway._gen.headway.observe.v1 import Finalizer as Finalizer
from headway._gen.headway.observe.v1 import Gone as Gone
from headway._gen.headway.observe.v1 import LeaseNow as LeaseNow
from headway._gen.headway.observe.v1 import LeftOut as LeftOut
from headway._gen.headway.observe.v1 import PastEvent as PastEvent
from headway._gen.headway.observe.v1 import PastReconcile as PastReconcile
from headway._gen.headway.observe.v1 import PastWrite as PastWrite
from headway._gen.headway.observe.v1 import PrimingType as PrimingType
from headway._gen.headway.observe.v1 import Ref as Ref
from headway._gen.headway.observe.v1 import Standby as Standby
from headway._gen.headway.observe.v1 import Stored as Stored
from headway._gen.headway.observe.v1 import StuckItem as StuckItem
from headway._gen.headway.observe.v1 import StuckList as StuckList
from headway._gen.headway.observe.v1 import Touched as Touched
from headway._gen.headway.observe.v1 import TurnedAwayChange as TurnedAwayChange
from headway._gen.headway.observe.v1 import UnmappedChange as UnmappedChange
from headway._gen.headway.observe.v1 import Why as Why
from headway.why._absent import Absences as Absences
from headway.why._attend import attend as attend
from headway.why._attend import pass_answer as pass_answer
from headway.why._attend import relay as relay
from headway.why._attending import Attending as Attending
from headway.why._attending import asker_of as asker_of
from headway.why._elsewhere import Absent as Absent
from headway.why._elsewhere import Elsewhere as Elsewhere
from headway.why._extension import answering as answering
from headway.why._extension import answering_extension as answering_extension
from headway.why._extension import beside_siblings as beside_siblings
from headway.why._extension import observer_of as observer_of
from headway.why._extension import why_extension as why_extension
from headway.why._host import ObserveHost as ObserveHost
from headway.why._leases import Leases as Leases
from headway.why._local import stuck_here as stuck_here
from headway.why._now import controllers_now as controllers_now
from headway.why._service import ATTEND as ATTEND
from headway.why._service import OBSERVE_SERVICE as OBSERVE_SERVICE
from headway.why._service import ObservePermissions as ObservePermissions
from headway.why._service import ObserveService as ObserveService
from headway.why._service import QuestionDecoder as QuestionDecoder
from headway.why._service import redacted as redacted
from headway.why.answers import attempts_text as attempts_text
from headway.why.answers import cleaned as cleaned
from headway.why.answers import id_of as id_of
from headway.why.answers import reconcile_texts as reconcile_texts
from headway.why.answers import ref_of as ref_of
from headway.why.answers import ref_text as ref_text
from headway.why.answers import sentences as sentences

"""The question why a resource is not done, and what is stuck: answers as values, as sentences, and as a service.

Nothing here affects what the engine does. Start with `_answer.py` (the values), then read `_local.py` (where they come
from in one process) and `_sentences.py` (how they read; `_runs.py` has the past reconciles). `_host.py` asks all
processes, and `_service.py` serves it.
"""

from headway.why._answer import Cause as Cause
from headway.why._answer import Condition as Condition
from headway.why._answer import ControllerWhy as ControllerWhy
from headway.why._answer import Finalizer as Finalizer
from headway.why._answer import Gone as Gone
from headway.why._answer import LeaseNow as LeaseNow
from headway.why._answer import LeftOut as LeftOut
from headway.why._answer import PastEvent as PastEvent
from headway.why._answer import PastReconcile as PastReconcile
from headway.why._answer import PastWrite as PastWrite
from headway.why._answer import PrimingType as PrimingType
from headway.why._answer import Ref as Ref
from headway.why._answer import Stored as Stored
from headway.why._answer import Touched as Touched
from headway.why._answer import TurnedAwayChange as TurnedAwayChange
from headway.why._answer import UnmappedChange as UnmappedChange
from headway.why._answer import Why as Why
from headway.why._attend import attend as attend
from headway.why._attend import pass_answer as pass_answer
from headway.why._attend import relay as relay
from headway.why._attending import Attending as Attending
from headway.why._attending import asker_of as asker_of
from headway.why._host import Elsewhere as Elsewhere
from headway.why._host import ObserveHost as ObserveHost
from headway.why._lists import ControllerNow as ControllerNow
from headway.why._lists import Failing as Failing
from headway.why._lists import Standby as Standby
from headway.why._lists import StuckItem as StuckItem
from headway.why._lists import StuckList as StuckList
from headway.why._local import to_wall as to_wall
from headway.why._now import failing_of as failing_of
from headway.why._runs import attempts_text as attempts_text
from headway.why._runs import reconcile_texts as reconcile_texts
from headway.why._service import ATTEND as ATTEND
from headway.why._service import OBSERVE_SERVICE as OBSERVE_SERVICE
from headway.why._service import ObservePermissions as ObservePermissions
from headway.why._service import ObserveService as ObserveService
from headway.why._service import QuestionDecoder as QuestionDecoder
from headway.why._wire import from_message as from_message

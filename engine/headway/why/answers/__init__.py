"""The answers about unfinished and stuck resources, as values, as sentences and as messages. No I/O.

The answers of several processes are joined here.

Read `_answer.py` and `_lists.py` (values) first, then `_sentences.py`.
"""

from headway.why.answers._answer import FAILURES as FAILURES
from headway.why.answers._answer import RECONCILES as RECONCILES
from headway.why.answers._answer import Cause as Cause
from headway.why.answers._answer import Condition as Condition
from headway.why.answers._answer import ControllerWhy as ControllerWhy
from headway.why.answers._answer import Finalizer as Finalizer
from headway.why.answers._answer import Gone as Gone
from headway.why.answers._answer import LeaseNow as LeaseNow
from headway.why.answers._answer import LeftOut as LeftOut
from headway.why.answers._answer import PastEvent as PastEvent
from headway.why.answers._answer import PastReconcile as PastReconcile
from headway.why.answers._answer import PastWrite as PastWrite
from headway.why.answers._answer import PrimingType as PrimingType
from headway.why.answers._answer import Ref as Ref
from headway.why.answers._answer import Stored as Stored
from headway.why.answers._answer import Touched as Touched
from headway.why.answers._answer import TurnedAwayChange as TurnedAwayChange
from headway.why.answers._answer import UnmappedChange as UnmappedChange
from headway.why.answers._answer import Why as Why
from headway.why.answers._answer import short_name as short_name
from headway.why.answers._finalizers import OWN_FINALIZERS as OWN_FINALIZERS
from headway.why.answers._lists import ControllerNow as ControllerNow
from headway.why.answers._lists import Failing as Failing
from headway.why.answers._lists import Standby as Standby
from headway.why.answers._lists import StuckItem as StuckItem
from headway.why.answers._lists import StuckList as StuckList
from headway.why.answers._past import LONGEST as LONGEST
from headway.why.answers._past import Wall as Wall
from headway.why.answers._past import past_reconciles as past_reconciles
from headway.why.answers._runs import attempts_text as attempts_text
from headway.why.answers._runs import reconcile_sentences as reconcile_sentences
from headway.why.answers._runs import reconcile_texts as reconcile_texts
from headway.why.answers._stuck import STUCK as STUCK
from headway.why.answers._stuck import joined as joined
from headway.why.answers._stuck import said_by as said_by
from headway.why.answers._stuck import shortened as shortened
from headway.why.answers._wire import from_message as from_message
from headway.why.answers._wire import to_message as to_message

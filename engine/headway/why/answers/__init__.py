"""The answers about unfinished and stuck resources: what is in them, and their sentences. No I/O.

The answers are the messages of ``headway.observe.v1``, and its file describes each field. The answers of several
processes are joined here.
"""

from headway.why.answers._past import LONGEST as LONGEST
from headway.why.answers._past import Wall as Wall
from headway.why.answers._past import past_reconciles as past_reconciles
from headway.why.answers._runs import FAILURES as FAILURES
from headway.why.answers._runs import RECONCILES as RECONCILES
from headway.why.answers._runs import attempts_text as attempts_text
from headway.why.answers._runs import reconcile_sentences as reconcile_sentences
from headway.why.answers._runs import reconcile_texts as reconcile_texts
from headway.why.answers._sentences import OWN_FINALIZERS as OWN_FINALIZERS
from headway.why.answers._sentences import sentences as sentences
from headway.why.answers._stuck import STUCK as STUCK
from headway.why.answers._stuck import joined as joined
from headway.why.answers._stuck import said_by as said_by
from headway.why.answers._stuck import shortened as shortened
from headway.why.answers._texts import id_of as id_of
from headway.why.answers._texts import kind_of as kind_of
from headway.why.answers._texts import ref_of as ref_of
from headway.why.answers._texts import ref_text as ref_text
from headway.why.answers._texts import short_name as short_name
from headway.why.answers._wire import cleaned as cleaned

"""Who may ask: policies.

What never happens here: what no rule allows is not allowed, and nothing waits. Open `_policy.py` first.
"""

from headway.access._policy import GROUPS as GROUPS
from headway.access._policy import VERBS as VERBS
from headway.access._policy import Policy as Policy
from headway.access._policy import Rights as Rights
from headway.access._policy import Rule as Rule
from headway.access._policy import Verb as Verb

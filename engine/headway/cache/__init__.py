"""What is believed: the gate, the shared store of each type, indexes, and the read face.

Nothing here decides what to do about a change. Open `_gate.py` first (the rules), then `_shared.py`.
"""

from headway.cache._gate import Applied as Applied
from headway.cache._gate import Found as Found
from headway.cache._gate import Gate as Gate
from headway.cache._gate import Refusals as Refusals
from headway.cache._hub import Hub as Hub
from headway.cache._indexes import Index as Index
from headway.cache._indexes import IndexTable as IndexTable
from headway.cache._indexes import OnFailure as OnFailure
from headway.cache._indexes import index as index
from headway.cache._indexes import index_many as index_many
from headway.cache._indexes import index_metadata as index_metadata
from headway.cache._indexes import index_owner as index_owner
from headway.cache._reader import CacheReader as CacheReader
from headway.cache._shared import LINGER_LIMIT as LINGER_LIMIT
from headway.cache._shared import SharedType as SharedType
from headway.cache._shared import Subscription as Subscription

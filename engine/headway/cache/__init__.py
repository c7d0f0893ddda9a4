"""What is believed: the gate, the shared store of each type, indexes, and the read face.

Nothing here decides what to do about a change. Open `_gate.py` first (the rules), then `_shared.py`.
"""

from headway.cache._cache import Cache as Cache
from headway.cache._cached_type import CachedType as CachedType
from headway.cache._gate import Applied as Applied
from headway.cache._gate import Found as Found
from headway.cache._gate import Gate as Gate
from headway.cache._gate import Refusals as Refusals
from headway.cache._hub import Hub as Hub
from headway.cache._indexers import index_bound_references as index_bound_references
from headway.cache._indexers import index_metadata as index_metadata
from headway.cache._indexers import index_owner as index_owner
from headway.cache._indexers import index_reference as index_reference
from headway.cache._indexers import index_references as index_references
from headway.cache._indexes import Index as Index
from headway.cache._indexes import IndexTable as IndexTable
from headway.cache._indexes import OnFailure as OnFailure
from headway.cache._indexes import index as index
from headway.cache._indexes import index_many as index_many
from headway.cache._isolation import Isolation as Isolation
from headway.cache._projection import Projected as Projected
from headway.cache._projection import Projection as Projection
from headway.cache._projection import projection as projection
from headway.cache._projection import stored_type as stored_type
from headway.cache._query import Query as Query
from headway.cache._query import query as query
from headway.cache._reader import OWNER_INDEX as OWNER_INDEX
from headway.cache._reader import CacheReader as CacheReader
from headway.cache._reader import Held as Held
from headway.cache._shared import SharedType as SharedType
from headway.cache._subscription import LINGER_LIMIT as LINGER_LIMIT
from headway.cache._subscription import Subscription as Subscription
from headway.cache._view import View as View

"""The caches: the store of each type, its informer, indexes, and reads.

This package does not decide what to do about a change. Start with `_type_store.py` (the rules), then read
`_informer.py`.
"""

from headway.cache._cache import Cache as Cache
from headway.cache._cache import CacheOfTypes as CacheOfTypes
from headway.cache._index_table import IndexTable as IndexTable
from headway.cache._index_table import OnFailure as OnFailure
from headway.cache._index_table import values_of as values_of
from headway.cache._indexes import Index as Index
from headway.cache._indexes import by as by
from headway.cache._indexes import by_bound_references as by_bound_references
from headway.cache._indexes import by_many as by_many
from headway.cache._indexes import by_metadata as by_metadata
from headway.cache._indexes import by_owner as by_owner
from headway.cache._indexes import by_reference as by_reference
from headway.cache._indexes import by_references as by_references
from headway.cache._indexing import subscribe_by_turns as subscribe_by_turns
from headway.cache._informer import LINGER_LIMIT as LINGER_LIMIT
from headway.cache._informer import Informer as Informer
from headway.cache._informer import Subscription as Subscription
from headway.cache._isolation import Isolation as Isolation
from headway.cache._projection import CachedType as CachedType
from headway.cache._projection import Projected as Projected
from headway.cache._projection import Projection as Projection
from headway.cache._projection import projection as projection
from headway.cache._projection import range_of as range_of
from headway.cache._projection import stored_type as stored_type
from headway.cache._reader import OWNER_INDEX as OWNER_INDEX
from headway.cache._reader import PRIORITY_INDEX as PRIORITY_INDEX
from headway.cache._reader import CacheReader as CacheReader
from headway.cache._reader import Content as Content
from headway.cache._reader import Query as Query
from headway.cache._reader import query as query
from headway.cache._reader import state_of as state_of
from headway.cache._reading import MOST_READS as MOST_READS
from headway.cache._reading import READING as READING
from headway.cache._reading import LookingUp as LookingUp
from headway.cache._reading import VersionedReads as VersionedReads
from headway.cache._reading import note_read as note_read
from headway.cache._type_store import Applied as Applied
from headway.cache._type_store import TypeStore as TypeStore
from headway.cache._view import Pin as Pin
from headway.cache._view import View as View

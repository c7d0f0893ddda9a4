"""Mappers: from a changed resource to the ids of the managed resources to reconcile.

A mapper is called with the old and the new state, so it need not remember which resources were affected before. Nothing
here waits or enqueues. Start with `_mappers.py`, then read `_ready.py`, `_predicates.py` and `_map_queue.py`.
"""

from headway.mapper._backlog import Backlog as Backlog
from headway.mapper._items import FailedChanges as FailedChanges
from headway.mapper._items import MapItem as MapItem
from headway.mapper._map_queue import MapQueue as MapQueue
from headway.mapper._mappers import ChangeMapper as ChangeMapper
from headway.mapper._mappers import Concerned as Concerned
from headway.mapper._mappers import Mapper as Mapper
from headway.mapper._mappers import Need as Need
from headway.mapper._mappers import ReadyMapper as ReadyMapper
from headway.mapper._mappers import StateMapper as StateMapper
from headway.mapper._mappers import ask as ask
from headway.mapper._mappers import failed_name as failed_name
from headway.mapper._mappers import id_problem as id_problem
from headway.mapper._mappers import ids_of as ids_of
from headway.mapper._mappers import listed as listed
from headway.mapper._mappers import mapper_name as mapper_name
from headway.mapper._mappers import reading as reading
from headway.mapper._predicates import Predicate as Predicate
from headway.mapper._predicates import Watch as Watch
from headway.mapper._predicates import When as When
from headway.mapper._predicates import all_of as all_of
from headway.mapper._predicates import any_of as any_of
from headway.mapper._predicates import content_changed as content_changed
from headway.mapper._predicates import data_changed as data_changed
from headway.mapper._predicates import deletion_begun as deletion_begun
from headway.mapper._predicates import metadata_changed as metadata_changed
from headway.mapper._predicates import none_of as none_of
from headway.mapper._predicates import not_own_writes as not_own_writes
from headway.mapper._predicates import predicate as predicate
from headway.mapper._predicates import status_changed as status_changed
from headway.mapper._predicates import watch as watch
from headway.mapper._predicates import watch_name as watch_name
from headway.mapper._ready import Reference as Reference
from headway.mapper._ready import change as change
from headway.mapper._ready import index as index
from headway.mapper._ready import index_parents as index_parents
from headway.mapper._ready import index_prefix as index_prefix
from headway.mapper._ready import itself as itself
from headway.mapper._ready import only_if as only_if
from headway.mapper._ready import owned as owned
from headway.mapper._ready import owner as owner
from headway.mapper._ready import reference as reference
from headway.mapper._ready import references as references
from headway.mapper._ready import same_name as same_name
from headway.mapper._ready import through as through
from headway.mapper._ready import union as union
from headway.mapper._same import changed_captures as changed_captures
from headway.mapper._same import same_watch as same_watch

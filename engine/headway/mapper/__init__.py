"""Whose concern: from a changed resource to the ids that want a reconcile.

A mapper is asked for the old state and for the new one, so it never has to remember who used to be concerned. Nothing
here waits or queues. Open `_mappers.py` first, then `_map_queue.py`.
"""

from headway.mapper._map_queue import MapItem as MapItem
from headway.mapper._map_queue import MapQueue as MapQueue
from headway.mapper._mappers import Mapper as Mapper
from headway.mapper._mappers import ids_of as ids_of
from headway.mapper._mappers import map_index as map_index
from headway.mapper._mappers import map_owner as map_owner
from headway.mapper._mappers import map_same_name as map_same_name
from headway.mapper._mappers import mapper_name as mapper_name

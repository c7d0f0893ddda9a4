"""A placement by shards: the keys of a controller are spread over the processes that run it.

`_placement.py` is what a program declares. `_ownership.py` says how a process gets its shards, and `_shards.py` what a
shard is in the work queue and in writes.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.sharding._placement import MAX_SHARDS as MAX_SHARDS
from headway.sharding._placement import Sharded as Sharded
from headway.sharding._placement import sharded as sharded

if TYPE_CHECKING:
    from headway.sharding._ownership import Shards as Shards
    from headway.sharding._shards import OneShard as OneShard
    from headway.sharding._shards import ShardQueue as ShardQueue
    from headway.sharding._shards import member_of as member_of
    from headway.sharding._shards import shard_of as shard_of

# Imported on first use: most programs have no such placement.
__getattr__ = imported_later(__name__, {"_ownership": "Shards", "_shards": "OneShard ShardQueue member_of shard_of"})

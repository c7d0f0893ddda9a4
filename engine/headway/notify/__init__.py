"""The cache of a program that runs no controller, and the notifications of what changes in it.

Nothing here reconciles or writes. Start with `_primed_cache.py`. `_keeper.py` keeps the cache primed, `_cuts.py` moves
the notifications from one revision to the next, and `_fetches.py` calls the functions of a program.
"""

from headway.notify._checks import Wanted as Wanted
from headway.notify._handle import Handle as Handle
from headway.notify._primed_cache import PrimedCache as PrimedCache
from headway.notify._primed_cache import open_primed as open_primed
from headway.notify._sources import BlockingQuery as BlockingQuery
from headway.notify._sources import Poll as Poll
from headway.notify._status import CacheStatus as CacheStatus
from headway.notify._updates import Updates as Updates

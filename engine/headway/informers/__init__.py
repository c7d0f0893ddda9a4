"""The watches that fill the caches: one informer for each type or projection of a process, from a sequence of streams.

Start with `_informers.py`. `_follower.py` resumes each stream after the one before, `_stream.py` is the grammar of one,
and `_patrol.py` asks the store whether a stream lags.
"""

from headway.informers._follower import Follower as Follower
from headway.informers._informers import Informers as Informers
from headway.informers._request import watch_request as watch_request
from headway.informers._stream import FalseBookmark as FalseBookmark
from headway.informers._stream import StreamBroken as StreamBroken
from headway.informers._stream import StreamMachine as StreamMachine

"""Hear all, and know it: one stream of one type, kept up across failures.

Nothing here holds resources. Open `_machine.py` first (the grammar of a stream), then `_follow.py`.
"""

from headway.watch._follow import WATCH_LIST as WATCH_LIST
from headway.watch._follow import Follower as Follower
from headway.watch._follow import Sink as Sink
from headway.watch._follow import watch_request as watch_request
from headway.watch._machine import FalseBookmark as FalseBookmark
from headway.watch._machine import StreamBroken as StreamBroken
from headway.watch._machine import StreamMachine as StreamMachine

"""gRPC on Trio for anyone: what a channel is, and the one inside a process.

Nothing here knows what a resource is. Open `_channel.py` first.
"""

from headway.rpc._channel import Channel as Channel
from headway.rpc._channel import Metadata as Metadata
from headway.rpc._in_process import InProcessChannel as InProcessChannel

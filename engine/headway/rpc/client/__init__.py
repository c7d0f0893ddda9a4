"""A channel over a network: connections to servers, and calls on them.

Read `_channel.py` first, then `_pool.py` (connections) and `_call.py`.
"""

from headway.rpc.client._admitted import Admits as Admits
from headway.rpc.client._admitted import UnaryCalls as UnaryCalls
from headway.rpc.client._call import ATTEMPTS as ATTEMPTS
from headway.rpc.client._call import RemoteCall as RemoteCall
from headway.rpc.client._call import Unsent as Unsent
from headway.rpc.client._channel import CHANNEL_LIMITS as CHANNEL_LIMITS
from headway.rpc.client._channel import Duplex as Duplex
from headway.rpc.client._channel import RemoteChannel as RemoteChannel
from headway.rpc.client._channel import open_channel as open_channel
from headway.rpc.client._foreign import certificate_refused as certificate_refused
from headway.rpc.client._pool import Pool as Pool

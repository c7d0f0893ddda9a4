"""Subscriptions: the service that sends them, and what `Client.subscribe` returns.

`headway.subscription` has what they deliver. Read `_service.py` and `_sources.py` for the server's side, and
`_follower.py` for the client's.
"""

from headway.subscribing._admission import SubscribePermissions as SubscribePermissions
from headway.subscribing._extension import subscribing_extension as subscribing_extension
from headway.subscribing._follower import BEGIN_ANEW as BEGIN_ANEW
from headway.subscribing._follower import Follower as Follower
from headway.subscribing._follower import Published as Published
from headway.subscribing._follower import Subscription as Subscription
from headway.subscribing._follower import SubscriptionBatch as SubscriptionBatch
from headway.subscribing._service import SUBSCRIBE as SUBSCRIBE
from headway.subscribing._service import OpenSubscriptions as OpenSubscriptions
from headway.subscribing._service import SubscribeService as SubscribeService
from headway.subscribing._wire import SubscribeDecoder as SubscribeDecoder
from headway.subscribing._wire import SubscribeEncoder as SubscribeEncoder

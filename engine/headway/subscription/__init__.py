"""The content of subscriptions: positions, items, whole commits of several types, and events of programs' topics.

Nothing here checks permissions or knows how an item travels. Read `_items.py` first, then `_topic.py`.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.subscription._topic import ANY_SUBJECT as ANY_SUBJECT
from headway.subscription._topic import MAX_SUBJECT as MAX_SUBJECT
from headway.subscription._topic import Topic as Topic
from headway.subscription._topic_log import TopicEvent as TopicEvent
from headway.subscription._topic_log import TopicLog as TopicLog
from headway.subscription._topic_log import TopicPosition as TopicPosition

if TYPE_CHECKING:
    from headway.subscription._items import Commit as Commit
    from headway.subscription._items import CommitMerge as CommitMerge
    from headway.subscription._items import Commits as Commits
    from headway.subscription._items import NewSnapshot as NewSnapshot
    from headway.subscription._items import Reached as Reached
    from headway.subscription._items import SnapshotComplete as SnapshotComplete
    from headway.subscription._items import SnapshotPart as SnapshotPart
    from headway.subscription._items import SubscriptionEvent as SubscriptionEvent
    from headway.subscription._items import SubscriptionItem as SubscriptionItem
    from headway.subscription._items import SubscriptionPosition as SubscriptionPosition
    from headway.subscription._items import subscription_position as subscription_position

# Programs declare topics, and most of them have no subscription.
_LATER = {
    "_items": (
        "Commit CommitMerge Commits NewSnapshot Reached SnapshotComplete SnapshotPart SubscriptionEvent "
        "SubscriptionItem SubscriptionPosition subscription_position"
    ),
}
__getattr__ = imported_later(__name__, _LATER)

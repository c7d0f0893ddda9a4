"""`Client.subscribe`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Annotated, Any

from headway import subscription
from headway.api import Channel, Metadata
from headway.base import Range, async_block, block_nursery, check_trio, checked
from headway.client._arguments import milliseconds
from headway.client._subjects import FORM, Subject, checked_subjects
from headway.client._unchanged import Unchanged
from headway.client._writes import Allow
from headway.errors import InvalidArgument
from headway.resource import ResourceType, pb
from headway.subscription import Topic

if TYPE_CHECKING:
    from headway.subscribing import Subscription


class Subscribing:
    """The part of a client that subscribes."""

    _channel: Channel
    _allow: Allow | None
    _metadata: Metadata | None
    _unchanged: Unchanged | None

    @async_block
    @checked(InvalidArgument, resume_after="batch.position", subjects=f"[{FORM}]")
    async def subscribe(
        self,
        subjects: Iterable[ResourceType[Any] | Topic[Any] | Subject],
        *,
        resume_after: subscription.SubscriptionPosition | None = None,
        progress_interval: Annotated[float, Range(0.001, 3600, unit="seconds")] = 1.0,
    ) -> AsyncIterator[Subscription]:
        """Subscribe: ``async with client.subscribe([TEAM, RATES]) as batches: async for batch in batches: ...``

        The first batch is a snapshot, unless ``resume_after`` is the position of an earlier subscription. Each later
        batch is one whole commit, or a further snapshot if the changes in between are no longer known. A connection
        that is lost is repaired; see `Subscription`. While nothing changes in the subjects, the position advances
        every ``progress_interval`` seconds.
        """
        check_trio("subscribe")
        from headway._gen.headway.subscribe import v1 as subscribe_pb
        from headway.subscribing import Follower, Subscription

        wanted = checked_subjects(subjects)
        for each in wanted:
            if self._allow is not None and isinstance(each.source, ResourceType):
                self._allow(pb.WatchListRequest(type=each.source.name.message()))
        request = subscribe_pb.SubscribeRequest(
            subjects=[each.message() for each in wanted], progress_interval_ms=milliseconds(progress_interval)
        )
        # The caller may learn anything from it, at any time.
        self._unchanged = None
        follower = Follower(self._channel, request, self._metadata, resume_after)
        made = Subscription(follower, wanted)
        async with block_nursery() as nursery:
            nursery.start_soon(follower.run, name="subscription")
            yield made

"""Positions in what a subscription delivers: in the store, and in each topic. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from typing_extensions import override

from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.base import repr_text
from headway.errors import InvalidArgument, PayloadError
from headway.protobuf import decode, encode
from headway.resource import Position, position


class TopicPosition(NamedTuple):
    """A position in the events of a topic.

    Attributes:
        topic: the name of the topic.
        incarnation: identifies one lifetime of the topic: it changes when the process is restarted, and by `reset`.
        number: the number of the call of `publish`.
    """

    topic: str
    incarnation: str
    number: int


class SubscriptionPosition(NamedTuple):
    """A position in what a subscription delivers. ``str(position)`` is a line of text that `parse` reads.

    Attributes:
        store: the position in the store; None without a type.
        topics: the positions in the topics.
        selection: identifies the subjects and the caller's rights. A subscription with others begins with a snapshot.
    """

    store: Position | None = None
    topics: tuple[TopicPosition, ...] = ()
    selection: str = ""

    @override
    def __str__(self) -> str:
        return base64.urlsafe_b64encode(encode(self.message())).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> SubscriptionPosition:
        """Return the position that ``str(position)`` has written. Raise InvalidArgument for any other text."""
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            return subscription_position(decode(subscribe_pb.Position, data))
        except (binascii.Error, PayloadError, TypeError, ValueError):
            raise InvalidArgument(
                f"{repr_text(text)} is not a position of a subscription: give what str(batch.position) has returned"
            ) from None

    def message(self) -> subscribe_pb.Position:
        """Return this position as a wire message."""
        return subscribe_pb.Position(
            store=None if self.store is None else self.store.message(),
            topics=[
                subscribe_pb.TopicPosition(topic=each.topic, incarnation=each.incarnation, number=each.number)
                for each in self.topics
            ],
            selection=self.selection,
        )


def subscription_position(message: subscribe_pb.Position) -> SubscriptionPosition:
    """Return the position in a wire message."""
    topics = tuple(TopicPosition(each.topic, each.incarnation, each.number) for each in message.topics)
    return SubscriptionPosition(position(message.store), topics, message.selection)

"""The fence in a request."""

from __future__ import annotations

from headway.resource import pb
from headway.service._refusals import invalid
from headway.storage import Fence


def fence_of(message: pb.Fence | None) -> Fence | None:
    """The store's form of it, or None for a write that is no controller's."""
    if message is None:
        return None
    if not message.controller or not message.term:
        raise invalid("fence needs a controller and the term that Raise answered with")
    return Fence(message.controller, message.member, message.term, message.number)

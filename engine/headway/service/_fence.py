"""Whose view a write is made on: the fence and the store id in a request."""

from __future__ import annotations

from headway.resource import pb
from headway.service import _bounds
from headway.service._refusals import invalid, precondition
from headway.storage import Backend, Fence


def fence_of(message: pb.Fence | None) -> Fence | None:
    """The store's form of it, or None for a write that is no controller's."""
    if message is None:
        return None
    if not message.controller:
        raise invalid("fence.controller is required: send the fence that Raise answered with")
    if not message.term:
        raise invalid("fence.term 0 is no term: send the fence that Raise answered with")
    _bounds.check_fence(message)
    return Fence(message.controller, message.member, message.term, message.number)


def check_store(backend: Backend, store_id: str) -> None:
    """Refuse a write whose writer looks at another store, such as the one that this one was restored from."""
    _bounds.check_text("store_id", store_id)
    if store_id and store_id != (here := backend.position.store_id):
        raise precondition(f"store_id: the write is for store {store_id}, and this is {here}; read again from this one")


async def check_fence(backend: Backend, fence: Fence | None) -> None:
    """Refuse a write that would change nothing as one that would: its writer has been superseded all the same."""
    if fence is not None:
        await backend.commit((), fence)

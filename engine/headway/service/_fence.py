"""Whose view a write is made on: the fence and the store id in a request."""

from __future__ import annotations

from headway.resource import pb
from headway.service._refusals import invalid, precondition
from headway.storage import Backend, Fence


def fence_of(message: pb.Fence | None) -> Fence | None:
    """The store's form of it, or None for a write that is no controller's."""
    if message is None:
        return None
    if not message.controller or not message.term:
        raise invalid("fence needs a controller and the term that Raise answered with")
    return Fence(message.controller, message.member, message.term, message.number)


def check_store(backend: Backend, store_id: str) -> None:
    """Refuse a write whose writer looks at another store, such as the one that this one was restored from."""
    here = backend.position.store_id
    if store_id and store_id != here:
        raise precondition(f"the write is for store {store_id}; this is {here}")

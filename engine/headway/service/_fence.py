"""Whose view a write is made on: the fence and the store id in a request."""

from __future__ import annotations

from headway.resource import pb
from headway.service._bounds import check_text
from headway.service._lease_bounds import MAX_NUMBER, check_range, check_scope
from headway.service._refusals import invalid, precondition
from headway.storage import Backend, Fence, FenceLowered, UnknownTerm

_HINT = ": send the fence that Raise answered with"


def fence_of(message: pb.Fence | None) -> Fence | None:
    """The store's form of it, or None for a write that is no controller's."""
    if message is None:
        return None
    if not message.controller:
        raise invalid(f"fence.controller is required{_HINT}")
    if not message.term:
        raise invalid(f"fence.term 0 is no term{_HINT}")
    check_scope(message.controller, message.member, "fence.")
    check_range("fence.term", message.term, 1, MAX_NUMBER, _HINT)
    check_range("fence.number", message.number, 0, MAX_NUMBER, _HINT)
    return Fence(message.controller, message.member, message.term, message.number)


def check_store(backend: Backend, store_id: str) -> None:
    """Refuse a write whose writer looks at another store, such as the one that this one was restored from."""
    if not store_id:
        return
    check_text("store_id", store_id)
    if store_id != (here := backend.position.store_id):
        raise precondition(f"store_id: the write is for store {store_id}, and this is {here}; read again from this one")


async def check_fence(backend: Backend, fence: Fence | None) -> None:
    """Refuse a write that would change nothing as one that would: its writer has been superseded all the same."""
    if fence is not None:
        await backend.commit((), fence)


async def check_granted(backend: Backend, controller: str, member: str, term: int) -> None:
    """Refuse a term that the store has never granted to this controller and member; 0 asks for the next one.

    The store grants the terms, one above the other. A caller who could raise a fence to any term could leave none above
    it: nobody would ever hold the lease again.
    """
    if not term:
        return
    try:
        await backend.commit((), Fence(controller, member, term, MAX_NUMBER))
    except FenceLowered:
        # It was granted, and the lease has had a higher term since: that is for the store to refuse.
        return
    except UnknownTerm as error:
        raise UnknownTerm(f"{error}: raise in the term of the lease, or with term 0 to begin the next one") from None

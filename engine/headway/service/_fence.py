"""Checks of the fence and the store id in a request: they identify the state that a write is based on."""

from __future__ import annotations

from headway.resource import pb
from headway.service._bounds import check_text
from headway.service._lease_bounds import MAX_NUMBER, check_range, check_scope
from headway.service._refusals import invalid, precondition
from headway.storage import Backend, Fence, FenceLowered, UnknownTerm

_HINT = ": send the fence that Raise answered with"


def fence_of(message: pb.Fence | None) -> Fence | None:
    """Return the store's form of a fence, or None for a write without one."""
    if message is None:
        return None
    if not message.controller:
        raise invalid(f"fence.controller is required{_HINT}")
    if not message.term:
        raise invalid(f"fence.term must not be 0{_HINT}")
    check_scope(message.controller, message.member, "fence.")
    check_range("fence.term", message.term, 1, MAX_NUMBER, _HINT)
    check_range("fence.number", message.number, 0, MAX_NUMBER, _HINT)
    return Fence(message.controller, message.member, message.term, message.number)


def check_store(backend: Backend, store_id: str) -> None:
    """Refuse a write that is based on another store, such as the one that this store was restored from."""
    if not store_id:
        return
    check_text("store_id", store_id)
    if store_id != (here := backend.position.store_id):
        raise precondition(f"store_id: the write is for store {store_id}, but this is {here}; read again")


async def check_fence(backend: Backend, fence: Fence | None) -> None:
    """Refuse the write of a superseded run even if the write changes nothing."""
    if fence is not None:
        await backend.commit((), fence)


async def check_granted(backend: Backend, controller: str, member: str, term: int) -> None:
    """Refuse a term that the store never granted to this controller and member. Term 0 asks for the next one.

    The store grants terms in increasing order. A caller who could raise a fence to an arbitrary term could use up all
    terms, and then nobody could ever acquire the lease again.
    """
    if not term:
        return
    try:
        await backend.commit((), Fence(controller, member, term, MAX_NUMBER))
    except FenceLowered:
        # The term was granted, but the lease has had a higher one since. The store will refuse it.
        return
    except UnknownTerm as error:
        raise UnknownTerm(f"{error}: raise in the term of the lease, or with term 0 to begin the next one") from None

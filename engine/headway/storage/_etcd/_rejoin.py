"""Whether what is in etcd goes on from what a mirror has. Pure."""

from __future__ import annotations

from headway.resource import Position
from headway.storage._etcd._mirror import Mirror, OtherHistory
from headway.storage._etcd._records import Head, Timeline


def check_same_history(seen: Position, store_id: str | None, timeline: Timeline | None, head: Head | None) -> None:
    """Raise OtherHistory unless ``seen``, shown to somebody before, is of the history that etcd has now.

    A cluster that was restored from a backup has the store's id too. It is found by its revision, when that is lower;
    and when it isn't any more, because whoever opened it first has begun an incarnation below what was seen. What is
    below every incarnation that is still known is not found by them.
    """
    if store_id != seen.store_id:
        raise OtherHistory(f"the store's id was {seen.store_id} and is {store_id or 'gone'}")
    if timeline is None or head is None:
        raise OtherHistory("the store's anchor or its head is gone")
    if head.revision < seen.revision:
        raise OtherHistory(f"the store stands at revision {head.revision} and has been at {seen.revision}")
    left = timeline.lefts().get(seen.session, timeline.oldest - 1)
    if left is not None and seen.revision > left:
        raise OtherHistory(f"revision {seen.revision} of incarnation {seen.session} is not in this history")


def check_standing(mirror: Mirror, head: Head) -> bool:
    """Whether nothing was committed since the mirror's head. Raises OtherHistory when that is another commit."""
    if head.revision > mirror.head.revision:
        return False
    if head != mirror.head:
        raise OtherHistory(f"the commit at revision {head.revision} is another one than it was")
    return True

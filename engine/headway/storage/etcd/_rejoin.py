"""Checks that etcd still has the history that a mirror has followed. Pure."""

from __future__ import annotations

from headway.resource import Position
from headway.storage.etcd._mirror import Mirror, OtherHistory
from headway.storage.etcd._records import Head, Timeline


def check_same_history(seen: Position, store_id: str | None, timeline: Timeline | None, head: Head | None) -> None:
    """Raise OtherHistory unless ``seen``, a position returned before, is in the history that etcd has now.

    A cluster that was restored from a backup has the same store id. This check detects it by its lower revision. If its
    revision is no longer lower, the first engine to open it has begun a session below ``seen``, which shows the same.
    A position below all known sessions cannot be checked by them.
    """
    if store_id != seen.store_id:
        raise OtherHistory(f"expected store id {seen.store_id}, got {store_id or 'none'}")
    if timeline is None or head is None:
        raise OtherHistory("the store's anchor key or head key is missing")
    if head.revision < seen.revision:
        raise OtherHistory(f"the store is at revision {head.revision}, below {seen.revision}, which it had reached")
    left = timeline.lefts().get(seen.session, timeline.oldest - 1)
    if left is not None and seen.revision > left:
        raise OtherHistory(f"revision {seen.revision} of session {seen.session} is not in this history")


def check_standing(mirror: Mirror, head: Head) -> bool:
    """Return True if nothing was committed since the mirror's head. Raise OtherHistory if the head differs."""
    if head.revision > mirror.head.revision:
        return False
    if head != mirror.head:
        raise OtherHistory(f"etcd now has another commit at revision {head.revision}")
    return True

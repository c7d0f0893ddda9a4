"""Whether a watch may go on from a position."""

from __future__ import annotations

from collections.abc import Mapping

from headway.errors import HistoryCompacted
from headway.resource import Position
from headway.storage._errors import StoreMismatch


def check_resumable(wanted: Position, here: Position, incarnations: Mapping[str, int | None], oldest: int = 0) -> None:
    """Raise an error if a watch cannot resume after ``wanted``.

    Raises StoreMismatch if it is not a position of this store, and HistoryCompacted if that can no longer be decided,
    or if it is in the store's future.

    ``incarnations`` holds the openings of the store with the revision at which each was left (None: it is the
    present one), but for those that have been forgotten: all before the one that began with revision ``oldest``, 0
    where none has been. A position above the revision at which its incarnation was left is of a history that this store
    doesn't have: an older copy of the file has been put in its place. So is one of no incarnation that is known, unless
    it is below them all: it may be of one that was forgotten.
    """
    if wanted.store_id != here.store_id:
        raise StoreMismatch(f"position {wanted.revision} is of store {wanted.store_id}; this is {here.store_id}")
    left = incarnations.get(wanted.session, oldest - 1)
    if left is not None and wanted.revision > left:
        raise StoreMismatch(
            f"position {wanted.revision} is of a history of store {here.store_id} that this copy doesn't have"
        )
    if wanted.session not in incarnations:
        raise HistoryCompacted(f"position {wanted.revision} is of an opening that the store has forgotten since")
    if wanted.revision > here.revision:
        raise HistoryCompacted(f"position {wanted.revision} is above {here.revision}, where the store stands")

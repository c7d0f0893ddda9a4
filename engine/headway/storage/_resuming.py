"""The resumption of watches: the checks of their positions. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headway.errors import HistoryCompacted
from headway.resource import Kind, Position, Within
from headway.storage._log import CommitLog, Cursor
from headway.storage._operations import StoreMismatch


def resume(log: CommitLog, kind: Kind, within: Within, after: int, floor: int | None = None) -> Cursor:
    """Return the cursor of a watch that resumes after a revision. Raise HistoryCompacted if it would miss changes.

    A watch filtered by metadata also needs the states before the changes. An older program may not have kept them.
    If something else keeps the changes after ``floor``, the cursor may be a lagging one of the log.
    """
    if within.metadata and after < log.formers_after:
        raise HistoryCompacted(
            f"a watch by metadata cannot resume after revision {after}: the states before changes are kept after "
            f"{log.formers_after}"
        )
    if floor is None or after >= log.floor:
        return log.cursor(kind, after)
    if after < floor:
        raise HistoryCompacted(f"history after revision {after} was compacted: changes are kept after {floor}")
    return log.lagging(kind, after)


def check_resumable(wanted: Position, here: Position, sessions: Mapping[str, int | None], oldest: int = 0) -> None:
    """Raise an error if a watch cannot resume after ``wanted``.

    A position above the last revision of its session belongs to a history that this store does not have: the file was
    replaced by an older copy. The same is true for a position of an unknown session, unless it is below all known
    sessions. Then its session may have been forgotten.

    Args:
        wanted: the position to resume after.
        here: the store's current position.
        sessions: the sessions of the store with the last revision of each, None for the current one. Forgotten
            sessions are missing.
        oldest: the first revision of the oldest known session. All sessions before it have been forgotten.
            0 if none has been.

    Raises:
        StoreMismatch: the position does not belong to this store.
        HistoryCompacted: the position's session has been forgotten, or the position is above the store's revision.
    """
    if wanted.store_id != here.store_id:
        raise StoreMismatch(f"position {wanted.revision} is of store {wanted.store_id}, expected store {here.store_id}")
    left = sessions.get(wanted.session, oldest - 1)
    if left is not None and wanted.revision > left:
        raise StoreMismatch(f"position {wanted.revision} is not in the history of this copy of store {here.store_id}")
    if wanted.session not in sessions:
        raise HistoryCompacted(f"position {wanted.revision} belongs to a session that the store has forgotten")
    if wanted.revision > here.revision:
        raise HistoryCompacted(f"position {wanted.revision} is above {here.revision}, the store's last revision")

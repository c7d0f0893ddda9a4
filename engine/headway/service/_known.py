"""Whether what a caller has been told before is of this store's history."""

from __future__ import annotations

from headway.errors import HistoryGone
from headway.resource import Kind, Position
from headway.storage import Backend, Within


async def check_known(backend: Backend, kind: Kind, known: Position | None) -> None:
    """Raise StoreMismatch when the store has never stood at ``known``; None: nothing is asked.

    What is above where the store stands now, or so old that its opening or the changes after it are not kept, is not
    found out.
    """
    if known is None:
        return
    try:
        watch = await backend.watch(kind, Within(), known)
    except HistoryGone:
        return
    watch.close()

"""Whether what a caller has been told before is of this store's history, and of the same versions of a kind."""

from __future__ import annotations

from headway.errors import HistoryCompacted
from headway.resource import ANY_VERSIONS, Kind, Position, TypeName
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
    except HistoryCompacted:
        return
    watch.close()


def check_versions(type: TypeName, contained: str, resume_after: Position | None) -> None:
    """Raise HistoryCompacted if a watch of the type would go on from one that contained other versions of the kind.

    Converters have been declared or removed since. What changed before is not told again, so a watch that went on
    would lack the resources that are visible only now, and keep those that are not visible any more.
    """
    if resume_after is None or resume_after.versions in (ANY_VERSIONS, contained):
        return
    raise HistoryCompacted(
        f"position {resume_after.revision} is of a watch of {type} that contained what is stored as "
        f"{resume_after.versions or type.version}; this one contains what is stored as {contained or type.version}, so "
        "that it must begin with a snapshot"
    )

"""Checks that a position known to a caller belongs to this store's history and to the same versions of a kind."""

from __future__ import annotations

from headway.errors import HistoryCompacted
from headway.resource import ANY_VERSIONS, Kind, Position, TypeName
from headway.storage import Backend, Within


async def check_known(backend: Backend, kind: Kind, known: Position | None) -> None:
    """Raise StoreMismatch if the store has never been at ``known``. None skips the check.

    Two kinds of positions cannot be checked and pass: those above the store's current one, and those so old that their
    session or the changes since are no longer kept.
    """
    if known is None:
        return
    try:
        watch = await backend.watch(kind, Within(), known)
    except HistoryCompacted:
        return
    watch.close()


def check_versions(type: TypeName, contained: str, resume_after: Position | None) -> None:
    """Raise HistoryCompacted if a watch would resume one that contained other versions of the kind.

    Converters have been declared or removed since then. Earlier changes are not sent again. A resumed watch would
    therefore lack the resources that have become visible, and keep those that no longer are.
    """
    if resume_after is None or resume_after.versions in (ANY_VERSIONS, contained):
        return
    raise HistoryCompacted(
        f"position {resume_after.revision} belongs to a watch of {type} that contained versions "
        f"{resume_after.versions or type.version}; this one contains versions {contained or type.version}, so "
        "it must begin with a snapshot"
    )

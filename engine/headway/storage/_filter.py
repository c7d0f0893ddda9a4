"""The filter of a watch: the changes of its part of a kind. Pure.

A change of the metadata can make a resource enter or leave the part. A resource that leaves it counts as deleted, in
the last state that was in the part. The log keeps that state. A resource that enters it needs no earlier state: to a
watcher, a state of an unknown resource is a creation.
"""

from __future__ import annotations

from collections.abc import Mapping

from headway.resource import Change, Changes, Within, pb


def filtered(changes: Changes, within: Within, formers: Mapping[int, pb.Resource]) -> Changes | None:
    """Return the changes within a part of a kind, or None.

    Args:
        formers: by the index of a change, the state before it if that had other metadata.
    """
    kept: list[Change] = []
    for index, change in enumerate(changes.changes):
        if within.admits(change.resource):
            kept.append(change)
        elif formers and (former := formers.get(index)) is not None and within.admits(former):
            kept.append(change._replace(resource=former, deleted=True))
    return Changes(ending_commits(kept)) if kept else None


def ending_commits(kept: list[Change]) -> list[Change]:
    """Return the remaining changes with `more` set anew: it says whether another change of the same commit follows."""
    for index, change in enumerate(kept):
        more = index + 1 < len(kept) and kept[index + 1].revision == change.revision
        if more != change.more:
            kept[index] = change._replace(more=more)
    return kept

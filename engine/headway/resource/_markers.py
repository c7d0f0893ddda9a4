"""The reserved metadata keys: finalizers and the mark of a resource that is being deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

FINALIZERS = "finalizers"
DELETION_TIMESTAMP = "deletionTimestamp"


def finalizers(metadata: Mapping[str, str]) -> frozenset[str]:
    """The finalizers that hold a resource."""
    return frozenset(metadata.get(FINALIZERS, "").split())


def finalizers_problem(names: Iterable[str]) -> str | None:
    """What is wrong with finalizers that are to be set, or None: the text that keeps them has blanks between."""
    if isinstance(names, str):
        return f"finalizers {names!r} must be several names, such as [{names!r}]"
    for name in names:
        if name.split() != [name]:
            return f"finalizer {name!r} must be a name without blanks, such as 'staff.cleanup'"
    return None


def set_finalizers(metadata: MutableMapping[str, str], names: Iterable[str]) -> None:
    """Replace the finalizers. The text is sorted, so that the same set is always the same bytes."""
    text = " ".join(sorted(set(names)))
    if text:
        metadata[FINALIZERS] = text
    else:
        metadata.pop(FINALIZERS, None)


def is_marked(metadata: Mapping[str, str]) -> bool:
    """Whether the resource is marked for deletion."""
    return DELETION_TIMESTAMP in metadata

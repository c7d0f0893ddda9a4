"""The reserved metadata keys: the finalizers, and the timestamp that marks a resource for deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

FINALIZERS = "finalizers"
DELETION_TIMESTAMP = "deletionTimestamp"


def finalizers(metadata: Mapping[str, str]) -> frozenset[str]:
    """Return the finalizers of a resource."""
    return frozenset(metadata.get(FINALIZERS, "").split())


def finalizers_problem(names: Iterable[str]) -> str | None:
    """Return the problem with finalizers to be set, or None if they are valid.

    A name must not contain blanks, since the metadata value separates the names by blanks.
    """
    if isinstance(names, str):
        return f"finalizers {names!r} must be a list or set of names, such as [{names!r}]"
    for name in names:
        if name.split() != [name]:
            return f"finalizer {name!r} must be a name without blanks, such as 'staff.cleanup'"
    return None


def set_finalizers(metadata: MutableMapping[str, str], names: Iterable[str]) -> None:
    """Replace the finalizers. The stored names are sorted, so that equal sets have equal bytes."""
    text = " ".join(sorted(set(names)))
    if text:
        metadata[FINALIZERS] = text
    else:
        metadata.pop(FINALIZERS, None)


def is_marked(metadata: Mapping[str, str]) -> bool:
    """Return True if the resource is marked for deletion."""
    return DELETION_TIMESTAMP in metadata

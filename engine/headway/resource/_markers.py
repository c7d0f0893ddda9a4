"""The reserved metadata keys: finalizers and the mark of a resource that is being deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

FINALIZERS = "finalizers"
DELETION_TIMESTAMP = "deletionTimestamp"


def finalizers(metadata: Mapping[str, str]) -> frozenset[str]:
    """The finalizers that hold a resource."""
    return frozenset(metadata.get(FINALIZERS, "").split())


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

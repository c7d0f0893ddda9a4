"""The metadata keys with a meaning of their own: the finalizers of a resource, and its mark for deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

FINALIZERS = "finalizers"
"""The metadata key of the finalizers."""

DELETION_TIMESTAMP = "deletionTimestamp"
"""The metadata key of the time at which a resource was marked for deletion."""


def finalizers(metadata: Mapping[str, str]) -> frozenset[str]:
    """Return the finalizers of a resource."""
    return frozenset(metadata.get(FINALIZERS, "").split())


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

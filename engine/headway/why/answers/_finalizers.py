"""The finalizers of Headway's own controllers. Their names are not those of the controllers. No I/O."""

from __future__ import annotations

from typing import NamedTuple

from headway.peering import PEERING, PEERING_FINALIZER, STREAM_FINALIZER
from headway.resource import EMPTIED_FINALIZER, NAMESPACE, PARTITION, Kind


class OwnFinalizer(NamedTuple):
    """A finalizer of Headway: the kind that has it, the controller that removes it, and what that waits for."""

    name: str
    kind: Kind
    controller: str
    once: str


OWN_FINALIZERS = (
    OwnFinalizer(EMPTIED_FINALIZER, NAMESPACE.kind, "headway/namespaces", "once nothing is left in the namespace"),
    OwnFinalizer(EMPTIED_FINALIZER, PARTITION.kind, "headway/partitions", "once nothing is left in the partition"),
    OwnFinalizer(PEERING_FINALIZER, PEERING.kind, "headway/peerings", "once its copies and their partition are gone"),
    OwnFinalizer(STREAM_FINALIZER, PEERING.kind, "headway/peer-streams", "once the other side has been notified"),
)


def own_finalizer(name: str, kind: Kind) -> OwnFinalizer | None:
    """Return Headway's finalizer of this name on resources of this kind, or None."""
    return next((each for each in OWN_FINALIZERS if (each.name, each.kind) == (name, kind)), None)

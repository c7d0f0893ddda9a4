"""The type of peerings, and the names of the partitions that hold what a peering has copied. Pure."""

from __future__ import annotations

from headway._gen.headway.peering.v1 import Peering
from headway.resource._hooks import Hooks
from headway.resource._ids import MAX_NAME, Scope
from headway.resource._resource import Resource
from headway.resource._types import ResourceType

COPIES_PREFIX = "peer-"
"""The prefix of the partitions with copies. The rest of the name is that of the peering."""

MAX_PEERING_NAME = MAX_NAME - len(COPIES_PREFIX)
"""The maximum length of a peering's name, so that its partition has a valid name."""

PEERING_FINALIZER = "headway.peering"
"""The finalizer that keeps a peering, while it is being deleted, until its copies and its partition are gone."""

STREAM_FINALIZER = "headway.peer-stream"
"""The finalizer that keeps a peering, while it is being deleted, until the other side has been notified."""


def copies_partition(peering: str) -> str:
    """Return the name of the partition with the copies of a peering."""
    return COPIES_PREFIX + peering


def peering_of(partition: str) -> str:
    """Return the name of the peering whose copies a partition holds; empty for any other partition."""
    return partition.removeprefix(COPIES_PREFIX) if partition.startswith(COPIES_PREFIX) else ""


def _hold(peering: Resource[Peering]) -> None:
    """Add the finalizer to a peering that is not being deleted."""
    if not peering.is_deleting:
        peering.finalizers = peering.finalizers | {PEERING_FINALIZER}


PEERING = ResourceType(
    "peering",
    "v1",
    "Peering",
    Peering,
    scope=Scope.CLUSTER,
    hooks=Hooks(mutate=_hold),
    columns={"ROLE": "role", "EXPORTS": "exports", "PEER": "peer_name"},
)
"""The type of peerings. The service checks their content, because it knows the types that may be exported."""

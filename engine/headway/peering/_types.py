"""The type of peerings, the names of the partitions with their copies, and the state of a peering. Pure."""

from __future__ import annotations

import enum

from headway._gen.headway.peering.v1 import Export as Export
from headway._gen.headway.peering.v1 import Peering as Peering
from headway._gen.headway.peering.v1 import Role as Role
from headway.resource import MAX_NAME, Condition, ConditionState, Hooks, Resource, ResourceType, Scope, builtin

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


PEERING = builtin(
    ResourceType(
        "peering",
        "v1",
        "Peering",
        Peering,
        scope=Scope.CLUSTER,
        hooks=Hooks(mutate=_hold),
        columns={"ROLE": "role", "EXPORTS": "exports", "PEER": "peer_name"},
    )
)
"""The type of peerings. `PeeringRules` checks their content, because it knows the types that may be exported."""

STATUS_KEY = "headway.peering"
"""The key of the status about the token and its exchange."""

STREAM_KEY = STREAM_FINALIZER
"""The key of the status about the stream and the copies. The finalizer has the same name."""

EXCHANGED = "Exchanged"
"""The condition in `STATUS_KEY`: TRUE once the token was exchanged, FALSE with a reason if the last attempt failed."""

PREPARED = "Prepared"
"""The condition in `STATUS_KEY`: TRUE once the partition for the copies exists, FALSE if it cannot be created."""

CONNECTED = "Connected"
"""The condition in `STREAM_KEY`: TRUE while a stream is open, FALSE with a reason after one has ended."""

TERMINATED = "Terminated"
"""The condition in `STREAM_KEY`: TRUE once the other side has deleted its peering."""


class PeeringState(enum.Enum):
    """The state of a peering."""

    PENDING = "pending"
    """A token was made, or can be made, and has not been exchanged yet."""

    ESTABLISHING = "establishing"
    """The token is being exchanged, or was exchanged and no stream has been open yet."""

    ACTIVE = "active"
    """A stream is open."""

    FAILING = "failing"
    """The exchange or the stream has failed. The conditions say why, and the engine tries again."""

    TERMINATED = "terminated"
    """The other side has deleted its peering. Only deleting this one remains."""

    DELETING = "deleting"
    """This peering is being deleted, with its copies."""


def state_of(peering: Resource[Peering]) -> PeeringState:
    """Return the state of a peering."""
    if peering.is_deleting:
        return PeeringState.DELETING
    if _is(peering, STREAM_KEY, TERMINATED, ConditionState.TRUE):
        return PeeringState.TERMINATED
    if _is(peering, STREAM_KEY, CONNECTED, ConditionState.TRUE):
        return PeeringState.ACTIVE
    failing = [(STREAM_KEY, CONNECTED), (STATUS_KEY, PREPARED), (STATUS_KEY, EXCHANGED)]
    if any(_is(peering, key, type, ConditionState.FALSE) for key, type in failing):
        return PeeringState.FAILING
    if peering.data.role is Role.ACCEPTS and not _is(peering, STATUS_KEY, EXCHANGED, ConditionState.TRUE):
        return PeeringState.PENDING
    return PeeringState.ESTABLISHING


def _is(peering: Resource[Peering], key: str, type: str, state: ConditionState) -> bool:
    found = condition_of(peering, key, type)
    return found is not None and found.state is state


def condition_of(peering: Resource[Peering], key: str, type: str) -> Condition | None:
    """Return a condition of a status, or None if it is missing."""
    status = peering.status.get(key)
    return None if status is None else next((each for each in status.conditions if each.type == type), None)

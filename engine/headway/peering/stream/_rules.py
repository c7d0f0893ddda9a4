"""The rules that both sides of a peer stream share: limits, breaches, exports, positions, the form of a copy. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from headway._gen.headway.peering import v1 as wire
from headway.base import Bucket
from headway.peering._types import peering_of
from headway.peering._write_rules import MAX_EXPORTS
from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    MAX_NAME,
    Key,
    Position,
    TypeName,
    pb,
    quoted,
    resource_key,
    type_name,
)
from headway.subscription import SubscriptionPosition

ORIGIN_UID = "originUid"
"""The metadata key of a copy that holds the uid of its original."""

ORIGIN_VERSION = "originVersion"
"""The metadata key of a copy that holds the version of its original."""

ORIGIN_PARTITION = "originPartition"
"""The metadata key of a copy that holds the partition of its original. The namespace and the name are the same."""

ORIGIN_DELETION = "originDeletionTimestamp"
"""The metadata key of a copy whose original is marked for deletion. It holds the time of the mark."""

_NOT_COPIED = frozenset((FINALIZERS, ORIGIN_UID, ORIGIN_VERSION, ORIGIN_PARTITION, ORIGIN_DELETION))

HEARTBEAT = 15.0
"""The interval, in seconds, at which each side sends a Heartbeat."""

SILENCE = 120.0
"""The time, in seconds, after which a stream without a message ends."""


class Breach(Exception):
    """The peer has broken a rule of the protocol. The stream ends, and the text names the rule for both sides."""


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """The limits on a peer. Sizes are in bytes, times in seconds.

    Attributes:
        exports: the number of exports of one peering.
        copies: the number of resources that a peer may store here.
        namespaces: the number of namespaces that are created for the copies. Those of removed copies stay.
        refused: the number of refused resources that are remembered, to be sent again.
        commit: the number of changes of one commit that arrives in several messages.
        commit_size: the size of the payloads of such a commit.
        subscriptions: the number of subscriptions that a peer may make at once. Each second allows another one.
        window: the number of responses that may wait for an acknowledgement.
        window_size: the size of these responses. A single one may be larger.
        batch: the number of resources in one message.
        batch_size: the size of the resources of one message, about.
        batch_fields: the number of fields in one message, about. A server decodes up to 12,000.
        resource_size: the size of one resource, about. A larger one is not sent: no server would accept the message.
        schema_size: the size of the schema of one type.
        schemas_size: the size of the schemas of all exported types.
    """

    exports: int = MAX_EXPORTS
    copies: int = 1_000_000
    namespaces: int = 1_000_000
    refused: int = 1000
    commit: int = 1000
    commit_size: int = 64 << 20
    subscriptions: int = 20
    window: int = 32
    window_size: int = 4 << 20
    batch: int = 240
    batch_size: int = 96 << 10
    batch_fields: int = 8000
    resource_size: int = 3 << 20
    schema_size: int = 64 << 10
    schemas_size: int = 512 << 10


def spend(bucket: Bucket, now: float, what: str) -> None:
    """Spend a token of a bucket that gets one each second. Raise Breach if none is left."""
    if not bucket.spend(now):
        raise Breach(f"too many {what}: at most {bucket.burst:g} at once, and then one a second")


class Exported(NamedTuple):
    """A type in a partition and a namespace, or in all of them (``*``)."""

    type: TypeName
    partition: str
    namespace: str

    def covers(self, type: TypeName, key: Key) -> bool:
        """Return True if a resource belongs to this export. A copy never does."""
        return (
            self.type == type
            and self.partition in ("*", key[0])
            and self.namespace in ("*", key[1])
            and not peering_of(key[0])
        )

    def message(self) -> wire.Export:
        """Return this export as a wire message."""
        tenancy = pb.Tenancy(partition=self.partition, namespace=self.namespace)
        return wire.Export(type=self.type.message(), tenancy=tenancy)

    def __str__(self) -> str:
        return f"{self.type} in {self.partition}/{self.namespace}"


class Coverage:
    """The exports of a subscription. It remembers the tenancies that belong to them."""

    def __init__(self, exports: Iterable[Exported] = ()) -> None:
        self.exports = tuple(exports)
        # The name of the type, or None if the tenancy does not belong to them.
        self._known: dict[tuple[str, str, str, str, str], TypeName | None] = {}

    def covered(self, type: pb.Type, partition: str, namespace: str) -> TypeName | None:
        """Return the name of a type if its resources in a tenancy belong to one of the exports; None otherwise."""
        place = (type.group, type.group_version, type.kind, partition, namespace)
        if place not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            name, key = TypeName(*place[:3]), (partition, namespace, "")
            self._known[place] = name if any(each.covers(name, key) for each in self.exports) else None
        return self._known[place]


_REMEMBERED = 1000


def exports_of(messages: Iterable[wire.Export], limit: int) -> tuple[Exported, ...]:
    """Return the exports in wire messages, sorted. Raise Breach if one is not valid, or if there are too many."""
    found: list[Exported] = []
    for message in messages:
        if len(found) == limit:
            raise Breach(f"more than {limit} exports")
        tenancy, name = message.tenancy or pb.Tenancy(), type_name(message.type)
        if not all(name) or max(map(len, (*name, tenancy.partition, tenancy.namespace))) > MAX_NAME:
            raise Breach(f"an export of type {quoted(str(name))} has an incomplete type, or a name that is too long")
        if peering_of(tenancy.partition):
            raise Breach(f"an export names partition {tenancy.partition}, which has copies")
        found.append(Exported(name, tenancy.partition or "*", tenancy.namespace or "*"))
    return tuple(sorted(set(found)))


def peer_position(position: Position, selection: str) -> wire.PeerPosition:
    """Return a position of the store as the stream sends it."""
    return wire.PeerPosition(
        store_id=position.store_id, session=position.session, revision=position.revision, selection=selection
    )


def position_at(position: SubscriptionPosition) -> wire.PeerPosition:
    """Return the position of a subscription as the stream sends it."""
    assert position.store is not None
    return peer_position(position.store, position.selection)


def outgoing(resource: pb.Resource) -> pb.Resource:
    """Return the form of a resource that is sent. It shares its parts with the stored one.

    Its owner and its finalizers are left out, because they mean nothing in another store.
    """
    metadata = resource.metadata
    if resource.owner is None and FINALIZERS not in metadata:
        return resource
    if FINALIZERS in metadata:
        metadata = {key: value for key, value in metadata.items() if key != FINALIZERS}
    return pb.Resource(
        id=resource.id,
        version=resource.version,
        generation=resource.generation,
        metadata=metadata,
        status=resource.status,
        data=resource.data,
    )


def copy_of(resource: pb.Resource, id: pb.Id) -> pb.Resource:
    """Return the copy of a received resource, with an id of this store.

    The generation, data and status stay. The metadata gets the original's uid and version. A mark for deletion has
    another key: the copy itself is not being deleted.
    """
    assert resource.id is not None
    metadata = {key: value for key, value in resource.metadata.items() if key not in _NOT_COPIED}
    metadata[ORIGIN_UID] = resource.id.uid
    metadata[ORIGIN_VERSION] = resource.version
    metadata[ORIGIN_PARTITION] = resource_key(resource)[0]
    if DELETION_TIMESTAMP in metadata:
        metadata[ORIGIN_DELETION] = metadata.pop(DELETION_TIMESTAMP)
    return pb.Resource(
        id=id,
        generation=resource.generation,
        metadata=metadata,
        status=resource.status,
        data=resource.data,
    )


Delay = Callable[[int], float]
"""A function from the number of earlier failures to the delay, in seconds, before the next attempt."""


def doubling(failures: int) -> float:
    """Return 1, 2, 4 and so on up to 60 seconds."""
    return float(min(60, 1 << min(failures, 6)))

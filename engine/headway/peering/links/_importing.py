"""The store of the copies of a peering: it loads them, and applies the work of a receiver.

Nothing else writes to the partition of the copies. Each stream raises a fence of its own, so that no commit of an
earlier stream is stored after it, in whichever process that ran.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ulid_transform import ulid_now

from headway._gen.headway.peering import v1 as wire
from headway.errors import AlreadyExists, FailedPrecondition
from headway.peering._host import PeeringHost
from headway.peering._partition import belongs_to
from headway.peering._types import copies_partition
from headway.peering.stream import Breach, Copies, Exported, PeerLimits, Work, commits
from headway.protobuf import decode, encode
from headway.resource import (
    DEFAULT_UNIT,
    NAMESPACE,
    PARTITION,
    TOMBSTONE,
    AnyMessage,
    Key,
    Kind,
    Resource,
    Scope,
    is_builtin,
    is_marked,
    pb,
)
from headway.service import tombstone_of
from headway.storage import Fence, Operation, Put, Remove, Require, RequireOwnsNothing, StillOwns, Within

STATE_KIND: Kind = ("internal", "PeerImports")
"""The kind of the positions. No registry has it, so the resource service shows it to nobody."""

_URL = "type.googleapis.com/headway.peering.v1.Imported"
_PAGE = 1000
_ALWAYS = ("", DEFAULT_UNIT)
"""The namespaces that need not be created."""


class Importer:
    """The copies of one peering, and the position that is stored with them. Create it with `open_importer`.

    Attributes:
        state: the position as it was stored; None if nothing was.
        copies: the stored copies.
    """

    def __init__(
        self,
        host: PeeringHost,
        partition: Require,
        fence: Fence,
        stored: pb.Resource | None,
        key: Key,
        copies: Copies,
        namespaces: set[str],
        most_namespaces: int,
    ) -> None:
        self._host = host
        self._partition = partition
        self._fence = fence
        self._key = key
        self._uid = "" if stored is None or stored.id is None else stored.id.uid
        self._version = "" if stored is None else stored.version
        self._namespaces = namespaces
        self._most_namespaces = most_namespaces
        self.copies = copies
        data = None if stored is None else stored.data
        self.state = None if data is None else decode(wire.Imported, data.value)

    async def store(self, work: Work) -> None:
        """Store the work of a receiver.

        Raises:
            StorageError: another stream has taken over, or the partition was changed or deleted.
            RemoteError: the store could not be written.
        """
        for index, operations in enumerate(work.commits):
            await self._ensure_namespaces(operations)
            await self._commit(operations, work.state if index == work.state_at else None)
        if work.state is not None and not work.commits:
            await self._commit([], work.state)

    async def clear(self) -> None:
        """Remove the position, and all copies.

        The position goes first: after a crash in between, a stream would resume from it without the removed copies.
        """
        if self._version:
            removal = Remove(STATE_KIND, self._key, self._uid, self._version)
            await self._host.backend.commit((removal,), self._fence)
            self._version = self._uid = ""
        for operations in commits(self.copies.outside(())):
            await self._commit(operations, None)

    async def _commit(self, operations: Sequence[Operation], state: wire.Imported | None) -> None:
        given: list[Operation] = [self._partition, *operations]
        if state is not None:
            given.append(self._state(state))
        removed = [each for each in operations if isinstance(each, Remove)]
        try:
            guards = [RequireOwnsNothing(each.uid) for each in removed]
            position = await self._host.backend.commit((*given, *guards), self._fence)
        except StillOwns:
            # The reaper then deletes what the copies owned here.
            given += [tombstone for each in removed for tombstone in await self._tombstone(each)]
            position = await self._host.backend.commit(given, self._fence)
        self.copies.stored(operations, position.revision)
        if state is not None:
            self._version = str(position.revision)

    async def _tombstone(self, removal: Remove) -> list[Put]:
        stored, _ = await self._host.backend.read(removal.kind, removal.key)
        return [] if stored is None else [tombstone_of(stored)]

    def _state(self, state: wire.Imported) -> Put:
        self._uid = self._uid or ulid_now()
        type = pb.Type(group=STATE_KIND[0], group_version="v1", kind=STATE_KIND[1])
        id = pb.Id(uid=self._uid, name=self._key[2], type=type, tenancy=pb.Tenancy(partition="", namespace=""))
        resource = pb.Resource(id=id, data=AnyMessage(type_url=_URL, value=encode(state)))
        return Put(STATE_KIND, self._key, resource, self._version)

    async def _ensure_namespaces(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if not isinstance(operation, Put) or operation.key[1] in self._namespaces:
                continue
            namespace = operation.key[1]
            if len(self._namespaces) >= self._most_namespaces + len(_ALWAYS):
                raise Breach(f"exports resources of more than {self._most_namespaces} namespaces")
            made = NAMESPACE.new(namespace, NAMESPACE.payload(), partition=self._partition.key[2])
            with contextlib.suppress(AlreadyExists):
                await self._host.client.create(made)
            self._namespaces.add(namespace)


async def open_importer(host: PeeringHost, peering: Resource[wire.Peering], limits: PeerLimits) -> Importer:
    """Load the copies of a peering, and end the writes of earlier streams.

    Raises:
        FailedPrecondition: the partition does not exist, is being deleted, or is not this peering's.
    """
    name = copies_partition(peering.name)
    # Before anything is read: an earlier stream must not write after the reads.
    raised = await host.backend.raise_fence(f"headway/peer-copies/{peering.name}", "", 0, 0)
    key = ("", "", name)
    partition, _ = await host.backend.read(PARTITION.kind, key)
    found = None if partition is None else Resource(PARTITION, partition)
    if found is None or partition is None or is_marked(partition.metadata) or not belongs_to(found, peering):
        raise FailedPrecondition(f"partition {name!r} for the copies does not exist yet, or is being deleted")
    state_key = ("", "", peering.id.uid.lower())
    stored, _ = await host.backend.read(STATE_KIND, state_key)
    copies = Copies(name, limits.copies, ulid_now)
    namespaces = set(_ALWAYS)
    for kind in await host.backend.kinds():
        after: Key | None = None
        while True:
            resources, _ = await host.backend.list(kind, Within(name), after=after, limit=_PAGE)
            if kind == NAMESPACE.kind:
                namespaces |= {each.id.name for each in resources if each.id is not None}
            elif kind != TOMBSTONE.kind:
                copies.load(resources)
            if len(resources) < _PAGE:
                break
            last = resources[-1].id
            assert last is not None
            assert last.tenancy is not None
            after = (last.tenancy.partition, last.tenancy.namespace, last.name)
    required = Require(PARTITION.kind, key, found.uid, found.version)
    return Importer(host, required, raised.fence, stored, state_key, copies, namespaces, limits.namespaces)


async def forget_imports(host: PeeringHost, uid: str) -> None:
    """Remove the position of a deleted peering."""
    key = ("", "", uid.lower())
    stored, _ = await host.backend.read(STATE_KIND, key)
    if stored is not None and stored.id is not None:
        await host.backend.commit((Remove(STATE_KIND, key, stored.id.uid, stored.version),))


def unknown_here(host: PeeringHost, export: Exported) -> str | None:
    """Return why an export cannot be received here; None if it can."""
    type = host.registry.find(export.type)
    if type is None:
        return "no program here declares the type"
    if is_builtin(type):
        return "the type belongs to Headway itself"
    return "the type is cluster-scoped" if type.scope is Scope.CLUSTER else None

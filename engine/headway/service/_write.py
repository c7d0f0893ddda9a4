"""Write: create or update a resource."""

from __future__ import annotations

from functools import partial
from typing import Any

from grpclib import GRPCError

from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    Position,
    ResourceType,
    is_marked,
    pb,
    resource_id,
    same_owner,
)
from headway.service._admission import admit_resource, check_payload_name
from headway.service._create import check_created, creation, determined_ending
from headway.service._deletion import check_frozen, check_marking, removal_after
from headway.service._fences import check_fence
from headway.service._handlers import Context
from headway.service._read import checked_version
from headway.service._refusals import STORE_ERRORS, Reason, conflict, invalid, precondition, refusal, taken
from headway.service._storage_version import StorageVersion
from headway.service._writing import (
    NO_UNITS,
    Units,
    attempt,
    check_staying,
    check_store,
    check_units,
    for_store,
    generation_after,
    needs_units,
    new_id,
)
from headway.storage import Operation, Put, Read, StorageError, optimistic_read, read_for_commit, version_of


async def write(context: Context, request: pb.WriteRequest) -> pb.WriteResponse:
    """Store the resource and return it as stored, with its new version and generation."""
    admitted = _Write(context, request)
    optimistic = optimistic_read(context.backend)
    if optimistic is not None:
        try:
            return await admitted.attempt(optimistic, is_optimistic=True)
        except (GRPCError, StorageError):
            # The refusal may rest on a stale read. Nothing was written, so decide again from the store itself.
            pass
        except STORE_ERRORS as error:
            raise refusal(error, write=True) from error
    from_store = partial(admitted.attempt, partial(read_for_commit, context.backend))
    return await attempt(from_store, blanket=not admitted.resource.version)


class _Write:
    """A Write request that has passed every check that needs no store."""

    __slots__ = (
        *("context", "creates_again", "ending", "fence", "form", "given", "has_units", "id", "key"),
        *("may_mark", "payload_name", "request", "resource", "type", "undecodable"),
    )

    def __init__(self, context: Context, request: pb.WriteRequest) -> None:
        access = context.access
        self.context, self.request = context, request
        admitted = admit_resource(access, request.resource, request.fence)
        self.type, self.key, self.resource, self.given, self.fence, self.payload_name, self.undecodable = admitted
        assert self.resource.id is not None
        self.id = self.resource.id
        # Otherwise a caller without the right to read could find out whether the name is taken.
        self.creates_again = context.recreates and access.may_read(self.id)
        # The end of the uid that the creation gets; empty if any uid will do.
        self.ending = ""
        if request.create_only or request.create_token:
            self.ending = determined_ending(request, self.type.kind, self.key)
        self.may_mark = not is_marked(self.resource.metadata) or access.may_delete(self.id)
        self.has_units = needs_units(self.key)
        # Most kinds have no converters and are stored as written. A payload that does not decode is not converted.
        chain = access.registry.chain_with(self.type)
        self.form: StorageVersion | None = None
        if chain is not None and self.undecodable is None:
            self.form = StorageVersion(context.versions, chain, self.type)

    async def attempt(self, read: Read, *, is_optimistic: bool = False) -> pb.WriteResponse:
        """Decide from what ``read`` returns, commit, and return the response. Nothing is stored if this raises."""
        context, type, key = self.context, self.type, self.key
        check_store(context.backend, self.request.store_id)
        units = await check_units(read, key) if self.has_units else NO_UNITS
        stored, at = await read(type.kind, key)
        if stored is not None and self.request.create_only:
            if is_optimistic:
                # An optimistic read may be stale, so only a read of the store can report that a name is taken.
                raise taken("")
            return await self._created_before(stored, at)
        if not self.may_mark:
            context.access.check_marking(self.id, context.versions.shown(type, stored))
        operations: tuple[Operation, ...]
        if stored is None:
            prepared, operations = await self._creation(read, units)
        else:
            prepared = await self._replacement(read, units, stored)
            operations = (Put(type.kind, key, prepared, stored.version),)
            if is_marked(prepared.metadata):
                operations += removal_after(prepared)
            else:
                check_staying(units, self.id)
            if is_optimistic:
                operations = (*units.required, *operations)
        position = await context.backend.commit(operations, self.fence)
        return self._response(prepared if self.form is None else self.form.shown(prepared), position)

    async def _created_before(self, stored: pb.Resource, at: Position) -> pb.WriteResponse:
        """Return the response to a repeated creation. Refuse a creation whose name another one took."""
        access, type = self.context.access, self.type
        await check_fence(self.context.backend, self.fence)
        check_created(stored, self.resource, self.ending)
        try:
            created = checked_version(stored, self.context.versions.view(type)(stored), type.name.version)
        except GRPCError as error:
            raise access.redacted(error, stored) from None
        return self._response(created, at)

    async def _creation(self, read: Read, units: Units) -> tuple[pb.Resource, tuple[Operation, ...]]:
        """Return the resource as it will be created, and the operations of the commit."""
        self._check_payload(None)
        return await creation(
            read,
            self.context,
            self.form,
            units,
            self.key,
            self.resource,
            recreates=self.creates_again,
            ending=self.ending,
        )

    async def _replacement(self, read: Read, units: Units, stored: pb.Resource) -> pb.Resource:
        """Return the resource that will replace the stored one."""
        form = self.form
        try:
            # Check this first: a writer who has read something else has to read again.
            _check_current(stored, self.resource)
            self._check_payload(stored)
            if form is None:
                return _update(self.type, stored, self.resource)
            return _merged_update(form, stored, self.resource)
        except GRPCError as error:
            access = self.context.access
            # Even if nothing is converted, the caller's rights are those for the version that the request names.
            shown = self.context.versions.shown(self.type, stored)
            assert shown is not None
            if not access.shows(shown) and stored.id is not None and self.id.uid != stored.id.uid:
                # Answer as for a free name, so that a guess does not reveal that this one is taken.
                await self._creation(read, units)
            raise access.redacted(error, shown) from None

    def _check_payload(self, stored: pb.Resource | None) -> None:
        """Refuse a payload with a restriction, unless the caller has read the same one from the store.

        A payload under an older type name, or one that does not decode, may only be written back as it is stored.
        """
        if not self.payload_name and self.undecodable is None:
            return
        if stored is None and self.resource.version:
            # The creation is refused anyway, because a new resource has no version. The writer has to read again.
            return
        access = self.context.access
        if self.payload_name:
            check_payload_name(access, self.type, self.payload_name, self.context.versions.shown(self.type, stored))
        # A caller who may not read the resource could otherwise confirm a guess of its stored payload.
        if self.undecodable is not None and not (_carries(stored, self.resource) and access.may_read(self.id)):
            raise invalid(self.undecodable)

    def _response(self, stored: pb.Resource, position: Position) -> pb.WriteResponse:
        access = self.context.access
        answer = access.answered(stored, self.given) if access.restricted else stored
        return pb.WriteResponse(resource=answer, position=position.message())


def _carries(stored: pb.Resource | None, resource: pb.Resource) -> bool:
    """Return True if the resource has exactly the stored payload, in the same version."""
    if stored is None or stored.data is None or resource.data is None or stored.id is None or resource.id is None:
        return False
    return stored.id.type == resource.id.type and stored.data.value == resource.data.value


def _check_current(stored: pb.Resource, resource: pb.Resource) -> None:
    """Refuse a writer who names another incarnation, or another version, than the stored one."""
    assert resource.id is not None
    assert stored.id is not None
    if resource.id.uid and resource.id.uid != stored.id.uid:
        raise precondition(
            f"{resource_id(resource.id)} is stored with uid {stored.id.uid}, not {resource.id.uid}; read it again",
            Reason.WRONG_UID,
        )
    if resource.version and resource.version != stored.version:
        raise conflict(
            f"{resource_id(resource.id)} is stored at version {stored.version}, not {resource.version}; read it again"
        )


def _update(type: ResourceType[Any], stored: pb.Resource, resource: pb.Resource) -> pb.Resource:
    """Return the resource that will replace the stored one."""
    assert resource.id is not None
    assert stored.id is not None
    if resource.status and resource.status != stored.status:
        changed = sorted(key for key in resource.status if resource.status[key] != stored.status.get(key))
        changed += sorted(key for key in stored.status if key not in resource.status)
        raise invalid(
            f"{resource_id(resource.id)}: status cannot be changed by Write, but "
            f"{', '.join(changed)} differs; use WriteStatus"
        )
    _check_owner(stored, resource)
    metadata = resource.metadata
    if not resource.version:
        metadata = dict(metadata)
        # A blanket write that does not mention the reserved keys leaves them alone.
        for reserved in (FINALIZERS, DELETION_TIMESTAMP):
            if reserved in stored.metadata:
                metadata.setdefault(reserved, stored.metadata[reserved])
    same_type = stored.id.type.group_version == type.name.version  # type: ignore[union-attr]  # stored ids are whole
    updated = for_store(
        resource,
        stored.id if same_type else new_id(resource.id, stored.id.uid),
        owner=stored.owner,
        metadata=metadata,
        status=stored.status,
        generation=generation_after(stored.generation),
    )
    if is_marked(stored.metadata):
        check_frozen(type, stored, updated)
    elif is_marked(updated.metadata):
        check_marking(type, stored, updated)
    return updated


def _merged_update(form: StorageVersion, stored: pb.Resource, resource: pb.Resource) -> pb.Resource:
    """Return the replacement for a resource of a kind with converters: the update applies to what the writer sees."""
    if version_of(stored) not in form.chain:
        # No converter connects the two versions, so the resource moves to the writer's version.
        return form.created(_update(form.type, stored, resource))
    carried = form.carries_on(stored, resource)
    if carried is not None:
        return _update(form.chain.type_of(version_of(stored)), stored, carried)
    seen = form.seen(stored)
    return form.updated(stored, seen, _update(form.type, seen, resource))


def _check_owner(stored: pb.Resource, resource: pb.Resource) -> None:
    given, kept = resource.owner, stored.owner
    # The fast path: most resources are unowned, or name their owner exactly as stored.
    if given != kept and not same_owner(given, kept):
        raise invalid(
            f"{resource_id(resource.id)}: owner can only be set at creation: it is {_owner(kept)}, not {_owner(given)}"
        )


def _owner(id: pb.Id | None) -> str:
    return "none" if id is None else f"{resource_id(id)} with uid {id.uid or '(any)'}"

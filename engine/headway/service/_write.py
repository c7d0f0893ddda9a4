"""Write: create or update a resource."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway import errors
from headway.api import Call, NothingWritten, ProgramFailedLate, row_of
from headway.base import Steps, in_slices
from headway.errors import (
    CommitRefused,
    Conflict,
    HeadwayError,
    InvalidArgument,
    StoreUnusable,
    Unavailable,
    WriteRejected,
)
from headway.resource import (
    DELETION_TIMESTAMP,
    EVENT,
    FINALIZERS,
    AnyMessage,
    Key,
    Kind,
    Position,
    ResourceType,
    is_marked,
    pb,
    resource_id,
    same_owner,
)
from headway.service._admission import Admitted, admit_resource, rules_for
from headway.service._context import Context
from headway.service._create import check_created, creation, determined_ending
from headway.service._deletion import check_frozen, check_marking, removal_after
from headway.service._fences import check_fence
from headway.service._forms import Form
from headway.service._payload_names import check_payload_name
from headway.service._writing import (
    NO_UNITS,
    Units,
    attempt,
    check_staying,
    check_store,
    check_units,
    generation_after,
    needs_units,
    new_id,
)
from headway.storage import Operation, Put, Read, StorageError

ReadNowait = Callable[[Kind, Key], tuple[pb.Resource | None, Position] | None]


async def write(context: Context, _call: Call, request: pb.WriteRequest) -> pb.WriteResponse:
    """Store the resource and return it as stored, with its new version and generation."""
    admitted = _Write(context, request, await in_slices(admit_resource(context, request.resource, request.fence)))
    optimistic = getattr(context.backend, "read_optimistic", None)
    if optimistic is not None:
        try:
            return await admitted.attempt(optimistic)
        except WriteRejected:
            raise
        except (Unavailable, StoreUnusable) as error:
            raise NothingWritten(str(error)) from error
        except (CommitRefused, errors.RemoteError, ProgramFailedLate):
            # The store compares what was read before it asks its rules, so this does not rest on a stale read.
            raise
        except HeadwayError as error:
            if row_of(error) is None and not isinstance(error, StorageError):
                raise
            # The refusal may rest on a stale read. Nothing was written, so decide again from the store itself.
    at = admitted.type.kind, admitted.key
    return await attempt(admitted.attempt, context.turns, at, blanket=not admitted.resource.version)


class _Write:
    """A Write request that has passed every check that needs no store."""

    def __init__(self, context: Context, request: pb.WriteRequest, admitted: Admitted) -> None:
        access = context.access
        self.context, self.request = context, request
        self.read_nowait: ReadNowait | None = getattr(context.backend, "read_nowait", None)
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
        self.form = context.forms.of(self.type)
        self.checks_payload = bool(self.payload_name) or self.undecodable is not None
        # A payload that does not decode is stored as written.
        self.storing = self.form if self.undecodable is None else Form(self.type)

    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """Read before the commit. The commit has a checkpoint, so the read does without one if the store can."""
        found = None if self.read_nowait is None else self.read_nowait(kind, key)
        return await self.context.backend.read(kind, key) if found is None else found

    async def attempt(self, optimistic: Read | None = None) -> pb.WriteResponse:
        """Decide from what the store holds, commit, and return the response. Nothing is stored if this raises."""
        context, type, key = self.context, self.type, self.key
        access, read = context.access, optimistic or self.read
        if self.request.store_id:
            check_store(context.backend, self.request.store_id)
        units = await check_units(read, key) if needs_units(key) else NO_UNITS
        # Most reads need no coroutine.
        found = None if optimistic or self.read_nowait is None else self.read_nowait(type.kind, key)
        stored, at = await read(type.kind, key) if found is None else found
        if stored is not None and self.request.create_only:
            if optimistic:
                # An optimistic read may be stale, so only a read of the store can report that a name is taken.
                raise errors.AlreadyExists("")
            return await self._created_before(stored, at)
        if not self.may_mark:
            access.check_marking(self.id, None if stored is None else await self.form.shown(stored))
        operations: tuple[Operation, ...]
        if stored is None:
            prepared, operations = await self._creation(read, units)
        else:
            try:
                # Check this first: a writer who has read something else has to read again.
                _check_current(stored, self.resource)
                if self.checks_payload:
                    await self._check_payload(stored)
                for rules in rules_for(access, type.kind, key):
                    rules.replace(access, type, key, stored, self.resource)
                prepared = await in_slices(self.storing.replaced(stored, self.resource, _update))
            except HeadwayError as error:
                # The caller's rights are those for the version that the request names.
                shown = await self.form.shown(stored)
                if not access.shows(shown) and stored.id is not None and self.id.uid != stored.id.uid:
                    # Answer as for a free name, so that a guess does not reveal that this one is taken.
                    await self._creation(read, units)
                access.redact(error, shown)
                raise
            operations = (Put(type.kind, key, prepared, stored.version),)
            if is_marked(prepared.metadata):
                operations += removal_after(prepared)
            else:
                check_staying(units, self.id)
            if optimistic:
                operations = (*units.required, *operations)
        position = await context.backend.commit(operations, self.fence)
        # Nobody asks who wrote events, and there may be many.
        if context.journal is not None and type is not EVENT:
            verb = "created" if stored is None else "written"
            context.journal.add(position.revision, type.name, key, verb, self.fence, access.caller_name)
        answer = await self.storing.shown(prepared)
        if access.restricted:
            answer = access.answered(answer, self.given)
        return pb.WriteResponse(resource=answer, position=position.message())

    async def _created_before(self, stored: pb.Resource, at: Position) -> pb.WriteResponse:
        """Return the response to a repeated creation. Refuse a creation whose name another one took."""
        access = self.context.access
        await check_fence(self.context.backend, self.fence)
        check_created(stored, self.resource, self.ending)
        seen = await self.form.seen(stored)
        try:
            created = self.form.checked(stored, seen)
        except HeadwayError as error:
            access.redact(error, stored)
            raise
        answer = access.answered(created, self.given) if access.restricted else created
        return pb.WriteResponse(resource=answer, position=at.message())

    async def _creation(self, read: Read, units: Units) -> tuple[pb.Resource, tuple[Operation, ...]]:
        """Return the resource as it will be created, and the operations of the commit."""
        if self.checks_payload:
            await self._check_payload(None)
        about = (self.context, self.storing, units, self.type.kind, self.key, self.resource)
        return await creation(read, *about, recreates=self.creates_again, ending=self.ending)

    async def _check_payload(self, stored: pb.Resource | None) -> None:
        """Refuse a payload with a restriction, unless the caller has read the same one from the store.

        A payload under an older type name, or one that does not decode, may only be written back as it is stored.
        """
        if stored is None and self.resource.version:
            # The creation is refused anyway, because a new resource has no version. The writer has to read again.
            return
        access = self.context.access
        if self.payload_name:
            shown = None if stored is None else await self.form.shown(stored)
            check_payload_name(access, self.type, self.payload_name, shown)
        # A caller who may not read the resource could otherwise confirm a guess of its stored payload.
        if self.undecodable is not None and not (_carries(stored, self.resource) and access.may_read(self.id)):
            raise InvalidArgument(self.undecodable)


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
        raise errors.WrongUid(
            f"{resource_id(resource.id)} is stored with uid {stored.id.uid}, not {resource.id.uid}; read it again"
        )
    if resource.version and resource.version != stored.version:
        raise Conflict(
            f"{resource_id(resource.id)} is stored at version {stored.version}, not {resource.version}; read it again"
        )


def _update(type: ResourceType[Any], stored: pb.Resource, resource: pb.Resource) -> Steps[pb.Resource]:
    """Return the resource that will replace the stored one."""
    assert resource.id is not None
    assert stored.id is not None
    if resource.status and resource.status != stored.status:
        changed = sorted(key for key in resource.status if resource.status[key] != stored.status.get(key))
        changed += sorted(key for key in stored.status if key not in resource.status)
        raise InvalidArgument(
            f"{resource_id(resource.id)}: status cannot be changed by Write, but "
            f"{', '.join(changed)} differs; use WriteStatus"
        )
    given, owner = resource.owner, stored.owner
    # The fast path: most resources are unowned, or name their owner exactly as stored.
    if given != owner and not same_owner(given, owner):
        raise InvalidArgument(
            f"{resource_id(resource.id)}: owner can only be set at creation: it is {_owner(owner)}, not {_owner(given)}"
        )
    metadata = resource.metadata
    if not resource.version:
        metadata = dict(metadata)
        # A blanket write that does not mention the reserved keys leaves them alone.
        for reserved in (FINALIZERS, DELETION_TIMESTAMP):
            if reserved in stored.metadata:
                metadata.setdefault(reserved, stored.metadata[reserved])
    same_type = stored.id.type.group_version == type.name.version  # type: ignore[union-attr]  # stored ids are whole
    updated = pb.Resource(
        id=stored.id if same_type else new_id(resource.id, stored.id.uid),
        owner=owner,
        generation=generation_after(stored.generation),
        metadata=metadata,
        status=stored.status,
        data=resource.data,
    )
    was_marked = is_marked(stored.metadata)
    if was_marked or is_marked(updated.metadata):
        yield from (check_frozen if was_marked else check_marking)(type, stored, updated)
        if updated.data is not None and stored.data is not None:
            # The same content may be encoded in many more bytes, which no rule refuses in a marked resource.
            updated.data = AnyMessage(type_url=updated.data.type_url, value=stored.data.value)
    return updated


def _owner(id: pb.Id | None) -> str:
    return "none" if id is None else f"{resource_id(id)} with uid {id.uid or '(any)'}"

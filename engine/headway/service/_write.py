"""Write: create or update a resource."""

from __future__ import annotations

import functools
from typing import Any

from grpclib import GRPCError
from ulid_transform import ulid_now

from headway.protobuf import copy_message
from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    Key,
    Kind,
    Registry,
    ResourceId,
    ResourceType,
    is_marked,
    pb,
    resource_id,
    same_owner,
    type_name,
    uid_ending,
)
from headway.rpc import HandlerFault
from headway.service._access import Access
from headway.service._admission import admit_resource, check_payload_name
from headway.service._bounds import check_text
from headway.service._fence import check_fence, check_store
from headway.service._generation import generation_after
from headway.service._marks import check_marks
from headway.service._read import checked_version
from headway.service._refusals import (
    NOTHING_WRITTEN,
    STORE_ERRORS,
    WrongIncarnation,
    conflict,
    invalid,
    precondition,
    refusal,
    taken,
)
from headway.service._removal import removal_after
from headway.service._retry import attempt
from headway.service._storage_version import StorageVersion
from headway.service._tenancy import NO_UNITS, Units, check_staying, check_units, needs_units
from headway.service._versions import Versions
from headway.storage import (
    Backend,
    Operation,
    Put,
    Read,
    Require,
    StorageError,
    optimistic_read,
    read_for_commit,
    version_of,
)


async def write(
    backend: Backend,
    registry: Registry,
    access: Access,
    versions: Versions,
    request: pb.WriteRequest,
    *,
    recreates: bool = False,
) -> pb.WriteResponse:
    """Store the resource and return it as stored, with its new version and generation.

    With ``recreates``, a write with the uid of a deleted incarnation creates a new one, as in Consul. The caller must
    have the right to read that name.
    """
    try:
        admitted = admit_resource(registry, access, request.resource, request.fence)
    except HandlerFault as fault:
        if fault.message is not None and fault.message.startswith(NOTHING_WRITTEN):
            raise
        # The store has not been asked yet. Without this prefix, INTERNAL leaves the outcome of a write open.
        raise HandlerFault(f"{NOTHING_WRITTEN}{fault.message}", fault.cause) from fault.cause
    type, key, resource, given, fence, payload_name, undecodable = admitted
    named = resource.id
    assert named is not None
    # Otherwise a caller without the right to read could find out whether the name is taken.
    recreates = recreates and access.may_read(named)
    ending = _uid_ending(request, type.kind, key) if request.create_only or request.create_token else ""
    may_mark = not is_marked(resource.metadata) or access.may_delete(named)
    elsewhere = needs_units(key)
    as_stored: Read = functools.partial(read_for_commit, backend)
    chain = versions.chain(type)
    # Most kinds have no converters and are stored as written. A payload that does not decode is not converted either.
    form = None if chain is None or undecodable is not None else StorageVersion(versions, chain, type)

    def check_payload(stored: pb.Resource | None) -> None:
        """Refuse a payload with a restriction, unless the caller has read the same one from the store.

        A payload under an older type name, or one that does not decode, may only be written back as it is stored.
        """
        if stored is None and resource.version:
            # The creation is refused anyway, because a new resource has no version. The writer has to read again.
            return
        if payload_name:
            check_payload_name(access, type, payload_name, versions.shown(type, stored))
        # A caller who may not read the resource could otherwise confirm a guess of its stored payload.
        if undecodable is not None and not (_carries(stored, resource) and access.may_read(named)):
            raise invalid(undecodable)

    async def once(read: Read = as_stored, *, is_optimistic: bool = False) -> pb.WriteResponse:
        check_store(backend, request.store_id)
        units = await check_units(read, key) if elsewhere else NO_UNITS
        stored, at = await read(type.kind, key)
        if request.create_only and stored is not None:
            if is_optimistic:
                # An optimistic read may be stale, so only a read of the store can report that a name is taken.
                raise taken("")
            await check_fence(backend, fence)
            _check_created(stored, resource, ending)
            seen = versions.view(type)(stored)
            try:
                created = checked_version(stored, seen, type.name.version)
            except GRPCError as error:
                raise access.redacted(error, stored) from None
            return pb.WriteResponse(resource=access.answered(created, given), position=at.message())
        if not may_mark:
            access.check_marking(named, versions.shown(type, stored))
        if stored is None:
            check_payload(None)
            prepared, operations = await _creation(
                read, access, versions, form, units, key, resource, recreates=recreates, ending=ending
            )
        else:
            try:
                # Check this first: a writer who has read something else has to read again.
                _check_current(stored, resource)
                check_payload(stored)
                prepared = _update(type, stored, resource) if form is None else _merged_update(form, stored, resource)
            except GRPCError as error:
                # Even if nothing is converted, the caller's rights are those for the version that the request names.
                shown = versions.shown(type, stored)
                assert shown is not None
                if not access.shows(shown) and stored.id is not None and named.uid != stored.id.uid:
                    # Answer as for a free name, so that a guess does not reveal that this one is taken.
                    check_payload(None)
                    await _creation(read, access, versions, form, units, key, resource, recreates=recreates)
                raise access.redacted(error, shown) from None
            if not is_marked(prepared.metadata):
                check_staying(units, resource.id)
            operations = (Put(type.kind, key, prepared, stored.version), *removal_after(prepared))
            if is_optimistic:
                operations = (*units.required, *operations)
        position = await backend.commit(operations, fence)
        answer = prepared if form is None else form.shown(prepared)
        return pb.WriteResponse(resource=access.answered(answer, given), position=position.message())

    optimistic = optimistic_read(backend)
    if optimistic is not None:
        try:
            return await once(optimistic, is_optimistic=True)
        except (GRPCError, StorageError):
            # The refusal may rest on a stale read. Nothing was written, so decide again from the store itself.
            pass
        except STORE_ERRORS as error:
            raise refusal(error, write=True) from error
    return await attempt(once, blanket=not resource.version)


def _carries(stored: pb.Resource | None, resource: pb.Resource) -> bool:
    """Return True if the resource has exactly the stored payload, in the same version."""
    if stored is None or stored.data is None or resource.data is None or stored.id is None or resource.id is None:
        return False
    return stored.id.type == resource.id.type and stored.data.value == resource.data.value


def _uid_ending(request: pb.WriteRequest, kind: Kind, key: Key) -> str:
    """Return the end of the uid that a creation's token determines, or an empty string without a token."""
    token = request.create_token
    if not request.create_only:
        if token:
            raise invalid("create_token must be empty without create_only")
        return ""
    check_text("create_token", token)
    if request.resource is not None and request.resource.version:
        raise invalid(
            f"resource.version {request.resource.version!r} must be empty with create_only: a new resource has none"
        )
    return uid_ending(token, kind, key) if token else ""


def _check_created(stored: pb.Resource, resource: pb.Resource, ending: str) -> None:
    """Refuse a creation whose name is taken, unless an earlier attempt of the same creation took it."""
    assert stored.id is not None
    if not (ending and stored.id.uid.endswith(ending)):
        replace = "replace it by a Write without create_only (in Python client.write)"
        raise taken(f"{_id(resource)} already exists; read it, or {replace}")


async def _creation(
    read: Read,
    access: Access,
    versions: Versions,
    form: StorageVersion | None,
    units: Units,
    key: Key,
    resource: pb.Resource,
    *,
    recreates: bool,
    ending: str = "",
) -> tuple[pb.Resource, tuple[Operation, ...]]:
    """Return the resource as it will be created, and the operations of the commit."""
    _check_creation(resource, recreates=recreates)
    assert resource.id is not None
    owner: pb.Id | None = None
    required: tuple[Require, ...] = ()
    if resource.owner is not None:
        owner, required = await _found_owner(read, access, versions, resource.owner)
    uid = ulid_now()
    if ending:
        uid = uid[: -len(ending)] + ending
    prepared = _with(resource, _new_id(resource.id, uid), owner=owner)
    if form is not None:
        prepared = form.created(prepared)
    check_staying(units, resource.id)
    kind = type_name(resource.id.type).unversioned
    return prepared, (*units.required, *required, Put(kind, key, prepared, ""))


def _check_creation(resource: pb.Resource, *, recreates: bool) -> None:
    """Refuse fields that a new resource cannot have."""
    assert resource.id is not None
    if resource.version:
        raise conflict(f"{_id(resource)} does not exist, so it cannot be at version {resource.version!r}")
    if resource.id.uid and not recreates:
        # A writer that names an incarnation means that one: it acts on a view of something that has been deleted since.
        # Consul creates a new one, and Consul's clients rely on that.
        raise precondition(
            f"{_id(resource)} with uid {resource.id.uid} no longer exists; leave id.uid empty to create it"
        )
    if resource.status:
        keys = ", ".join(sorted(resource.status))
        raise invalid(
            f"{_id(resource)}: status must be empty on creation, not have {keys}; use WriteStatus after the creation"
        )
    if is_marked(resource.metadata):
        raise invalid(f"{_id(resource)}: metadata.{DELETION_TIMESTAMP} cannot be set on creation; use Delete")


def _id(resource: pb.Resource) -> ResourceId:
    # Built only for error messages: otherwise every write would pay for it.
    return resource_id(resource.id)


async def _found_owner(read: Read, access: Access, versions: Versions, owner: pb.Id) -> tuple[pb.Id, tuple[Require]]:
    """Return the owner with its uid, because ownership is of an incarnation and not of a name.

    The commit requires that the owner still exists: nothing would ever find a resource owned by a deleted one.
    """
    name = resource_id(owner)
    stored, _ = await read(name.type.unversioned, name.key)
    if (
        stored is None
        or stored.id is None
        or (owner.uid and stored.id.uid != owner.uid)
        or not access.shows(versions.named(name.type, stored))
    ):
        with_uid = f" with uid {owner.uid}" if owner.uid else ""
        raise invalid(f"resource.owner: {name}{with_uid} not found; create it first")
    uid = stored.id.uid
    return _with_uid(owner, uid), (Require(name.type.unversioned, name.key, uid),)


def _with_uid(id: pb.Id, uid: str) -> pb.Id:
    # A copy, so that a second attempt starts from the original request.
    known = copy_message(id)
    known.uid = uid
    return known


def _check_current(stored: pb.Resource, resource: pb.Resource) -> None:
    """Refuse a writer who names another incarnation, or another version, than the stored one."""
    assert resource.id is not None
    assert stored.id is not None
    if resource.id.uid and resource.id.uid != stored.id.uid:
        raise WrongIncarnation(
            f"{_id(resource)} is stored with uid {stored.id.uid}, not {resource.id.uid}; read it again"
        )
    if resource.version and resource.version != stored.version:
        raise conflict(f"{_id(resource)} is stored at version {stored.version}, not {resource.version}; read it again")


def _update(type: ResourceType[Any], stored: pb.Resource, resource: pb.Resource) -> pb.Resource:
    """Return the resource that will replace the stored one."""
    assert resource.id is not None
    assert stored.id is not None
    if resource.status and resource.status != stored.status:
        changed = sorted(key for key in resource.status if resource.status[key] != stored.status.get(key))
        changed += sorted(key for key in stored.status if key not in resource.status)
        raise invalid(
            f"{_id(resource)}: status cannot be changed by Write, but {', '.join(changed)} differs; use WriteStatus"
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
    updated = _with(
        resource,
        stored.id if same_type else _new_id(resource.id, stored.id.uid),
        owner=stored.owner,
        metadata=metadata,
        status=stored.status,
        generation=generation_after(stored.generation),
    )
    check_marks(type, stored, updated)
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


def _new_id(id: pb.Id, uid: str) -> pb.Id:
    return pb.Id(uid=uid, name=id.name, type=id.type, tenancy=id.tenancy)


def _with(
    resource: pb.Resource,
    id: pb.Id,
    *,
    owner: pb.Id | None,
    metadata: dict[str, str] | None = None,
    status: dict[str, pb.Status] | None = None,
    generation: str = "",
) -> pb.Resource:
    """Return a new message for the store, so that a second attempt starts from the original request."""
    return pb.Resource(
        id=id,
        owner=owner,
        generation=generation or ulid_now(),
        metadata=resource.metadata if metadata is None else metadata,
        status=status or {},
        data=resource.data,
    )

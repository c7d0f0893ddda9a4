"""Write: create or update a resource."""

from __future__ import annotations

from ulid_transform import ulid_now

from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    Registry,
    finalizers,
    is_marked,
    pb,
    resource_id,
)
from headway.service._admission import admit_resource
from headway.service._fence import fence_of
from headway.service._refusals import conflict, invalid, precondition
from headway.service._retry import attempt
from headway.storage import Backend, Put, read_for_commit


async def write(backend: Backend, registry: Registry, request: pb.WriteRequest) -> pb.WriteResponse:
    """Store the resource and answer with it as stored, with its new version and generation."""
    type, key, resource = admit_resource(registry, request.resource)
    if request.store_id and resource.version and request.store_id != backend.position.store_id:
        raise conflict(f"version {resource.version} is of store {request.store_id}; this is another store")
    fence = fence_of(request.fence)

    async def once() -> pb.WriteResponse:
        stored, _ = await read_for_commit(backend, type.kind, key)
        if stored is None:
            prepared = await _creation(backend, resource)
            expected = ""
        else:
            prepared = _update(stored, resource)
            expected = stored.version
        put = Put(type.kind, key, prepared, expected)
        position = await backend.commit((put,), fence)
        return pb.WriteResponse(resource=prepared, position=position.message())

    return await attempt(once, blanket=not resource.version)


async def _creation(backend: Backend, resource: pb.Resource) -> pb.Resource:
    """The resource as it will be stored for the first time."""
    assert resource.id is not None
    name = resource_id(resource.id)
    if resource.version:
        raise conflict(f"{name} is not there, so it can't be at version {resource.version!r}")
    if resource.id.uid:
        # The origin would create a new incarnation here. A writer that names one means that one: it acts on
        # a view of something that has been deleted since.
        raise precondition(f"{name} with uid {resource.id.uid} is not there any more")
    if resource.status:
        raise invalid(f"{name}: status must be empty in Write; use WriteStatus once it is created")
    if is_marked(resource.metadata):
        raise invalid(f"{name}: metadata.{DELETION_TIMESTAMP} can't be set on creation; use Delete")
    if resource.owner is not None and not resource.owner.uid:
        await _find_owner(backend, resource)
    return _with(resource, uid=ulid_now())


async def _find_owner(backend: Backend, resource: pb.Resource) -> None:
    """Fill in the owner's uid: ownership is of an incarnation, not of a name."""
    assert resource.owner is not None
    owner = resource_id(resource.owner)
    stored, _ = await backend.read(owner.type.unversioned, owner.key)
    if stored is None or stored.id is None:
        raise invalid(f"resource.owner: {owner} is not there; create it first, or give its uid")
    resource.owner.uid = stored.id.uid


def _update(stored: pb.Resource, resource: pb.Resource) -> pb.Resource:
    """The resource as it will replace what is stored."""
    assert resource.id is not None
    assert stored.id is not None
    name = resource_id(resource.id)
    if resource.id.uid and resource.id.uid != stored.id.uid:
        raise precondition(f"{name} is stored with uid {stored.id.uid}, not {resource.id.uid}")
    if resource.version and resource.version != stored.version:
        raise conflict(f"{name} is stored at version {stored.version}, not {resource.version}; read it again")
    if resource.status and resource.status != stored.status:
        raise invalid(f"{name}: status can't be changed by Write; use WriteStatus")
    _keep_owner(stored, resource)
    metadata = dict(resource.metadata)
    if not resource.version:
        # A blanket write that doesn't mention the reserved keys leaves them alone.
        for reserved in (FINALIZERS, DELETION_TIMESTAMP):
            if reserved in stored.metadata:
                metadata.setdefault(reserved, stored.metadata[reserved])
    updated = _with(resource, uid=stored.id.uid, metadata=metadata, status=stored.status)
    _check_marks(stored, updated)
    return updated


def _keep_owner(stored: pb.Resource, resource: pb.Resource) -> None:
    given, kept = resource.owner, stored.owner
    if given is not None and kept is not None and not given.uid:
        given.uid = kept.uid
    if given != kept:
        raise invalid(
            f"{resource_id(resource.id)}: owner can only be set at creation; "
            f"it is {resource_id(kept) if kept else 'none'}"
        )


def _check_marks(stored: pb.Resource, updated: pb.Resource) -> None:
    """A resource marked for deletion is frozen: only its finalizers may go."""
    if not is_marked(stored.metadata) and not is_marked(updated.metadata):
        return
    name = resource_id(stored.id)
    before, after = finalizers(stored.metadata), finalizers(updated.metadata)
    others_before = {key: text for key, text in stored.metadata.items() if key != FINALIZERS}
    others_after = {key: text for key, text in updated.metadata.items() if key != FINALIZERS}
    if is_marked(stored.metadata):
        if others_before != others_after or stored.data != updated.data or not after < before:
            raise invalid(f"{name} is marked for deletion: only finalizers may be removed from it now")
    elif is_marked(updated.metadata):
        others_after.pop(DELETION_TIMESTAMP)
        if others_before != others_after or stored.data != updated.data or after != before:
            raise invalid(f"{name}: metadata.{DELETION_TIMESTAMP} may only be set by itself; use Delete")


def _with(
    resource: pb.Resource,
    *,
    uid: str,
    metadata: dict[str, str] | None = None,
    status: dict[str, pb.Status] | None = None,
) -> pb.Resource:
    """A new message for the store, so that a second attempt begins from the request as it came."""
    assert resource.id is not None
    return pb.Resource(
        id=pb.Id(uid=uid, name=resource.id.name, type=resource.id.type, tenancy=resource.id.tenancy),
        owner=resource.owner,
        generation=ulid_now(),
        metadata=resource.metadata if metadata is None else metadata,
        status=status or {},
        data=resource.data,
    )

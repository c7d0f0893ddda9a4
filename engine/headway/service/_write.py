"""Write: create or update a resource."""

from __future__ import annotations

from typing import Any

from ulid_transform import ulid_now

from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    Registry,
    ResourceType,
    copy_message,
    is_marked,
    pb,
    resource_id,
)
from headway.service._admission import admit_resource
from headway.service._fence import check_store, fence_of
from headway.service._marks import check_marks
from headway.service._refusals import conflict, invalid, precondition
from headway.service._retry import attempt
from headway.storage import Backend, Put, read_for_commit


async def write(backend: Backend, registry: Registry, request: pb.WriteRequest) -> pb.WriteResponse:
    """Store the resource and answer with it as stored, with its new version and generation."""
    type, key, resource = admit_resource(registry, request.resource)
    fence = fence_of(request.fence)

    async def once() -> pb.WriteResponse:
        check_store(backend, request.store_id)
        stored, _ = await read_for_commit(backend, type.kind, key)
        if stored is None:
            prepared = await _creation(backend, resource)
            expected = ""
        else:
            prepared = _update(type, stored, resource)
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
        raise precondition(f"{name} with uid {resource.id.uid} is not there any more; leave id.uid empty to create it")
    if resource.status:
        keys = ", ".join(sorted(resource.status))
        raise invalid(f"{name}: status must be empty on creation, not have {keys}; use WriteStatus once it is there")
    if is_marked(resource.metadata):
        raise invalid(f"{name}: metadata.{DELETION_TIMESTAMP} can't be set on creation; use Delete")
    owner = resource.owner
    if owner is not None and not owner.uid:
        owner = await _found_owner(backend, owner)
    return _with(resource, uid=ulid_now(), owner=owner)


async def _found_owner(backend: Backend, owner: pb.Id) -> pb.Id:
    """The owner with its uid: ownership is of an incarnation, not of a name."""
    name = resource_id(owner)
    stored, _ = await backend.read(name.type.unversioned, name.key)
    if stored is None or stored.id is None:
        raise invalid(f"resource.owner: {name} is not there; create it first, or give its uid")
    return _with_uid(owner, stored.id.uid)


def _with_uid(id: pb.Id, uid: str) -> pb.Id:
    # A new one, so that a second attempt begins from the request as it came.
    known = copy_message(id)
    known.uid = uid
    return known


def _update(type: ResourceType[Any], stored: pb.Resource, resource: pb.Resource) -> pb.Resource:
    """The resource as it will replace what is stored."""
    assert resource.id is not None
    assert stored.id is not None
    name = resource_id(resource.id)
    if resource.id.uid and resource.id.uid != stored.id.uid:
        raise precondition(f"{name} is stored with uid {stored.id.uid}, not {resource.id.uid}; read it again")
    if resource.version and resource.version != stored.version:
        raise conflict(f"{name} is stored at version {stored.version}, not {resource.version}; read it again")
    if resource.status and resource.status != stored.status:
        changed = sorted(key for key in resource.status if resource.status[key] != stored.status.get(key))
        changed += sorted(key for key in stored.status if key not in resource.status)
        raise invalid(f"{name}: status can't be changed by Write, and {', '.join(changed)} differs; use WriteStatus")
    _check_owner(stored, resource)
    metadata = dict(resource.metadata)
    if not resource.version:
        # A blanket write that doesn't mention the reserved keys leaves them alone.
        for reserved in (FINALIZERS, DELETION_TIMESTAMP):
            if reserved in stored.metadata:
                metadata.setdefault(reserved, stored.metadata[reserved])
    updated = _with(resource, uid=stored.id.uid, owner=stored.owner, metadata=metadata, status=stored.status)
    check_marks(type, stored, updated)
    return updated


def _check_owner(stored: pb.Resource, resource: pb.Resource) -> None:
    given, kept = resource.owner, stored.owner
    if given is not None and kept is not None and not given.uid:
        given = _with_uid(given, kept.uid)
    if given != kept:
        raise invalid(
            f"{resource_id(resource.id)}: owner can only be set at creation: it is {_owner(kept)}, not {_owner(given)}"
        )


def _owner(id: pb.Id | None) -> str:
    return "none" if id is None else f"{resource_id(id)} with uid {id.uid or '(any)'}"


def _with(
    resource: pb.Resource,
    *,
    uid: str,
    owner: pb.Id | None,
    metadata: dict[str, str] | None = None,
    status: dict[str, pb.Status] | None = None,
) -> pb.Resource:
    """A new message for the store, so that a second attempt begins from the request as it came."""
    assert resource.id is not None
    return pb.Resource(
        id=pb.Id(uid=uid, name=resource.id.name, type=resource.id.type, tenancy=resource.id.tenancy),
        owner=owner,
        generation=ulid_now(),
        metadata=resource.metadata if metadata is None else metadata,
        status=status or {},
        data=resource.data,
    )

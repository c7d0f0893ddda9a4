"""List and ListByOwner."""

from __future__ import annotations

from headway.resource import Registry, pb
from headway.service._admission import admit_id, admit_within, resolve
from headway.service._read import check_revision
from headway.service._refusals import STORE_ERRORS, invalid, refusal
from headway.storage import Backend


async def list_type(backend: Backend, registry: Registry, request: pb.ListRequest) -> pb.ListResponse:
    """All resources of a type within a tenancy. Those stored as another version of the kind are left out."""
    type = resolve(registry, request.type, "type")
    if request.tenancy is None:
        raise invalid("tenancy is required; its units may be '*' for any")
    within = admit_within(type, request.tenancy, request.name_prefix, absent_is_any=False)
    try:
        stored, position = await backend.list(type.kind, within)
    except STORE_ERRORS as error:
        raise refusal(error) from error
    check_revision(position, request.min_revision)
    version = type.name.version
    resources = [
        resource
        for resource in stored
        if resource.id.type.group_version == version  # type: ignore[union-attr]  # stored ids are whole
    ]
    return pb.ListResponse(resources=resources, position=position.message())


async def list_by_owner(backend: Backend, registry: Registry, request: pb.ListByOwnerRequest) -> pb.ListByOwnerResponse:
    """All resources that this incarnation of an owner owns, of every type; the owner need not be there any more."""
    admit_id(registry, request.owner, "owner")
    assert request.owner is not None
    if not request.owner.uid:
        raise invalid("owner.uid is required: ownership is by incarnation; read the owner first")
    try:
        owned, position = await backend.list_by_owner(request.owner.uid)
    except STORE_ERRORS as error:
        raise refusal(error) from error
    return pb.ListByOwnerResponse(resources=list(owned), position=position.message())

"""MutateAndValidate: what Write would store, as far as that can be said without its own place in the store."""

from __future__ import annotations

from headway.resource import Registry, is_marked, pb
from headway.service._access import Access
from headway.service._admission import admit_resource, check_payload_name
from headway.service._marks import check_mark
from headway.service._refusals import STORE_ERRORS, invalid, refusal
from headway.service._tenancy import check_staying, check_units
from headway.service._versions import Versions
from headway.storage import Backend


async def mutate_and_validate(
    backend: Backend,
    registry: Registry,
    access: Access,
    versions: Versions,
    request: pb.MutateAndValidateRequest,
) -> pb.MutateAndValidateResponse:
    """Answer with the resource as its hooks leave it; a caller who may not read that, with what the request says."""
    admitted = admit_resource(registry, access, request.resource)
    if admitted.undecodable is not None:
        raise invalid(admitted.undecodable)
    type, key, resource = admitted.type, admitted.key, admitted.resource
    assert resource.id is not None
    try:
        units = await check_units(backend.read, key)
        if admitted.payload_name:
            stored, _ = await backend.read(type.kind, key)
            check_payload_name(access, type, admitted.payload_name, stored)
        if is_marked(resource.metadata):
            if not access.may_delete(resource.id):
                stored, _ = await backend.read(type.kind, key)
                access.check_marking(resource.id, versions.shown(type, stored))
            check_mark(resource)
    except STORE_ERRORS as error:
        raise refusal(error) from error
    check_staying(units, resource.id)
    return pb.MutateAndValidateResponse(resource=access.answered(resource, admitted.given))

"""MutateAndValidate: return what Write would store, without storing it."""

from __future__ import annotations

from headway.api import Call
from headway.base import in_slices
from headway.errors import HeadwayError, InvalidArgument
from headway.resource import is_marked, is_unconverted, pb, resource_id
from headway.service._admission import admit_resource
from headway.service._context import Context
from headway.service._deletion import check_mark
from headway.service._payload_names import check_payload_name
from headway.service._storage_version import StorageVersion
from headway.service._writing import check_staying, check_units


async def mutate_and_validate(
    context: Context, _call: Call, request: pb.MutateAndValidateRequest
) -> pb.MutateAndValidateResponse:
    """Return the resource as its hooks leave it, or as given to a caller who may not read the result."""
    backend, access = context.backend, context.access
    admitted = await in_slices(admit_resource(access, request.resource))
    if admitted.undecodable is not None:
        raise InvalidArgument(admitted.undecodable)
    type, key, resource = admitted.type, admitted.key, admitted.resource
    assert resource.id is not None
    if is_unconverted(resource):
        raise InvalidArgument(
            f"resource.data of {resource_id(resource.id)} could not be converted, so it cannot be validated"
        )
    marks = is_marked(resource.metadata)
    may_mark = not marks or access.may_delete(resource.id)
    units = await check_units(backend.read, key)
    # The storage version may not hold every payload of the writer's version.
    chain = access.registry.chain_with(type)
    if admitted.payload_name or not may_mark or chain is not None:
        stored, _ = await backend.read(type.kind, key)
        if stored is not None:
            await in_slices(context.versions.converting(type, stored))
        seen = context.versions.shown(type, stored)
        check_payload_name(access, type, admitted.payload_name, seen)
        if not may_mark:
            access.check_marking(resource.id, seen)
        if chain is not None:
            try:
                await in_slices(StorageVersion(context.versions, chain, type).checking(stored, resource))
            except HeadwayError as error:
                if seen is not None:
                    access.redact(error, seen)
                raise
    if marks:
        check_mark(resource)
    check_staying(units, resource.id)
    return pb.MutateAndValidateResponse(resource=access.answered(resource, admitted.given))

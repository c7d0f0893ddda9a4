"""MutateAndValidate: return what Write would store, without storing it."""

from __future__ import annotations

from headway.api import Call
from headway.base import in_slices
from headway.errors import HeadwayError, InvalidArgument
from headway.resource import is_marked, pb
from headway.service._admission import admit_resource
from headway.service._context import Context
from headway.service._deletion import check_mark
from headway.service._payload_names import check_payload_name
from headway.service._writing import check_staying, check_units


async def mutate_and_validate(
    context: Context, _call: Call, request: pb.MutateAndValidateRequest
) -> pb.MutateAndValidateResponse:
    """Return the resource as its hooks leave it, or as given to a caller who may not read the result."""
    backend, access = context.backend, context.access
    admitted = await in_slices(admit_resource(context, request.resource))
    if admitted.undecodable is not None:
        raise InvalidArgument(admitted.undecodable)
    type, key, resource = admitted.type, admitted.key, admitted.resource
    assert resource.id is not None
    marks = is_marked(resource.metadata)
    may_mark = not marks or access.may_delete(resource.id)
    units = await check_units(backend.read, key)
    form = context.forms.of(type)
    if admitted.payload_name or not may_mark or not form.as_written:
        stored, _ = await backend.read(type.kind, key)
        seen = None if stored is None else await form.shown(stored)
        check_payload_name(access, type, admitted.payload_name, seen)
        if not may_mark:
            access.check_marking(resource.id, seen)
        try:
            await form.check(stored, resource)
        except HeadwayError as error:
            if seen is not None:
                access.redact(error, seen)
            raise
    if marks:
        check_mark(resource)
    check_staying(units, resource.id)
    return pb.MutateAndValidateResponse(resource=access.answered(resource, admitted.given))

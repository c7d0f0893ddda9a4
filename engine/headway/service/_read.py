"""Read: one resource by its id."""

from __future__ import annotations

from headway.api import Call
from headway.errors import NotFound
from headway.resource import pb, resource_id
from headway.service._admission import admit_id
from headway.service._context import Context
from headway.service._position import check_revision


async def read(context: Context, call: Call, request: pb.ReadRequest) -> pb.ReadResponse:
    """Return the resource as the requested version. Raises NotFound. A request with a uid finds only that one."""
    access = context.access
    type, key = admit_id(access, request.id, "id")
    assert request.id is not None
    access.check_read(request.id)
    # Reading the request has let other tasks run. Within the process, the store does.
    nowait = getattr(context.backend, "read_nowait", None) if call.encodes else None
    found = None if nowait is None else nowait(type.kind, key)
    stored, position = await context.backend.read(type.kind, key) if found is None else found
    check_revision(position, request.min_revision)
    if stored is None or (request.id.uid and stored.id is not None and stored.id.uid != request.id.uid):
        raise _not_found(request.id)
    form = context.forms.of(type)
    seen = await form.seen(stored)
    # A resource whose content the caller may not read is refused in the same words as a missing one.
    if not access.shows(stored if seen is None else seen):
        raise _not_found(request.id)
    return pb.ReadResponse(resource=form.checked(stored, seen), position=position.message())


def _not_found(id: pb.Id) -> NotFound:
    return NotFound(f"{resource_id(id)}{f' with uid {id.uid}' if id.uid else ''} not found")

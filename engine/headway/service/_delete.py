"""Delete: remove a resource, or mark it while finalizers hold it."""

from __future__ import annotations

import datetime

from ulid_transform import ulid_now

from headway.resource import DELETION_TIMESTAMP, Registry, finalizers, is_marked, pb, resource_id
from headway.service._admission import admit_id
from headway.service._fence import check_store, fence_of
from headway.service._read import check_version
from headway.service._refusals import conflict
from headway.service._retry import attempt
from headway.storage import Backend, Put, Remove


async def delete(backend: Backend, registry: Registry, request: pb.DeleteRequest) -> pb.DeleteResponse:
    """Delete what is there; what isn't there (or is another incarnation) is deleted already.

    Answers with a position and with what bears the name at that position: nothing, the resource marked for deletion
    where finalizers hold it, or another incarnation where the request named one that is gone.
    """
    type, key = admit_id(registry, request.id, "id")
    assert request.id is not None
    wanted_uid, name = request.id.uid, resource_id(request.id)
    check_store(backend, request.store_id)
    fence = fence_of(request.fence)

    async def once() -> pb.DeleteResponse:
        stored, position = await backend.read(type.kind, key)
        if stored is None or stored.id is None:
            return pb.DeleteResponse(position=position.message())
        if wanted_uid and stored.id.uid != wanted_uid:
            # Without what is there instead, a cache would take the answer for "nothing bears this name" and refuse
            # the creation of the other incarnation, whose event may still be on its way, as older than the answer.
            return pb.DeleteResponse(position=position.message(), resource=stored)
        check_version(stored, type.name.version)
        if request.version and request.version != stored.version:
            raise conflict(f"{name} is stored at version {stored.version}, not {request.version}; read it again")
        if not finalizers(stored.metadata):
            removal = Remove(type.kind, key, stored.id.uid, stored.version)
            position = await backend.commit((removal,), fence)
            return pb.DeleteResponse(position=position.message())
        if is_marked(stored.metadata):
            return pb.DeleteResponse(position=position.message(), resource=stored)
        marked = _marked(stored)
        position = await backend.commit((Put(type.kind, key, marked, stored.version),), fence)
        return pb.DeleteResponse(position=position.message(), resource=marked)

    return await attempt(once, blanket=not request.version)


def _marked(stored: pb.Resource) -> pb.Resource:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return pb.Resource(
        id=stored.id,
        owner=stored.owner,
        generation=ulid_now(),
        metadata={**stored.metadata, DELETION_TIMESTAMP: now},
        status=stored.status,
        data=stored.data,
    )

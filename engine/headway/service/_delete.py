"""Delete: remove a resource, or mark it while finalizers hold it."""

from __future__ import annotations

import datetime

from grpclib import GRPCError

from headway.resource import (
    DELETION_TIMESTAMP,
    TOMBSTONE,
    Position,
    Registry,
    finalizers,
    is_marked,
    pb,
    resource_id,
)
from headway.service._access import Access
from headway.service._admission import admit_fence, admit_id
from headway.service._bounds import check_text
from headway.service._fence import check_fence, check_store
from headway.service._generation import generation_after
from headway.service._read import checked_version
from headway.service._refusals import conflict
from headway.service._removal import removal_with
from headway.service._retry import attempt
from headway.service._tenancy import check_deletable
from headway.service._tombstone import check_done, tombstone_of
from headway.service._versions import Versions
from headway.storage import Backend, Fence, Put, Remove, Require, RequireOwnsNothing, StillOwns


async def delete(
    backend: Backend, registry: Registry, access: Access, versions: Versions, request: pb.DeleteRequest
) -> pb.DeleteResponse:
    """Delete what is there; what isn't there (or is another incarnation) is deleted already.

    Answers with a position and with what bears the name at that position: nothing, the resource marked for deletion
    where finalizers hold it, or another incarnation where the request named one that is gone. A caller who may not read
    what bears the name, and deletes nothing of it, gets the answer for a name that is free.
    """
    type, key = admit_id(registry, access, request.id, "id")
    assert request.id is not None
    access.check_delete(request.id)
    fence = admit_fence(access, request.fence)
    check_text("version", request.version)
    check_deletable(type.kind, request.id.name)
    wanted_uid = given_uid = request.id.uid
    name = resource_id(request.id)
    view = versions.view(type)

    def check_guess() -> None:
        """Refuse a version that a caller who may not read guesses: alike whether or not there is another one."""
        assert request.id is not None
        if request.version and not given_uid and not access.may_read(request.id):
            raise conflict(f"{name} is not stored at version {request.version}, or it may not be read by you")

    async def once() -> pb.DeleteResponse:
        nonlocal wanted_uid
        check_store(backend, request.store_id)
        stored, position = await backend.read(type.kind, key)
        seen = None if stored is None else view(stored)
        shown = stored is not None and access.shows(stored if seen is None else seen)
        if stored is None or stored.id is None or not (shown or _is_meant(stored, seen, wanted_uid)):
            await check_fence(backend, fence)
            check_guess()
            return pb.DeleteResponse(position=position.message())
        if wanted_uid and stored.id.uid != wanted_uid:
            await check_fence(backend, fence)
            # Without what is there instead, a cache would take the answer for "nothing bears this name" and refuse
            # the creation of the other incarnation, whose event may still be on its way, as older than the answer.
            return pb.DeleteResponse(position=position.message(), resource=stored if seen is None else seen)
        if not shown and request.version != stored.version:
            check_guess()
        try:
            checked_version(stored, seen, type.name.version)
            if request.version and request.version != stored.version:
                raise conflict(f"{name} is stored at version {stored.version}, not {request.version}; read it again")
            if type.kind == TOMBSTONE.kind and not finalizers(stored.metadata):
                await check_done(backend, stored)
        except GRPCError as error:
            raise access.redacted(error, stored if seen is None else seen) from None
        if not finalizers(stored.metadata):
            # Who loses the race looks again, and deletes nothing else in its place: by then the name may have been
            # given to another incarnation, which is answered with.
            wanted_uid = stored.id.uid
            position = await _removed(backend, Remove(type.kind, key, wanted_uid, stored.version), stored, fence)
            # Nothing bears the name there.
            return pb.DeleteResponse(position=position.message())
        if is_marked(stored.metadata):
            await check_fence(backend, fence)
            if not shown:
                # This call has done nothing of it.
                check_guess()
                return pb.DeleteResponse(position=position.message())
            return pb.DeleteResponse(position=position.message(), resource=seen)
        marked = _marked(stored)
        position = await backend.commit((Put(type.kind, key, marked, stored.version),), fence)
        return pb.DeleteResponse(position=position.message(), resource=view(marked))

    reply = await attempt(once, blanket=not request.version)
    if (left := reply.resource) is not None:
        mark = {DELETION_TIMESTAMP: left.metadata[DELETION_TIMESTAMP]} if is_marked(left.metadata) else {}
        reply.resource = access.answered(left, pb.Resource(metadata=mark))
    return reply


def _is_meant(stored: pb.Resource, seen: pb.Resource | None, uid: str) -> bool:
    """Return True if this is the incarnation, and can be seen as the version of the kind, that a request names."""
    assert stored.id is not None
    return uid in ("", stored.id.uid) and seen is not None


async def _removed(backend: Backend, removal: Remove, stored: pb.Resource, fence: Fence | None) -> Position:
    """Remove what is stored. Raises VersionConflict when another has removed or changed it: nothing was done then.

    What owns something leaves a tombstone. Most own nothing, and what they own is asked in the removal's own commit:
    nothing can be created with an owner that isn't there in its own commit, so nothing can come later.
    """
    # A removal of what isn't there is no error; with this, a commit that is made has removed it.
    there = Require(removal.kind, removal.key, removal.uid, removal.expected)
    besides = await removal_with(backend, stored)
    try:
        return await backend.commit((there, removal, *besides, RequireOwnsNothing(removal.uid)), fence)
    except StillOwns:
        return await backend.commit((there, removal, *besides, tombstone_of(stored)), fence)


def _marked(stored: pb.Resource) -> pb.Resource:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return pb.Resource(
        id=stored.id,
        owner=stored.owner,
        generation=generation_after(stored.generation),
        metadata={**stored.metadata, DELETION_TIMESTAMP: now},
        status=stored.status,
        data=stored.data,
    )

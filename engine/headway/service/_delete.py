"""Delete: remove a resource, or mark it while finalizers hold it."""

from __future__ import annotations

from headway.api import Call
from headway.base import utc_now
from headway.errors import Conflict, HeadwayError
from headway.resource import DELETION_TIMESTAMP, TOMBSTONE, Position, finalizers, is_marked, pb, resource_id
from headway.service._admission import admit_id, rules_for
from headway.service._bounds import check_text
from headway.service._context import Context
from headway.service._deletion import check_done, removal_with, tombstone_of
from headway.service._fences import admit_fence, check_fence
from headway.service._writing import attempt, check_deletable, check_store, generation_after
from headway.storage import Backend, Fence, Put, Remove, Require, RequireOwnsNothing, StillOwns


async def delete(context: Context, _call: Call, request: pb.DeleteRequest) -> pb.DeleteResponse:
    """Delete the resource, or succeed if it (or the incarnation that the request names) is already deleted.

    Returns a position, and the resource that has the name at that position:

    - none, if the resource was removed,
    - the resource marked for deletion, if finalizers hold it,
    - another incarnation, if the request named a deleted one.

    A caller who may not read the resource, and deletes nothing, gets the answer for a free name.
    """
    backend, access = context.backend, context.access
    type, key = admit_id(access, request.id, "id")
    assert request.id is not None
    access.check_delete(request.id)
    for rules in rules_for(access, type.kind, key):
        rules.check_key(access, type.kind, key)
    fence = admit_fence(access, request.fence)
    check_text("version", request.version)
    check_deletable(type.kind, request.id.name)
    wanted_uid = given_uid = request.id.uid
    name = resource_id(request.id)
    form = context.forms.of(type)

    def check_guess() -> None:
        """Refuse a version guessed by a caller who may not read the resource, whether or not another one is stored."""
        assert request.id is not None
        if request.version and not given_uid and not access.may_read(request.id):
            raise Conflict(f"{name} is not stored at version {request.version}, or you may not read it")

    async def once() -> pb.DeleteResponse:
        nonlocal wanted_uid
        check_store(backend, request.store_id)
        stored, position = await backend.read(type.kind, key)
        seen = None if stored is None else await form.seen(stored)
        shown = stored is not None and access.shows(stored if seen is None else seen)
        if stored is None or stored.id is None or not (shown or _is_meant(stored, seen, wanted_uid)):
            await check_fence(backend, fence)
            check_guess()
            return pb.DeleteResponse(position=position.message())
        if wanted_uid and stored.id.uid != wanted_uid:
            await check_fence(backend, fence)
            # Without the resource in the answer, a cache would conclude that the name is free. It would then refuse the
            # creation of the other incarnation, whose event may still be on its way, as older than the answer.
            return pb.DeleteResponse(position=position.message(), resource=stored if seen is None else seen)
        if not shown and request.version != stored.version:
            check_guess()
        try:
            form.checked(stored, seen)
            if request.version and request.version != stored.version:
                raise Conflict(f"{name} is stored at version {stored.version}, not {request.version}; read it again")
            if type.kind == TOMBSTONE.kind and not finalizers(stored.metadata):
                await check_done(backend, stored)
        except HeadwayError as error:
            access.redact(error, stored if seen is None else seen)
            raise
        if not finalizers(stored.metadata):
            # A delete that loses the race reads again, but only deletes this incarnation. By that time the name may
            # belong to another incarnation, which is then returned.
            wanted_uid = stored.id.uid
            position = await _removed(backend, Remove(type.kind, key, wanted_uid, stored.version), stored, fence)
            if context.journal is not None:
                context.journal.add(position.revision, type.name, key, "deleted", fence, access.caller_name)
            # No resource has this name at that position.
            return pb.DeleteResponse(position=position.message())
        if is_marked(stored.metadata):
            await check_fence(backend, fence)
            if not shown:
                # This call changed nothing, so the caller learns nothing.
                check_guess()
                return pb.DeleteResponse(position=position.message())
            return pb.DeleteResponse(position=position.message(), resource=seen)
        marked = _marked(stored)
        position = await backend.commit((Put(type.kind, key, marked, stored.version),), fence)
        if context.journal is not None:
            context.journal.add(position.revision, type.name, key, "marked for deletion", fence, access.caller_name)
        return pb.DeleteResponse(position=position.message(), resource=await form.seen(marked))

    reply = await attempt(once, context.turns, (type.kind, key), blanket=not request.version)
    if (left := reply.resource) is not None:
        mark = {DELETION_TIMESTAMP: left.metadata[DELETION_TIMESTAMP]} if is_marked(left.metadata) else {}
        reply.resource = access.answered(left, pb.Resource(metadata=mark))
    return reply


def _is_meant(stored: pb.Resource, seen: pb.Resource | None, uid: str) -> bool:
    """Return True if the request names this incarnation and it can be seen as the requested version."""
    assert stored.id is not None
    return uid in ("", stored.id.uid) and seen is not None


async def _removed(backend: Backend, removal: Remove, stored: pb.Resource, fence: Fence | None) -> Position:
    """Remove the stored resource. Raises VersionConflict, and does nothing, if it was removed or changed since.

    If the resource owns others, a tombstone is stored in its place. Most resources own nothing. The commit itself
    verifies that: an owner must exist in the commit that creates what it owns, so nothing can be added afterwards.
    """
    # Removing a missing resource succeeds. With this requirement, a successful commit has removed it.
    there = Require(removal.kind, removal.key, removal.uid, removal.expected)
    pending = await removal_with(backend, stored)
    try:
        return await backend.commit((there, removal, *pending, RequireOwnsNothing(removal.uid)), fence)
    except StillOwns:
        return await backend.commit((there, removal, *pending, tombstone_of(stored)), fence)


def _marked(stored: pb.Resource) -> pb.Resource:
    now = utc_now().isoformat(timespec="seconds").replace("+00:00", "Z")
    return pb.Resource(
        id=stored.id,
        owner=stored.owner,
        generation=generation_after(stored.generation),
        metadata={**stored.metadata, DELETION_TIMESTAMP: now},
        status=stored.status,
        data=stored.data,
    )

"""Positions: where the store is, and checks of the positions that callers know or ask for."""

from __future__ import annotations

from typing_extensions import override

from headway._gen.headway.store import v1 as store_pb
from headway.api import Call, StoreApi
from headway.errors import HistoryCompacted, Unavailable
from headway.resource import ANY_VERSIONS, Kind, Position, Registry, TypeName, pb, position
from headway.service._access import RIGHTS, AccessChecks, Permissions
from headway.service._admission import resolve
from headway.service._bounds import check_text
from headway.storage import Backend, Within

PositionRequest = store_pb.PositionRequest

POSITION = "/headway.store.v1.StoreService/Position"


class StoreService(StoreApi):
    """Position over a store, for the types of a registry.

    Args:
        permissions: what each caller may do; without them, every caller may do everything.
    """

    def __init__(self, backend: Backend, registry: Registry, permissions: Permissions | None = None) -> None:
        self._backend = backend
        self._access = AccessChecks(permissions, registry)

    @override
    async def position(self, call: Call, request: store_pb.PositionRequest) -> store_pb.PositionResponse:
        """Return the position of the store to a caller who may do anything with the type of the request."""
        type = resolve(self._access, request.type, "type")
        check_position(request.known, "known")
        here = await current_position(self._backend)
        await check_known(self._backend, type.kind, position(request.known))
        return store_pb.PositionResponse(position=here.message())


async def current_position(backend: Backend) -> Position:
    """Return the position of a store, which includes every commit that was acknowledged before."""
    # `Backend.position` may lag behind the commits of other engines. A read does not, whatever it looks for.
    _, here = await backend.read(("", ""), ("", "", ""))
    return here


def check_position(message: pb.Position | None, field: str) -> None:
    """Refuse a position with ids longer than any store has."""
    if message is not None:
        check_text(f"{field}.store_id", message.store_id)
        check_text(f"{field}.incarnation", message.incarnation)
        check_text(f"{field}.versions", message.versions)


def check_revision(position: Position, min_revision: int) -> None:
    """Refuse to answer from a state below the revision that the caller already knows."""
    if position.revision < min_revision:
        raise Unavailable(f"this store is at revision {position.revision}, below min_revision {min_revision}")


async def check_known(backend: Backend, kind: Kind, known: Position | None) -> None:
    """Raise StoreMismatch if the store has never been at ``known``. None skips the check.

    Two kinds of positions cannot be checked and pass: those above the store's current one, and those so old that their
    session or the changes since are no longer kept.
    """
    if known is None:
        return
    try:
        watch = await backend.watch(kind, Within(), known)
    except HistoryCompacted:
        return
    watch.close()


def check_versions(type: TypeName, contained: str, resume_after: Position) -> None:
    """Raise HistoryCompacted if a watch would resume one that contained other versions of the kind, or other resources.

    What the type's form contains has changed since then, or the caller's rights have. Earlier changes are not sent
    again. A resumed watch would therefore lack the resources that have become visible, and keep those that no longer
    are.
    """
    if resume_after.versions in (ANY_VERSIONS, contained):
        return
    then, now = resume_after.versions.partition(RIGHTS)[0], contained.partition(RIGHTS)[0]
    if then == now:
        raise HistoryCompacted(
            f"position {resume_after.revision} belongs to a watch of {type} under other rights to read, so this one "
            "must begin with a snapshot"
        )
    raise HistoryCompacted(
        f"position {resume_after.revision} belongs to a watch of {type} that contained versions "
        f"{then or type.version}; this one contains versions {now or type.version}, so "
        "it must begin with a snapshot"
    )

"""The shared types of a process: each is opened by the first run that asks for it, and followed until the end."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway.cache import Follower
from headway.cache._cached_type import CachedType
from headway.cache._informer import Informer
from headway.cache._isolation import Isolation
from headway.cache._projection import Projection, stored_type
from headway.errors import PermissionDenied, StoreChanged, StoreRolledBack, Unavailable
from headway.events import Report, StreamEnded
from headway.resource import Position, TypeName, pb, position
from headway.rpc import Channel

_LIST_BY_OWNER = "/headway.resource.v1.ResourceService/ListByOwner"
_WENT_BACK_WAIT = 5.0


class PositionDenied(PermissionDenied, Unavailable):
    """The caller may not ask where the store stands. A stream goes on without knowing it."""


class Informers:
    """Opens and holds shared types.

    Args:
        channel: where streams come from.
        nursery: the engine's; every stream's task lives in it.
        lag_limit: seconds that a stream may stand below what is known before another one is tried.
        isolation: checks what functions do with what they are given to read; None: nothing does.
    """

    def __init__(
        self,
        channel: Channel,
        nursery: trio.Nursery,
        report: Report,
        *,
        lag_limit: float = 30.0,
        isolation: Isolation | None = None,
    ) -> None:
        self._channel = channel
        self._nursery = nursery
        self._report = report
        self._lag_limit = lag_limit
        self.isolation = isolation
        # By type, and by projection of it; None: the whole.
        self._shared: dict[TypeName, dict[Projection[Any] | None, Informer]] = {}
        # What the task of each is doing: following, or waiting because the store went back.
        self._following: dict[Informer, trio.CancelScope] = {}

    def shared(self, type: CachedType[Any]) -> Informer:
        """The store and stream of a type, or of a projection, opened now if nobody has before."""
        of_type = self._shared.setdefault(type.name, {})
        projection = type if isinstance(type, Projection) else None
        shared = of_type.get(projection)
        if shared is None:
            shared = of_type[projection] = Informer(type, self._report, self.isolation)
            form = "" if projection is None else f" as {projection.payload.__name__}"
            self._nursery.start_soon(shared.bounded.report_rest, name=f"reporting payloads of {type.name}{form}")
            self._nursery.start_soon(self._follow, shared, name=f"the stream of {type.name}{form}")
        return shared

    def known(self, type: CachedType[Any]) -> Collection[Informer]:
        """The stores of a type that are open: that of the whole, and those of its projections."""
        return self._shared.get(type.name, {}).values()

    @property
    def went_back(self) -> bool:
        """True if the store was rolled back, and has not been accepted."""
        return any(shared.went_back for of_type in self._shared.values() for shared in of_type.values())

    def accept_store(self) -> bool:
        """If the store went back: forget everything of it, of every type, and begin anew with what it has now.

        Returns whether it went back. Never blocks; the runs begin again when their supervisors let them.
        """
        if not self.went_back:
            return False
        for scope in self._following.values():
            scope.cancel()
        return True

    async def _follow(self, shared: Informer) -> None:
        while True:
            error = StoreChanged(
                f"what was held of {shared.type.name} was given up: the store has been accepted as it is"
            )
            with trio.CancelScope() as self._following[shared]:
                error = await self._follow_one_store(shared)
            self._report(StreamEnded(shared.type.name, str(error), 0))
            shared.void(error, replaced=True)

    async def _follow_one_store(self, shared: Informer) -> StoreChanged:
        """Returns when the store is another one."""
        type, lag_limit = shared.type, self._lag_limit
        linearizable = partial(self.linearizable, type)
        follower = Follower(stored_type(type), self._channel, shared, self._report, linearizable, lag_limit)
        try:
            await follower.run()
        except StoreChanged as error:
            return error
        except StoreRolledBack as error:
            self._report(StreamEnded(type.name, str(error), 0))
            shared.void(error, replaced=False)
        # Only an operator, or another id, can mend this: a store that grows past where it stood has another history.
        # What is held stays as the evidence.
        while True:
            await trio.sleep(_WENT_BACK_WAIT)
            try:
                with trio.move_on_after(lag_limit):
                    here = await self.linearizable(type)
                    if here.store_id != shared.store_id:
                        return StoreChanged(f"the store is {here.store_id}, not {shared.store_id} any more")
            except Unavailable:
                continue

    async def linearizable(self, type: CachedType[Any], known: Position | None = None) -> Position:
        """Where the store really stands, by a read that every acknowledged commit is in.

        Raises StoreRolledBack when it has never stood at ``known``, Unavailable when it can't be asked, PositionDenied
        when a right is missing.
        """
        nobody = pb.Id(
            type=type.name.message(),
            name="nobody",
            uid="none",
        )
        asked = None if known is None else known.message()
        try:
            reply = await self._channel.unary(
                _LIST_BY_OWNER, pb.ListByOwnerRequest(owner=nobody, known=asked), pb.ListByOwnerResponse
            )
        except GRPCError as error:
            if known is not None and error.status is Status.DATA_LOSS:
                raise StoreRolledBack(f"store {known.store_id} has lost what it had told: {error.message}") from error
            if error.status is Status.PERMISSION_DENIED:
                raise PositionDenied(
                    f"{error.message}; a worker learns where the store stands by asking for what {nobody.name!r} owns"
                ) from error
            raise Unavailable(f"{error.status.name}: {error.message}") from error
        at = position(reply.position)
        if at is None:
            raise Unavailable("the server's answer has no position: it is not a Headway server")
        return at

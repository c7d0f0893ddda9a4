"""The shared types of a process: each is opened by the first run that asks for it, and followed until the end."""

from __future__ import annotations

from typing import Any

import trio
from grpclib import GRPCError

from headway.cache._shared import SharedType
from headway.errors import StoreChanged, StoreWentBack, Unavailable
from headway.events import Report, StreamEnded
from headway.resource import Position, ResourceType, TypeName, pb, position
from headway.rpc import Channel
from headway.watch import Follower

_LIST_BY_OWNER = "/headway.resource.v1.ResourceService/ListByOwner"
_WENT_BACK_WAIT = 5.0


class Hub:
    """Opens and holds shared types.

    Args:
        channel: where streams come from.
        nursery: the engine's; every stream's task lives in it.
        lag_limit: seconds that a stream may stand below what is known before another one is tried.
    """

    def __init__(self, channel: Channel, nursery: trio.Nursery, report: Report, *, lag_limit: float = 30.0) -> None:
        self._channel = channel
        self._nursery = nursery
        self._report = report
        self._lag_limit = lag_limit
        self._shared: dict[TypeName, SharedType] = {}
        # What each type's task is doing: following, or waiting because the store went back.
        self._following: dict[TypeName, trio.CancelScope] = {}

    def shared(self, type: ResourceType[Any]) -> SharedType:
        """The type's store and stream, opened now if nobody has before."""
        shared = self._shared.get(type.name)
        if shared is None:
            shared = self._shared[type.name] = SharedType(type, self._report)
            self._nursery.start_soon(self._follow, shared, name=f"the stream of {type.name}")
        return shared

    def known(self, type: ResourceType[Any]) -> SharedType | None:
        """The type's store, if it is open."""
        return self._shared.get(type.name)

    def accept_store(self) -> bool:
        """If the store went back: forget everything of it, of every type, and begin anew with what it has now.

        Returns whether it went back. Never blocks; the runs begin again when their supervisors let them.
        """
        if not any(shared.went_back for shared in self._shared.values()):
            return False
        for scope in self._following.values():
            scope.cancel()
        return True

    async def _follow(self, shared: SharedType) -> None:
        while True:
            error = StoreChanged(
                f"what was held of {shared.type.name} was given up: the store has been accepted as it is"
            )
            with trio.CancelScope() as self._following[shared.type.name]:
                error = await self._follow_one_store(shared)
            self._report(StreamEnded(shared.type.name, str(error), 0))
            shared.void(error, replaced=True)

    async def _follow_one_store(self, shared: SharedType) -> StoreChanged:
        """Returns when the store is another one."""
        type, lag_limit = shared.type, self._lag_limit
        follower = Follower(type, self._channel, shared, self._report, lambda: self.linearizable(type), lag_limit)
        try:
            await follower.run()
        except StoreChanged as error:
            return error
        except StoreWentBack as error:
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

    async def linearizable(self, type: ResourceType[Any]) -> Position:
        """Where the store really stands, by a read that every acknowledged commit is in."""
        nobody = pb.Id(
            type=type.name.message(),
            name="nobody",
            uid="none",
        )
        try:
            reply = await self._channel.unary(
                _LIST_BY_OWNER, pb.ListByOwnerRequest(owner=nobody), pb.ListByOwnerResponse
            )
        except GRPCError as error:
            raise Unavailable(f"{error.status.name}: {error.message}") from error
        at = position(reply.position)
        if at is None:
            raise Unavailable("the server's answer has no position: it is not a Headway server")
        return at

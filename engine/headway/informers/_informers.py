"""The informers of a process. Each is opened by the first run that needs it, and followed until the end."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import trio

from headway._gen.headway.store import v1 as store_pb
from headway.api import Call, Channel, Code, StoreApi, call_of, described
from headway.cache import CachedType, Informer, Isolation, Projection
from headway.errors import HeadwayError, PermissionDenied, StoreChanged, StoreRolledBack, Unavailable
from headway.events import Report
from headway.informers._follower import Follower
from headway.resource import Position, ScopedType, TypeName, position

_ROLLED_BACK_WAIT = 5.0


class PositionDenied(PermissionDenied, Unavailable):
    """The caller lacks the right to read the store's position. A stream continues without knowing it."""


class Informers:
    """The informers of a process.

    Args:
        channel: opens the streams.
        nursery: the engine's nursery, which runs the task of every stream.
        lag_limit: the time, in seconds, that a stream may lag behind the known revision before it is replaced.
        isolation: checks functions for mutated arguments; None disables the checks.
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
        # By type and by its scope or projection; None is the whole type.
        self._informers: dict[TypeName, dict[_Part | None, Informer]] = {}
        # Each follows one store after the other, or waits because the store was rolled back.
        self._followers: dict[Informer, Follower] = {}
        self._reporting: dict[Informer, trio.CancelScope] = {}
        # The number of readers of each informer that will close; None if one of them lasts to the end.
        self._held: dict[Informer, int | None] = {}

    def informer_for(self, type: CachedType[Any]) -> Informer:
        """Return the informer of a type, scope or projection. It is opened if needed, and followed to the end."""
        informer = self._informer(type)
        self._held[informer] = None
        return informer

    @contextmanager
    def held(self, type: CachedType[Any]) -> Iterator[Informer]:
        """Provide the informer of a type, scope or projection for a block.

        With the last such block the informer is closed, unless `informer_for` has returned it.
        """
        informer = self._informer(type)
        self._count(informer, 1)
        try:
            yield informer
        finally:
            if self._count(informer, -1) == 0:
                self._followers.pop(informer).close()
                self._reporting.pop(informer).cancel()
                del self._held[informer], self._informers[type.name][_part(type)]

    def _count(self, informer: Informer, more: int) -> int | None:
        held = self._held.get(informer, 0)
        self._held[informer] = None if held is None else held + more
        return self._held[informer]

    def _informer(self, type: CachedType[Any]) -> Informer:
        of_type = self._informers.setdefault(type.name, {})
        part = _part(type)
        informer = of_type.get(part)
        if informer is None:
            informer = of_type[part] = Informer(type, self._report, self.isolation)
            form = f" {part!r}" if isinstance(part, ScopedType) else f" as {part.payload.__name__}" if part else ""
            follower = Follower(
                self._channel,
                informer,
                self._report,
                partial(self.linearizable, type),
                self._lag_limit,
                another_store=self._another_store,
            )
            self._followers[informer] = follower
            self._nursery.start_soon(follower.follow, name=f"the stream of {type.name}{form}")
            self._reporting[informer] = trio.CancelScope()
            self._nursery.start_soon(self._report_rest, informer, name=f"reporting payloads of {type.name}{form}")
        return informer

    async def _another_store(self, informer: Informer) -> StoreChanged:
        """Wait until the store's id is no longer the id of a rolled-back informer.

        Only that or an operator can solve a rollback: a store that grows past its old revision has another history. The
        cached data is kept as evidence.
        """
        before = informer.store.store_id
        while True:
            await trio.sleep(_ROLLED_BACK_WAIT)
            with trio.move_on_after(self._lag_limit), suppress(Unavailable):
                here = await self.linearizable(informer.type)
                if here.store_id != before:
                    return StoreChanged(f"the store is now {here.store_id}, no longer {before}")

    async def _report_rest(self, informer: Informer) -> None:
        with self._reporting[informer]:
            await informer.bounded.report_rest()

    def opened(self, type: CachedType[Any]) -> Collection[Informer]:
        """Return the open informers of a type: that for the whole type, and those for its scopes and projections."""
        return self._informers.get(type.name, {}).values()

    @property
    def rolled_back(self) -> bool:
        """True if the store was rolled back and has not been accepted."""
        return any(informer.rolled_back for of_type in self._informers.values() for informer in of_type.values())

    def accept_store(self) -> bool:
        """Discard the data of every type, and begin anew with the store's content, if the store was rolled back.

        Return True if it was rolled back. Never blocks; the supervisors restart the runs.
        """
        if not self.rolled_back:
            return False
        self.begin_anew()
        return True

    def begin_anew(self) -> None:
        """Discard the data of every type, and begin anew with the store's content. Never blocks."""
        for follower in self._followers.values():
            follower.scope.cancel()

    async def linearizable(self, type: CachedType[Any], known: Position | None = None) -> Position:
        """Return the store's current position, from a read that includes every acknowledged commit.

        Raises StoreRolledBack if the store never had the position ``known``, Unavailable if the read fails, and
        PositionDenied if a right is missing.
        """
        request = store_pb.PositionRequest(type=type.name.message(), known=None if known is None else known.message())
        try:
            reply = await StoreApi.over(self._channel).position(Call(), request)
        except HeadwayError as error:
            call = call_of(error)
            if call is None:
                raise
            if known is not None and call.code is Code.DATA_LOSS:
                raise StoreRolledBack(
                    f"store {known.store_id} has lost data that it delivered: {call.message}"
                ) from error
            if call.code is Code.PERMISSION_DENIED:
                raise PositionDenied(
                    f"{call.message}; reading the store's position needs a right to {type.name}"
                ) from error
            if call.code is Code.UNIMPLEMENTED:
                raise Unavailable(
                    f"the server does not serve the position of its store ({call.message}): update the server to this "
                    "version of Headway"
                ) from error
            raise Unavailable(described(error)) from error
        at = position(reply.position)
        if at is None:
            raise Unavailable("the server's response has no position: it is not a Headway server")
        return at


_Part = ScopedType[Any] | Projection[Any]


def _part(type: CachedType[Any]) -> _Part | None:
    return type if isinstance(type, ScopedType | Projection) else None

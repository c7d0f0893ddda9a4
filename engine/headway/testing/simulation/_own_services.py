"""The services of a process that opens the store itself, as engines on one etcd do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from grpclib import GRPCError
from grpclib.const import Status

from headway.resource import Registry
from headway.rpc import InProcessChannel, Metadata
from headway.service import LeaseService, ResourceService, StoreService, TypesService
from headway.storage import Backend

if TYPE_CHECKING:
    from headway.testing.simulation._world import World


class OwnServices:
    """A `Channel` to services over the world's store, with the types of one process's program.

    Args:
        is_up: returns False while the store is unavailable.
    """

    knows_outcomes = False

    def __init__(self, world: World, registry: Registry, is_up: Callable[[], bool]) -> None:
        self._world = world
        self._registry = registry
        self._is_up = is_up
        self._store: Backend | None = None
        self._channel: InProcessChannel

    def _over_the_store(self) -> InProcessChannel:
        if not self._is_up():
            raise GRPCError(Status.UNAVAILABLE, "the store is unavailable")
        store = self._world.store
        if self._store is not store:
            # The world may have replaced its store with a backup.
            self._store = store
            self._channel = InProcessChannel(
                ResourceService(store, self._registry),
                LeaseService(store),
                StoreService(store, self._registry),
                TypesService(self._registry),
            )
        return self._channel

    async def unary(
        self, path: str, request: object, reply_type: type[Any], *, metadata: Metadata | None = None
    ) -> Any:
        """Call the process's own services."""
        return await self._over_the_store().unary(path, request, reply_type, metadata=metadata)

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a stream from the process's own services."""
        return self._over_the_store().stream(path, request, metadata=metadata)

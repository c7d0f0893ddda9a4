"""Strong reads, which read the store itself and are never behind what the run has seen."""

from __future__ import annotations

import builtins
from typing import TypeVar

from headway.cache import Cache
from headway.client import Client
from headway.protobuf import Payload
from headway.resource import Resource, ResourceId, ResourceType

T = TypeVar("T", bound=Payload)


class StrongReads:
    """Reads of the store that bypass the cache, for any type, watched or not. Available as ``Runtime.strong``.

    A result is never older than anything that the run's cache has shown for any type, nor than the start of the run. A
    server that is behind that raises Unavailable (in a reconcile, the key is retried). A result may be newer than the
    cache, so a later read of the cache may show an older state. Each read costs a call.
    """

    def __init__(self, cache: Cache, client: Client) -> None:
        self._cache = cache
        self._client = client
        # The revision of the run's start.
        self.began_at = 0

    async def get(
        self, type: ResourceType[T], id: str | ResourceId, *, partition: str = "", namespace: str = ""
    ) -> Resource[T] | None:
        """Return a resource or None, like `Client.get`."""
        return await self._client.get(type, id, partition=partition, namespace=namespace, min_revision=self._at_least)

    async def read(
        self, type: ResourceType[T], id: str | ResourceId, *, partition: str = "", namespace: str = ""
    ) -> Resource[T]:
        """Return a resource, or raise NotFound, like `Client.read`."""
        return await self._client.read(type, id, partition=partition, namespace=namespace, min_revision=self._at_least)

    async def list(
        self,
        type: ResourceType[T],
        *,
        partition: str = "*",
        namespace: str = "*",
        name_prefix: str = "",
        filter: str = "",
    ) -> builtins.list[Resource[T]]:
        """Return the resources of a type, like `Client.list`."""
        return await self._client.list(
            type,
            partition=partition,
            namespace=namespace,
            name_prefix=name_prefix,
            filter=filter,
            min_revision=self._at_least,
        )

    @property
    def _at_least(self) -> int:
        return max(self.began_at, self._cache.newest)

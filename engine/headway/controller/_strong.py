"""Strong reads: of the store itself, and never behind what the run has seen."""

from __future__ import annotations

import builtins
from typing import TypeVar

from headway.cache import Cache
from headway.client import Client
from headway.resource import Payload, Resource, ResourceId, ResourceType

T = TypeVar("T", bound=Payload)


class StrongReads:
    """Reads that go past the cache to the store; of any type, watched or not. Made as ``Runtime.strong``.

    An answer is not older than anything that the run's cache has shown by then, of whichever type, nor than where the
    run began: a server that stands below that doesn't answer, and the read raises Unavailable (in a reconcile: the key
    is tried again). It may be newer than the cache, so that a read of the cache after it may show less. Each costs a
    call.
    """

    def __init__(self, cache: Cache, client: Client) -> None:
        self._cache = cache
        self._client = client
        # The revision at which the run began.
        self.began_at = 0

    async def get(
        self, type: ResourceType[T], id: str | ResourceId, *, partition: str = "", namespace: str = ""
    ) -> Resource[T] | None:
        """See `Client.get`."""
        return await self._client.get(type, id, partition=partition, namespace=namespace, min_revision=self._at_least)

    async def read(
        self, type: ResourceType[T], id: str | ResourceId, *, partition: str = "", namespace: str = ""
    ) -> Resource[T]:
        """See `Client.read`."""
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
        """See `Client.list`."""
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

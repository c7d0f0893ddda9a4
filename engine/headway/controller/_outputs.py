"""Outputs: the resources that a reconcile wants to exist. Others are pruned."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar

from headway.cache import Cache
from headway.client import Client
from headway.protobuf import Payload
from headway.resource import Key, Resource, ResourceType, tenancy_within

T = TypeVar("T", bound=Payload)


class Outputs(Generic[T]):
    """The resources of one type that one owner wants. Created by `Runtime.outputs`."""

    def __init__(
        self,
        cache: Cache,
        client: Client,
        type: ResourceType[T],
        owner: Resource[Any],
    ) -> None:
        self._cache = cache
        self._client = client
        self._type = type
        self._owner = owner
        self._wanted: set[Key] = set()

    async def __aenter__(self) -> Outputs[T]:
        return self

    async def apply(
        self,
        name: str,
        data: T,
        *,
        partition: str = "",
        namespace: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> Resource[T]:
        """Make the resource exist, owned by the owner. Write nothing if it already is as wanted.

        The partition and namespace default to the owner's, as far as the type has them.

        Raises Conflict if the resource has changed since it was cached (the key is reconciled again), and
        InvalidArgument if another owner has it or its location is invalid.
        """
        id, type = self._owner.id, self._type
        within = tenancy_within(type.scope, (partition, namespace), (id.partition, id.namespace))
        wanted = type.new(
            name,
            data,
            partition=partition or within[0],
            namespace=namespace or within[1],
            owner=id,
            metadata=metadata,
        )
        self._wanted.add(wanted.id.key)
        return await self._client.apply_over(self._cache.get(self._type, wanted.id), wanted)

    def keep(self, resource: Resource[T]) -> None:
        """Exclude a resource from pruning."""
        self._wanted.add(resource.id.key)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            return
        # The cache includes every write of this block (C5), so a resource that was just created is not pruned.
        for resource in self._cache.owned(self._type, self._owner):
            if resource.id.key not in self._wanted and not resource.is_deleting:
                # Check uid and version: a resource that has changed since then needs a new decision.
                await self._client.delete(resource, version=resource.version)

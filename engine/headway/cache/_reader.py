"""The read face of a run's cache: what reconcilers and mappers see."""

from __future__ import annotations

import builtins
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

from headway.cache._indexes import IndexTable
from headway.cache._shared import Subscription
from headway.errors import IndexIncomplete, InvalidArgument, NotPrimed, NotWatched
from headway.resource import Key, Payload, Resource, ResourceId, ResourceType, TypeName, did_you_mean

T = TypeVar("T", bound=Payload)


class CacheReader:
    """Reads a run's cache. Nothing waits, and nothing goes to the store.

    What is returned is yours to change. Reads see every change that triggered the reconcile, of every type of the
    controller, and every write that the controller has had acknowledged; they never go back (C2, C4, C5).

    Attributes:
        manages: the controller's managed type.

    Every read raises NotWatched for a type or index that the controller doesn't declare, and NotPrimed before the
    run is primed.
    """

    def __init__(self, controller: str, manages: ResourceType[Any], watches: Iterable[ResourceType[Any]]) -> None:
        self._controller = controller
        self.manages = manages
        self._declared = {manages.name, *(type.name for type in watches)}
        self._subscriptions: Mapping[TypeName, Subscription] = {}

    def open(self, subscriptions: Mapping[TypeName, Subscription]) -> None:
        """The run is primed: let reads through."""
        self._subscriptions = subscriptions

    def close(self) -> None:
        """The run has ended: reads raise NotPrimed from now on."""
        self._subscriptions = {}

    def get(
        self, type: ResourceType[T], id: str | ResourceId, *, partition: str = "", namespace: str = ""
    ) -> Resource[T] | None:
        """The resource, or None. ``id`` is a name, or an id (with a uid only that incarnation is found)."""
        wanted = type.id(id, partition=partition, namespace=namespace) if isinstance(id, str) else id
        if wanted.type != type.name and wanted.type.unversioned != type.kind:
            raise InvalidArgument(f"{wanted} is not a {type.name}: ask for it by its own type")
        stored = self._of(type).gate.entries.get((wanted.partition, wanted.namespace, wanted.name))
        if stored is None or (wanted.uid and stored.id is not None and stored.id.uid != wanted.uid):
            return None
        return Resource(type, stored)

    def list(
        self, type: ResourceType[T], *, partition: str = "*", namespace: str = "*", name_prefix: str = ""
    ) -> builtins.list[Resource[T]]:
        """All resources of a type, in order of partition, namespace and name; ``*`` is any."""
        entries = self._of(type).gate.entries
        keys = sorted(
            key
            for key in entries
            if partition in ("*", key[0]) and namespace in ("*", key[1]) and key[2].startswith(name_prefix)
        )
        return [Resource(type, entries[key]) for key in keys]

    def index(self, type: ResourceType[T], name: str, value: Hashable) -> builtins.list[Resource[T]]:
        """All resources that have this value in the named index, in order of key.

        Raises IndexIncomplete when the index's function has failed for some resource: the answer might lack it.
        """
        subscription, table = self._table(type, name)
        return self._resources(type, subscription, table.keys(value))

    def index_prefix(self, type: ResourceType[T], name: str, prefix: str) -> builtins.list[Resource[T]]:
        """All resources that have a text beginning so in the named index, in order of key."""
        subscription, table = self._table(type, name)
        return self._resources(type, subscription, table.keys_from(prefix))

    def revision(self, type: ResourceType[Any]) -> int:
        """The revision up to which the cache of this type is complete."""
        return self._of(type).gate.frontier

    def _of(self, type: ResourceType[Any]) -> Subscription:
        subscription = self._subscriptions.get(type.name)
        if subscription is not None:
            return subscription
        if type.name in self._declared:
            raise NotPrimed(f"the cache of {self._controller} is not primed (or its run has ended)")
        raise NotWatched(
            f"controller {self._controller} neither manages nor watches {type.name}: add it to `watches`, "
            "or read it by the client"
        )

    def _table(self, type: ResourceType[Any], name: str) -> tuple[Subscription, IndexTable]:
        subscription = self._of(type)
        table = subscription.tables.get(name)
        if table is None:
            hint = did_you_mean(name, subscription.tables)
            raise NotWatched(f"controller {self._controller} declares no index {name!r} on {type.name}{hint}")
        if table.failed:
            example = sorted(table.failed)[0]
            raise IndexIncomplete(
                f"index {name!r} on {type.name} lacks {len(table.failed)} resources for which its function raised, "
                f"such as {'/'.join(example)}"
            )
        return subscription, table

    @staticmethod
    def _resources(
        type: ResourceType[T], subscription: Subscription, keys: Iterable[Key]
    ) -> builtins.list[Resource[T]]:
        entries = subscription.gate.entries
        return [Resource(type, entries[key]) for key in sorted(keys)]

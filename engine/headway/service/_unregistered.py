"""A count of stored resources whose types are not registered, such as the data of an earlier program."""

from __future__ import annotations

from collections import Counter

from headway.resource import Registry, type_name
from headway.storage import Backend, Within


async def unregistered(backend: Backend, registry: Registry, partition: str, namespace: str) -> Counter[str]:
    """Return the number of resources in a tenancy by type, for types that are not registered.

    Each version of a kind counts separately: a list does not find resources stored as an unregistered version.
    """
    counts: Counter[str] = Counter()
    for kind in await backend.kinds():
        found, _ = await backend.list(kind, Within(partition, namespace))
        names = (type_name(resource.id.type if resource.id is not None else None) for resource in found)
        counts.update(str(name) for name in names if name not in registry)
    return counts

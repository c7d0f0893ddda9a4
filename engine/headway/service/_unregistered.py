"""What is stored that no registered type can be asked for: the data of a former program."""

from __future__ import annotations

from collections import Counter

from headway.resource import Registry, type_name
from headway.storage import Backend, Within


async def unregistered(backend: Backend, registry: Registry, partition: str, namespace: str) -> Counter[str]:
    """How many resources of each type that isn't registered are in a tenancy.

    A version of a kind counts for itself: what is stored as a version that isn't registered is found by no list.
    """
    counts: Counter[str] = Counter()
    for kind in await backend.kinds():
        found, _ = await backend.list(kind, Within(partition, namespace))
        names = (type_name(resource.id.type if resource.id is not None else None) for resource in found)
        counts.update(str(name) for name in names if name not in registry)
    return counts

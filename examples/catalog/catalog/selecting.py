"""The choice of workloads by a selector, and of the services that choose a workload.

A workload has the path `partition/namespace/name`. A selector has one path for each prefix, and one with an end mark
for each name. So the services that choose a workload are those with a path that begins the workload's own path.
"""

from __future__ import annotations

from collections.abc import Iterable

import headway
from catalog import metadata_filter
from catalog.messages import Service, Workload, WorkloadSelector
from catalog.types import SERVICE, WORKLOAD

_END = "/"
"""The end of a name in a path. No name contains it."""


def workload_path(workload: headway.Resource[Workload]) -> str:
    """Return the path of a workload, with an end mark."""
    return f"{_beside(workload.id)}{workload.name}{_END}"


def selected_paths(id: headway.ResourceId, selector: WorkloadSelector | None) -> set[str]:
    """Return the paths of the selector of a resource with this id."""
    if selector is None:
        return set()
    beside = _beside(id)
    return {beside + prefix for prefix in selector.prefixes} | {f"{beside}{name}{_END}" for name in selector.names}


def selects(selector: WorkloadSelector | None) -> bool:
    """Return True if the selector has a name or a prefix. Without one, it chooses nothing, whatever its filter says."""
    return selector is not None and bool(selector.names or selector.prefixes)


WORKLOADS_BY_PATH = headway.indexes.by(WORKLOAD, "path", workload_path)
SERVICES_BY_SELECTED = headway.indexes.by_many(
    SERVICE, "selected-workloads", lambda service: selected_paths(service.id, service.data.workloads)
)


def selecting_services(
    workload: headway.Resource[Workload], cache: headway.CacheReader
) -> list[headway.Resource[Service]]:
    """Return the services that select a workload by its name or a prefix of it. Their filters are not regarded."""
    return cache.index_parents(SERVICES_BY_SELECTED, workload_path(workload))


@headway.query(WORKLOAD, WORKLOADS_BY_PATH)
def selected_workloads(
    cache: headway.CacheReader, id: headway.ResourceId, selector: WorkloadSelector | None
) -> list[headway.Resource[Workload]]:
    """Return the workloads that the selector of a resource with this id chooses, each once, by their names.

    Raises:
        ValueError: the selector's filter is not valid.
    """
    if selector is None or not selects(selector):
        return []
    beside = _beside(id)
    found = {
        workload.name: workload
        for prefix in _shortest(selector.prefixes)
        for workload in cache.index_prefix(WORKLOADS_BY_PATH, beside + prefix)
    }
    for name in selector.names:
        if name not in found:
            # A selector may hold any text, also one that cannot be a name.
            workload = cache.get(WORKLOAD, headway.ResourceId(WORKLOAD.name, name, id.partition, id.namespace))
            if workload is not None:
                found[name] = workload
    if selector.filter:
        test = metadata_filter.parse(selector.filter)
        found = {name: workload for name, workload in found.items() if test(workload.metadata)}
    return [found[name] for name in sorted(found)]


def _beside(id: headway.ResourceId) -> str:
    return f"{id.partition}/{id.namespace}/"


def _shortest(prefixes: Iterable[str]) -> list[str]:
    """Return the prefixes that do not begin with another one, so that no workload is looked up twice."""
    kept: list[str] = []
    for prefix in sorted(prefixes):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return kept

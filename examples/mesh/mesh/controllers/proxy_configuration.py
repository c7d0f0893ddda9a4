"""Computed proxy configurations: all configurations that select a workload, merged; and whether each selects any."""

from __future__ import annotations

import dataclasses
from typing import Any

import headway
from catalog import metadata_filter
from catalog.computed import condition, delete_computed, write_computed
from catalog.messages import Workload
from catalog.ports import is_mesh_enabled
from catalog.selecting import WORKLOADS_BY_PATH, selected_paths, selected_workloads, workload_path
from catalog.statuses import content_or_status, write_status
from catalog.types import WORKLOAD
from headway import predicates
from headway.protobuf import copy_message
from mesh.application import app
from mesh.messages import ComputedProxyConfiguration, ProxyConfiguration
from mesh.routing.binding import CREATED
from mesh.types import COMPUTED_PROXY_CONFIGURATION, PROXY_CONFIGURATION

KEY = "consul.io/proxy-configuration-controller"
"""The key of the status on proxy configurations. Consul has none."""
SELECTING = condition("WorkloadsSelected", True, "the selector selects at least one workload", "WorkloadsFound")
NOT_SELECTING = condition("WorkloadsSelected", False, "the selector selects no workload", "NoWorkloadsFound")

BY_SELECTED = headway.indexes.by_many(
    PROXY_CONFIGURATION, "selected-workloads", lambda each: selected_paths(each.id, each.data.workloads)
)
State = headway.Resource[Any] | None


def of_selected(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the computed configurations of the workloads that a configuration selects, or did select."""
    ids = {
        workload.id.without_uid()
        for each in (old, new)
        if each is not None
        for workload in cache.query(selected_workloads, each.id, each.data.workloads)
    }
    return [id._replace(type=COMPUTED_PROXY_CONFIGURATION.name) for id in ids]


def selecting(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the configurations that select a workload by its name. Their filters are not regarded."""
    changed = new or old
    return [] if changed is None else [each.id for each in cache.index_parents(BY_SELECTED, workload_path(changed))]


def precedence(
    configuration: headway.Resource[ProxyConfiguration], workload: headway.Resource[Workload]
) -> tuple[bool, int, str, str]:
    """Return the key by which configurations of a workload are ordered, the best first.

    One that names the workload is better than one with a prefix, a longer prefix is better, and so is an older one.
    """
    selector = configuration.data.workloads
    names, prefixes = ([], []) if selector is None else (selector.names, selector.prefixes)
    longest = max((len(each) for each in prefixes if workload.name.startswith(each)), default=0)
    is_named = workload.name in names
    return (not is_named, 0 if is_named else -longest, configuration.uid[:CREATED], configuration.name)


def merged(
    found: list[headway.Resource[ProxyConfiguration]], workload: headway.Resource[Workload]
) -> ComputedProxyConfiguration:
    """Return the configurations of a workload as one.

    Of two values the better one counts unless it is 0 or empty, lists are joined, and maps have the keys of all.
    """
    data = ComputedProxyConfiguration()
    for each in sorted(found, key=lambda each: precedence(each, workload), reverse=True):
        data.dynamic_config = _over(data.dynamic_config, each.data.dynamic_config)
        data.bootstrap_config = _over(data.bootstrap_config, each.data.bootstrap_config)
    return data


def _over(worse: Any, better: Any) -> Any:
    """Return two messages as one, without a change of either."""
    if worse is None or better is None:
        return better if worse is None else worse
    made = copy_message(worse)
    for field in dataclasses.fields(better):
        old, new = getattr(worse, field.name), getattr(better, field.name)
        if isinstance(new, list):
            new = [*old, *new]
        elif isinstance(new, dict):
            new = old | new
        elif dataclasses.is_dataclass(new):
            new = _over(old, new)
        setattr(made, field.name, new or old)
    return made


@app.controller(
    name="proxy-configuration",
    manages=COMPUTED_PROXY_CONFIGURATION,
    when=predicates.not_own_writes(),
    watches=[
        headway.watch(PROXY_CONFIGURATION, headway.mappers.change(of_selected), when=predicates.content_changed()),
        headway.watch(WORKLOAD, headway.mappers.same_name(), when=predicates.content_changed()),
    ],
    indexes=[BY_SELECTED, WORKLOADS_BY_PATH],
    queries=[selected_workloads],
    writes=[COMPUTED_PROXY_CONFIGURATION],
    concurrency=8,
)
async def proxy_configuration(rt: headway.Runtime, request: headway.Request[ComputedProxyConfiguration]) -> None:
    """Merge the configurations of one workload, which owns the result."""
    workload = rt.cache.get(WORKLOAD, request.id._replace(type=WORKLOAD.name, uid=""))
    found: list[headway.Resource[ProxyConfiguration]] = []
    if workload is not None and is_mesh_enabled(workload.data):
        by_name = rt.cache.index_parents(BY_SELECTED, workload_path(workload))
        found = [each for each in by_name if _meets_filter(each, workload)]
    if workload is None or not found:
        await delete_computed(rt, rt.resource(request))
        return
    id = workload.id
    wanted = COMPUTED_PROXY_CONFIGURATION.new(
        id.name, merged(found, workload), partition=id.partition, namespace=id.namespace, owner=workload
    )
    await write_computed(rt, wanted)


def _meets_filter(configuration: headway.Resource[ProxyConfiguration], workload: headway.Resource[Workload]) -> bool:
    selector = configuration.data.workloads
    return selector is None or not selector.filter or metadata_filter.parse(selector.filter)(workload.metadata)


@app.controller(
    name="proxy-configuration-status",
    manages=PROXY_CONFIGURATION,
    when=content_or_status(KEY),
    watches=[headway.watch(WORKLOAD, headway.mappers.change(selecting), when=predicates.content_changed())],
    indexes=[BY_SELECTED, WORKLOADS_BY_PATH],
    queries=[selected_workloads],
    writes=[PROXY_CONFIGURATION],
    concurrency=8,
)
async def proxy_configuration_status(rt: headway.Runtime, request: headway.Request[ProxyConfiguration]) -> None:
    """Write into the status of one configuration whether it selects a workload."""
    resource = rt.resource(request)
    if resource is not None:
        found = rt.cache.query(selected_workloads, resource.id, resource.data.workloads)
        await write_status(rt, resource, KEY, [SELECTING if found else NOT_SELECTING])

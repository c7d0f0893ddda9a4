"""Computed explicit destinations: all valid destinations of each workload, and the statuses of the resources behind."""

from __future__ import annotations

from typing import Any

import headway
from catalog.computed import delete_computed, write_computed
from catalog.messages import Workload
from catalog.ports import is_mesh_enabled
from catalog.selecting import WORKLOADS_BY_PATH, selected_paths, selected_workloads, workload_path
from catalog.statuses import content_or_status, write_status
from catalog.types import SERVICE, WORKLOAD
from headway import predicates
from mesh import explicit
from mesh.application import app
from mesh.explicit import BY_SELECTED, KEY
from mesh.messages import ComputedExplicitDestinations, Destinations
from mesh.types import COMPUTED_EXPLICIT_DESTINATIONS, COMPUTED_ROUTES, DESTINATIONS

BY_SERVICE = headway.indexes.by_many(DESTINATIONS, "service", lambda each: [id.key for id in explicit.services(each)])

State = headway.Resource[Any] | None


def _computed(found: list[headway.Resource[Destinations]], cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the computed destinations of the workloads that resources select."""
    ids = {
        workload.id.without_uid()
        for each in found
        for workload in cache.query(selected_workloads, each.id, each.data.workloads)
    }
    return [id._replace(type=COMPUTED_EXPLICIT_DESTINATIONS.name) for id in ids]


def of_selected(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the computed destinations of the workloads that destinations select, or did select."""
    return _computed([each for each in (old, new) if each is not None], cache)


def of_users(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the computed destinations of the workloads that have a service, or its routes, as a destination."""
    changed = new or old
    return [] if changed is None else _computed(cache.index(BY_SERVICE, changed.id.key), cache)


def sharing_an_address(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the destinations that have, or had, an address of the changed ones, and may select the same workload."""
    return list({each.id for state in (old, new) if state is not None for each in _sharing(state, cache)})


def _sharing(resource: headway.Resource[Destinations], cache: headway.CacheReader) -> list[headway.Resource[Any]]:
    # By selectors and not by addresses: it is usual that all workloads use the same address.
    found = {
        each.name: each
        for path in selected_paths(resource.id, resource.data.workloads)
        for each in (*cache.index_parents(BY_SELECTED, path), *cache.index_prefix(BY_SELECTED, path))
    }
    own = explicit.addresses(resource)
    return [each for name, each in found.items() if name != resource.name and own & explicit.addresses(each)]


def selecting(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the destinations that select a workload by its name. Their filters are not regarded."""
    changed = new or old
    return [] if changed is None else [each.id for each in cache.index_parents(BY_SELECTED, workload_path(changed))]


def naming(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the destinations that name a service."""
    changed = new or old
    return [] if changed is None else [each.id for each in cache.index(BY_SERVICE, changed.id.key)]


def _validity(resource: headway.Resource[Destinations], cache: headway.CacheReader) -> explicit.Validity:
    found: dict[headway.ResourceId, explicit.Found] = {}
    for id in explicit.services(resource):
        service, routes = cache.get(SERVICE, id), cache.get(COMPUTED_ROUTES, id._replace(type=COMPUTED_ROUTES.name))
        found[id] = (service.data if service is not None else None, routes.data if routes is not None else None)
    return explicit.Validity(resource, found)


@app.controller(
    name="explicit-destinations",
    manages=COMPUTED_EXPLICIT_DESTINATIONS,
    when=predicates.not_own_writes(),
    watches=[
        headway.watch(DESTINATIONS, headway.mappers.change(of_selected), when=predicates.content_changed()),
        headway.watch(WORKLOAD, headway.mappers.same_name(), when=predicates.content_changed()),
        headway.watch(SERVICE, headway.mappers.change(of_users), when=predicates.data_changed()),
        headway.watch(COMPUTED_ROUTES, headway.mappers.change(of_users), when=predicates.data_changed()),
    ],
    indexes=[BY_SELECTED, BY_SERVICE, WORKLOADS_BY_PATH],
    queries=[selected_workloads],
    writes=[COMPUTED_EXPLICIT_DESTINATIONS],
    concurrency=8,
)
async def explicit_destinations(rt: headway.Runtime, request: headway.Request[ComputedExplicitDestinations]) -> None:
    """Collect the destinations of one workload, which owns the result. Resources that conflict are left out whole."""
    workload = rt.cache.get(WORKLOAD, request.id._replace(type=WORKLOAD.name, uid=""))
    data = ComputedExplicitDestinations()
    if workload is not None and is_mesh_enabled(workload.data):
        data = _collect(workload, rt.cache)
    if workload is None or not data.destinations:
        await delete_computed(rt, rt.resource(request))
        return
    id = workload.id
    wanted = COMPUTED_EXPLICIT_DESTINATIONS.new(
        id.name, data, partition=id.partition, namespace=id.namespace, owner=workload
    )
    await write_computed(rt, wanted)


def _collect(workload: headway.Resource[Workload], cache: headway.CacheReader) -> ComputedExplicitDestinations:
    found = explicit.selecting(workload, cache)
    conflicting = explicit.conflicting(found)
    data = ComputedExplicitDestinations()
    for each in found:
        if each.name not in conflicting:
            data.destinations.extend(_validity(each, cache).destinations)
    return data


@app.controller(
    name="destinations-status",
    manages=DESTINATIONS,
    when=content_or_status(KEY),
    watches=[
        headway.watch(DESTINATIONS, headway.mappers.change(sharing_an_address), when=predicates.content_changed()),
        headway.watch(WORKLOAD, headway.mappers.change(selecting), when=predicates.content_changed()),
        headway.watch(SERVICE, headway.mappers.change(naming), when=predicates.data_changed()),
        headway.watch(COMPUTED_ROUTES, headway.mappers.change(naming), when=predicates.data_changed()),
    ],
    indexes=[BY_SELECTED, BY_SERVICE, WORKLOADS_BY_PATH],
    queries=[selected_workloads],
    writes=[DESTINATIONS],
    concurrency=8,
)
async def destinations_status(rt: headway.Runtime, request: headway.Request[Destinations]) -> None:
    """Write the status of one resource, from all of its workloads: a conflict for one of them is a conflict."""
    resource = rt.resource(request)
    if resource is None:
        return
    sharing = _sharing(resource, rt.cache)
    own = rt.cache.query(selected_workloads, resource.id, resource.data.workloads) if sharing else []
    meshed = [workload for workload in own if is_mesh_enabled(workload.data)]
    others = [each.name for each in sharing if any(explicit.selects(each, workload) for workload in meshed)]
    repeats = explicit.repeats_an_address(resource.data)
    found = explicit.conditions(_validity(resource, rt.cache), repeats=repeats, others=others)
    await write_status(rt, resource, KEY, list(found))

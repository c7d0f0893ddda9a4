"""Templates of proxies: the listeners, routes and clusters of each workload that is in the mesh."""

from __future__ import annotations

from typing import Any

import headway
from catalog import metadata_filter
from catalog.checks.references import service_id
from catalog.computed import delete_computed, write_computed
from catalog.messages import ComputedTrafficPermissions, Service, Workload
from catalog.ports import identities
from catalog.selecting import (
    SERVICES_BY_SELECTED,
    WORKLOADS_BY_PATH,
    selected_workloads,
    selecting_services,
)
from catalog.statuses import write_status
from catalog.types import COMPUTED_TRAFFIC_PERMISSIONS, SERVICE, SERVICE_ENDPOINTS, WORKLOAD
from headway import predicates
from mesh import explicit
from mesh.application import app
from mesh.messages import (
    ComputedExplicitDestinations,
    ComputedProxyConfiguration,
    ComputedRoutes,
    ProxyStateTemplate,
)
from mesh.proxies.gaps import completeness
from mesh.proxies.names import MESH
from mesh.proxies.template import template
from mesh.types import (
    COMPUTED_EXPLICIT_DESTINATIONS,
    COMPUTED_PROXY_CONFIGURATION,
    COMPUTED_ROUTES,
    DESTINATIONS,
    PROXY_STATE_TEMPLATE,
)

KEY = "consul.io/sidecar-proxy-controller"
"""The key of the status on templates that says what is missing in them."""

Key = tuple[str, str, str]
State = headway.Resource[Any] | None


def _services(destinations: headway.Resource[ComputedExplicitDestinations]) -> list[Key]:
    refs = (each.destination_ref for each in destinations.data.destinations)
    return list({service_id(ref, destinations.id).key for ref in refs if ref is not None})


def _targets(routes: headway.Resource[ComputedRoutes]) -> list[Key]:
    backends = (each.backend_ref for port in routes.data.ported_configs.values() for each in port.targets.values())
    refs = (each.ref for each in backends if each is not None)
    return list({service_id(ref, routes.id).key for ref in refs if ref is not None})


def _identity(workload: headway.Resource[Workload]) -> Key:
    return (workload.id.partition, workload.id.namespace, workload.data.identity)


BY_SERVICE = headway.indexes.by_many(COMPUTED_EXPLICIT_DESTINATIONS, "service", _services)
ROUTES_BY_TARGET = headway.indexes.by_many(COMPUTED_ROUTES, "target", _targets)
BY_IDENTITY = headway.indexes.by(WORKLOAD, "identity", _identity)


def of_users(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the templates of the workloads that have a service, or the one of its name, as a destination."""
    changed = new or old
    found = [] if changed is None else cache.index(BY_SERVICE, changed.id.key)
    return [each.id._replace(type=PROXY_STATE_TEMPLATE.name, uid="") for each in found]


def of_selected(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the templates of the workloads that a service or destinations select, or did select."""
    selected = {
        workload.id._replace(type=PROXY_STATE_TEMPLATE.name, uid="")
        for each in (old, new)
        if each is not None
        for workload in cache.query(selected_workloads, each.id, each.data.workloads)
    }
    return list(selected)


def of_service(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the templates of a service's users, and of the workloads that it selects, or did select."""
    return list({*of_selected(old, new, cache), *of_users(old, new, cache)})


def of_callers(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the templates of the workloads that have a target in the service of these endpoints.

    Only a change of the identities changes them: a proxy gets its endpoints from elsewhere.
    """
    changed = new or old
    if changed is None or (old and identities(old.data)) == (new and identities(new.data)):
        return []
    found = {
        each.id._replace(type=PROXY_STATE_TEMPLATE.name, uid="")
        for routes in cache.index(ROUTES_BY_TARGET, changed.id.key)
        for each in cache.index(BY_SERVICE, routes.id.key)
    }
    return list(found)


def having_the_identity(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Return the templates of the workloads with the identity of these permissions."""
    changed = new or old
    found = [] if changed is None else cache.index(BY_IDENTITY, changed.id.key)
    return [each.id._replace(type=PROXY_STATE_TEMPLATE.name, uid="") for each in found]


class Cached:
    """The view of the controller: what its cache has."""

    def __init__(self, cache: headway.CacheReader) -> None:
        self._cache = cache

    def selecting(self, workload: headway.Resource[Workload]) -> list[Service]:
        """Return the services that select a workload."""
        return [each.data for each in selecting_services(workload, self._cache) if _meets_filter(each.data, workload)]

    def service(self, id: headway.ResourceId) -> Service | None:
        """Return the service with an id."""
        found = self._cache.get(SERVICE, id)
        return None if found is None else found.data

    def routes(self, service: headway.ResourceId) -> ComputedRoutes | None:
        """Return the computed routes of a service."""
        found = self._cache.get(COMPUTED_ROUTES, service._replace(type=COMPUTED_ROUTES.name))
        return None if found is None else found.data

    def identities(self, service: headway.ResourceId) -> list[str]:
        """Return the identities of a service's endpoints, sorted."""
        found = self._cache.get(SERVICE_ENDPOINTS, service._replace(type=SERVICE_ENDPOINTS.name))
        return [] if found is None else identities(found.data)

    def permissions(self, workload: headway.Resource[Workload]) -> ComputedTrafficPermissions | None:
        """Return the computed permissions of a workload's identity."""
        id = workload.id._replace(type=COMPUTED_TRAFFIC_PERMISSIONS.name, name=workload.data.identity, uid="")
        found = self._cache.get(COMPUTED_TRAFFIC_PERMISSIONS, id)
        return None if found is None else found.data

    def configuration(self, workload: headway.ResourceId) -> ComputedProxyConfiguration | None:
        """Return the computed configuration of a workload's proxy."""
        id = workload._replace(type=COMPUTED_PROXY_CONFIGURATION.name, uid="")
        found = self._cache.get(COMPUTED_PROXY_CONFIGURATION, id)
        return None if found is None else found.data

    def destinations(self, workload: headway.ResourceId) -> ComputedExplicitDestinations | None:
        """Return the computed destinations of a workload."""
        id = workload._replace(type=COMPUTED_EXPLICIT_DESTINATIONS.name, uid="")
        found = self._cache.get(COMPUTED_EXPLICIT_DESTINATIONS, id)
        return None if found is None else found.data


def _meets_filter(service: Service, workload: headway.Resource[Workload]) -> bool:
    selector = service.workloads
    return selector is None or not selector.filter or metadata_filter.parse(selector.filter)(workload.metadata)


@app.controller(
    name="sidecar-proxy",
    manages=PROXY_STATE_TEMPLATE,
    when=predicates.all_of(
        predicates.not_own_writes(), predicates.any_of(predicates.content_changed(), predicates.status_changed(KEY))
    ),
    watches=[
        headway.watch(WORKLOAD, headway.mappers.same_name(), when=predicates.content_changed()),
        headway.watch(COMPUTED_PROXY_CONFIGURATION, headway.mappers.same_name(), when=predicates.data_changed()),
        headway.watch(COMPUTED_EXPLICIT_DESTINATIONS, headway.mappers.same_name(), when=predicates.data_changed()),
        headway.watch(
            DESTINATIONS,
            headway.mappers.change(of_selected),
            when=predicates.any_of(predicates.content_changed(), predicates.status_changed(explicit.KEY)),
        ),
        headway.watch(SERVICE, headway.mappers.change(of_service), when=predicates.data_changed()),
        headway.watch(COMPUTED_ROUTES, headway.mappers.change(of_users), when=predicates.data_changed()),
        headway.watch(SERVICE_ENDPOINTS, headway.mappers.change(of_callers), when=predicates.data_changed()),
        headway.watch(
            COMPUTED_TRAFFIC_PERMISSIONS,
            headway.mappers.change(having_the_identity),
            when=predicates.data_changed(),
        ),
    ],
    indexes=[BY_SERVICE, ROUTES_BY_TARGET, BY_IDENTITY, explicit.BY_SELECTED, SERVICES_BY_SELECTED, WORKLOADS_BY_PATH],
    queries=[selected_workloads],
    writes=[PROXY_STATE_TEMPLATE],
    concurrency=8,
)
async def sidecar_proxy(rt: headway.Runtime, request: headway.Request[ProxyStateTemplate]) -> None:
    """Compute the template of one workload's proxy, which the workload owns. Its status says what is missing in it."""
    workload = rt.cache.get(WORKLOAD, request.id._replace(type=WORKLOAD.name, uid=""))
    data = None if workload is None else template(workload, Cached(rt.cache), MESH)
    if workload is None or data is None:
        await delete_computed(rt, rt.resource(request))
        return
    id = workload.id
    wanted = PROXY_STATE_TEMPLATE.new(id.name, data, partition=id.partition, namespace=id.namespace, owner=workload)
    stored = await write_computed(rt, wanted)
    if stored is not None and data.proxy_state is not None:
        selecting = explicit.selecting(workload, rt.cache)
        await write_status(rt, stored, KEY, [completeness(selecting, data.proxy_state)])

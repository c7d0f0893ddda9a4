"""Computed routes: the routing of each port of a service, and the statuses of the routes and policies behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import headway
from catalog import failover
from catalog.checks.references import service_id
from catalog.computed import delete_computed, write_computed
from catalog.messages import ComputedFailoverPolicy, Service
from catalog.ports import destinations
from catalog.statuses import content_or_status, write_status
from catalog.types import COMPUTED_FAILOVER_POLICY, SERVICE
from headway import predicates
from mesh.application import app
from mesh.checks.routes import backends
from mesh.messages import ComputedRoutes, DestinationPolicy
from mesh.routing.accepting import of_policy, of_routes
from mesh.routing.compute import computed_routes
from mesh.routing.view import parents
from mesh.types import COMPUTED_ROUTES, DESTINATION_POLICY, GRPC_ROUTE, HTTP_ROUTE, TCP_ROUTE

KEY = "consul.io/routes-controller"
"""The key of the status on routes and destination policies."""

# By keys and not by ids: a name that no service can have is refused as part of an id.
Key = tuple[str, str, str]
KINDS: tuple[headway.ResourceType[Any], ...] = (HTTP_ROUTE, GRPC_ROUTE, TCP_ROUTE)


def _parents(route: headway.Resource[Any]) -> list[Key]:
    return [id.key for id in parents(route)]


def _backends(route: headway.Resource[Any]) -> list[Key]:
    found = (backend.ref for _, backend in backends(route.data) if backend is not None)
    return list({service_id(ref, route.id).key for ref in found if ref is not None})


def _standing_in(policy: headway.Resource[ComputedFailoverPolicy]) -> list[Key]:
    return list({id.key for id in failover.service_ids(destinations(None, policy.data.port_configs))})


BY_PARENT = [headway.indexes.by_many(kind, "parent", _parents) for kind in KINDS]
BY_BACKEND = [headway.indexes.by_many(kind, "backend", _backends) for kind in KINDS]
FAILOVER_BY_DESTINATION = headway.indexes.by_many(COMPUTED_FAILOVER_POLICY, "destination", _standing_in)


def of_parents(
    old: headway.Resource[Any] | None, new: headway.Resource[Any] | None, cache: headway.CacheReader
) -> list[headway.ResourceId]:
    """Return the computed routes of the services that a route has, or had, as parents."""
    del cache
    found = {id for route in (old, new) if route is not None for id in parents(route)}
    return [id._replace(type=COMPUTED_ROUTES.name) for id in found]


def of_users(
    old: headway.Resource[Any] | None, new: headway.Resource[Any] | None, cache: headway.CacheReader
) -> list[headway.ResourceId]:
    """Return the computed routes that a service, or a policy of the service of its name, is a part of.

    They are its own, those of the services that it stands in for, and those of the parents of routes to any of these.
    """
    changed = new or old
    if changed is None:
        return []
    id = changed.id
    targets = {id.key} | {policy.id.key for policy in cache.index(FAILOVER_BY_DESTINATION, id.key)}
    found = set(targets)
    for target in targets:
        for index in BY_BACKEND:
            found.update(key for route in cache.index(index, target) for key in _parents(route))
    return [headway.ResourceId(COMPUTED_ROUTES.name, name, *units) for *units, name in found]


class Cached:
    """The view of a controller: what its cache has."""

    def __init__(self, cache: headway.CacheReader) -> None:
        self._cache = cache

    def service(self, id: headway.ResourceId) -> Service | None:
        """Return the service with an id."""
        found = self._cache.get(SERVICE, id)
        return None if found is None else found.data

    def failover(self, service: headway.ResourceId) -> headway.Resource[ComputedFailoverPolicy] | None:
        """Return the computed failover policy of a service."""
        return self._cache.get(COMPUTED_FAILOVER_POLICY, service._replace(type=COMPUTED_FAILOVER_POLICY.name))

    def policy(self, service: headway.ResourceId) -> headway.Resource[DestinationPolicy] | None:
        """Return the destination policy of a service."""
        return self._cache.get(DESTINATION_POLICY, service._replace(type=DESTINATION_POLICY.name))

    def routes(self, parent: headway.ResourceId) -> list[headway.Resource[Any]]:
        """Return the routes of all kinds that have a service as a parent."""
        return [route for index in BY_PARENT for route in self._cache.index(index, parent.key)]


def _watches() -> Iterator[headway.Watch]:
    # Also by own statuses: each parent's reconcile writes that of a route, and an older one may arrive after a newer.
    written = predicates.any_of(predicates.content_changed(), predicates.status_changed(KEY))
    for kind in KINDS:
        yield headway.watch(kind, headway.mappers.change(of_parents), when=written)
    yield headway.watch(SERVICE, headway.mappers.change(of_users), when=predicates.data_changed())
    yield headway.watch(COMPUTED_FAILOVER_POLICY, headway.mappers.change(of_users), when=predicates.data_changed())
    yield headway.watch(DESTINATION_POLICY, headway.mappers.change(of_users), when=content_or_status(KEY))


@app.controller(
    name="routes",
    manages=COMPUTED_ROUTES,
    when=predicates.not_own_writes(),
    watches=list(_watches()),
    indexes=[*BY_PARENT, *BY_BACKEND, FAILOVER_BY_DESTINATION],
    writes=[COMPUTED_ROUTES, *KINDS, DESTINATION_POLICY],
    concurrency=8,
)
async def compute_routes(rt: headway.Runtime, request: headway.Request[ComputedRoutes]) -> None:
    """Compute the routing of one service. The service owns the result, and the result is deleted with it.

    A route's status depends on all of its parents and backends. Each change of one of them, or of the status,
    reconciles a parent of the route, and every parent computes the same status.
    """
    view = Cached(rt.cache)
    id = request.id._replace(type=SERVICE.name, uid="")
    service = rt.cache.get(SERVICE, id)
    data = computed_routes(id, view)
    if service is None or data is None:
        await delete_computed(rt, rt.resource(request))
    else:
        wanted = COMPUTED_ROUTES.new(id.name, data, partition=id.partition, namespace=id.namespace, owner=service)
        await write_computed(rt, wanted)
    routes = view.routes(id)
    for route, conditions in zip(routes, of_routes(routes, view), strict=True):
        await write_status(rt, route, KEY, conditions)
    policy = view.policy(id)
    if policy is not None:
        await write_status(rt, policy, KEY, of_policy(policy, id, view))

"""All of a proxy state, except for the endpoints and the secrets, which change apart from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.resource import quoted
from mesh.messages.proxy_state import Cluster, EndpointGroup, L4Destination, ProxyState, TrafficPermissions
from mesh.xds.translation import clusters, listeners, routes
from mesh.xds.translation.faults import Unfit as Unfit

_STATE = "data.proxy_state"


def translate(state: ProxyState) -> list[Any]:
    """Return the clusters, listeners and routes of a proxy.

    Raises:
        Unfit: no proxy would take them.
    """
    made: list[Any] = []
    for name in sorted(state.clusters):
        path = f"{_STATE}.clusters[{quoted(name)}]"
        given = state.clusters[name]
        if given.failover_group is not None:
            _check_unique(f"{path}.failover_group", [each.name for each in given.failover_group.endpoint_groups])
        made.append(clusters.cluster(path, given, state.endpoints.get(name)))
    _check_unique(f"{_STATE}.clusters", [each.name for each in made])
    _check_unique(f"{_STATE}.listeners", [each.name for each in state.listeners])
    known = {each.name for each in made}
    _check_used(state, known)
    permitted: dict[str, TrafficPermissions | None] = {}
    for index, each in enumerate(state.listeners):
        path = f"{_STATE}.listeners[{index}]"
        made.append(listeners.listener(path, each, state.routes))
        for to in listeners.destinations(each):
            if isinstance(to, L4Destination) or to.route is None:
                continue
            if permitted.setdefault(to.route.name, to.traffic_permissions) != to.traffic_permissions:
                name = quoted(to.route.name)
                raise Unfit(
                    f"{path}: another router with the route {name} has other permissions: give it its own route"
                )
    for name in sorted(permitted):
        path = f"{_STATE}.routes[{quoted(name)}]"
        made.append(routes.configuration(path, name, state.routes[name], permitted[name]))
    return made


def _check_unique(path: str, names: list[str]) -> None:
    seen: set[str] = set()
    for each in names:
        if not each or each in seen:
            raise Unfit(
                f"{path}: the name {quoted(each)} is {'used twice' if each else 'empty'}: each needs a name of its own"
            )
        seen.add(each)


def _check_used(state: ProxyState, known: set[str]) -> None:
    for index, listener in enumerate(state.listeners):
        for name in listeners.clusters(listener):
            _check_known(f"{_STATE}.listeners[{index}]", name, known)
    for key, route in state.routes.items():
        for name in routes.clusters(route):
            _check_known(f"{_STATE}.routes[{quoted(key)}]", name, known)


def _check_known(path: str, name: str, known: set[str]) -> None:
    if name not in known:
        raise Unfit(f"{path}: no cluster has the name {quoted(name)}: name one of the state's clusters")


def trusted(given: Mapping[str, Cluster]) -> dict[str, dict[str, frozenset[str]]]:
    """Return the SPIFFE ids that each cluster accepts whose endpoints come apart.

    They are by the names of its groups of endpoints, in the order in which these are used. A cluster without failover
    has one, of its own name.
    """
    found = {name: {at: group for at, group in _groups(name, each) if group.dynamic} for name, each in given.items()}
    return {name: {at: _accepted(group) for at, group in groups.items()} for name, groups in found.items() if groups}


def _groups(name: str, given: Cluster) -> list[tuple[str, EndpointGroup]]:
    if given.endpoint_group is not None:
        return [(name, given.endpoint_group)]
    return [(each.name, each) for each in given.failover_group.endpoint_groups] if given.failover_group else []


def _accepted(group: EndpointGroup) -> frozenset[str]:
    socket = group.dynamic.outbound_tls if group.dynamic is not None else None
    mesh = socket.outbound_mesh if socket is not None else None
    context = mesh.validation_context if mesh is not None else None
    return frozenset(context.spiffe_ids if context is not None else ())

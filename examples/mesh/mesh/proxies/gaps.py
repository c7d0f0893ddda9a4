"""The gaps of a template, for the people who miss a listener or a route in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import headway
from catalog.computed import condition
from mesh import explicit
from mesh.messages import Destinations, ProxyState
from mesh.messages.proxy_state import L4Destination, L4WeightedClusterGroup, L7WeightedClusterGroup, RouteDestination
from mesh.proxies.names import NULL_CLUSTER

_TYPE = "Complete"
_NAMED = 5
"""The number of gaps that the condition names."""


def completeness(selecting: Iterable[headway.Resource[Destinations]], state: ProxyState) -> headway.Condition:
    """Return the condition that says whether a template has all that was asked for, and if not, why.

    Args:
        selecting: the destinations that select the workload, sorted by name.
        state: the state in the template.
    """
    found = list(selecting)
    gaps = [*_left_out(found), *_without_backend(state)]
    if gaps:
        more = f"; and {len(gaps) - _NAMED} more" if len(gaps) > _NAMED else ""
        return condition(_TYPE, False, "; ".join(gaps[:_NAMED]) + more, "PartsLeftOut")
    if not found:
        return condition(_TYPE, True, "no Destinations select the workload, so it reaches no service", "NoDestinations")
    names = ", ".join(each.name for each in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return condition(_TYPE, True, f"the proxy reaches everything that is in Destinations {names}{more}", "AllIncluded")


def _left_out(selecting: Iterable[headway.Resource[Destinations]]) -> Iterator[str]:
    for each in selecting:
        status = each.status.get(explicit.KEY)
        for one in status.conditions if status is not None else ():
            is_wrong = (one.state == headway.ConditionState.TRUE) == (one.type == "ConflictFound")
            if is_wrong:
                yield f"Destinations {each.name} are left out: {one.reason}: {one.message}"


def _without_backend(state: ProxyState) -> Iterator[str]:
    """Yield the listeners of which requests fail, because a route names a backend that does not exist."""
    for listener in state.listeners:
        for router in listener.routers:
            fails = router.l4 is not None and _has_null(router.l4)
            if router.l7 is not None and router.l7.route is not None:
                rules = [each for host in state.routes[router.l7.route.name].virtual_hosts for each in host.route_rules]
                # The last rule is for the requests that no other one matches, and may have no backend.
                split = [each.destination.weighted_clusters for each in rules[-1:] if each.destination is not None]
                before = [each.destination for each in rules[:-1] if each.destination is not None]
                fails = any(_has_null(each) for each in before) or any(each and _is_null(each) for each in split)
            if fails:
                yield f"{listener.name} has a route to a backend that cannot be reached: see the status of the route"


def _has_null(given: L4Destination | RouteDestination) -> bool:
    if given.cluster is not None:
        return given.cluster.name == NULL_CLUSTER
    return given.weighted_clusters is not None and _is_null(given.weighted_clusters)


def _is_null(given: L4WeightedClusterGroup | L7WeightedClusterGroup) -> bool:
    return any(each.name == NULL_CLUSTER for each in given.clusters)

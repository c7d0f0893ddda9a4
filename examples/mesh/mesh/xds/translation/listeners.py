"""The listeners: for each router a filter chain, with the filters of connections or of requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mesh.messages import BalanceConnections
from mesh.messages.proxy_state import (
    Capability,
    Direction,
    L4Destination,
    L7Destination,
    Listener,
    Match,
    Route,
    Router,
)
from mesh.xds import messages as m
from mesh.xds.resources import packed
from mesh.xds.translation import permissions, routes, tls
from mesh.xds.translation.faults import ADS, Unfit, socket_address

_DIRECTIONS = {
    Direction.DIRECTION_INBOUND: m.TrafficDirection.INBOUND,
    Direction.DIRECTION_OUTBOUND: m.TrafficDirection.OUTBOUND,
}
_ROUTER = m.HttpFilter(name="envoy.filters.http.router", typed_config=packed(m.Router()))
_INSPECTOR = m.ListenerFilter(name="envoy.filters.listener.tls_inspector", typed_config=packed(m.TlsInspector()))


def listener(path: str, given: Listener, known: Mapping[str, Route]) -> m.Listener:
    """Return a listener. ``known`` has the routes that it may name."""
    made = m.Listener(
        name=given.name,
        address=_address(path, given),
        traffic_direction=_DIRECTIONS.get(given.direction, m.TrafficDirection.UNSPECIFIED),
        filter_chains=[_chain(where, each, known) for where, each in _routers(path, given)],
    )
    if not made.filter_chains:
        raise Unfit(f"{path}.routers is empty: give at least one router")
    if Capability.CAPABILITY_L4_TLS_INSPECTION in given.capabilities:
        made.listener_filters.append(_INSPECTOR)
    if given.balance_connections == BalanceConnections.BALANCE_CONNECTIONS_EXACT:
        exact = m.ListenerConnectionBalanceConfigExactBalance()
        made.connection_balance_config = m.ListenerConnectionBalanceConfig(exact_balance=exact)
    return made


def _routers(path: str, given: Listener) -> Iterator[tuple[str, Router]]:
    seen: dict[str, str] = {}
    for index, each in enumerate(given.routers):
        yield _once(f"{path}.routers[{index}]", each.match, seen), each
    if given.default_router is not None:
        # A chain without conditions is the last choice.
        router = Router(
            l4=given.default_router.l4, l7=given.default_router.l7, inbound_tls=given.default_router.inbound_tls
        )
        yield _once(f"{path}.default_router", None, seen), router


def _once(path: str, match: Match | None, seen: dict[str, str]) -> str:
    """Return the path. Raise Unfit if an earlier router takes the same connections, which no proxy takes."""
    text = repr(match or Match())
    if text in seen:
        raise Unfit(f"{path}.match is that of {seen[text]}: each router needs connections of its own")
    seen[text] = path
    return path


def _address(path: str, given: Listener) -> m.Address:
    if given.host_port is not None:
        return socket_address(given.host_port.host, given.host_port.port)
    if given.unix_socket is not None:
        mode = int(given.unix_socket.mode or "0", 8)
        return m.Address(pipe=m.Pipe(path=given.unix_socket.path, mode=mode))
    raise Unfit(f"{path} has no address: set host_port or unix_socket")


def _chain(path: str, router: Router, known: Mapping[str, Route]) -> m.FilterChain:
    made = m.FilterChain()
    match = router.match
    if match is not None:
        made.filter_chain_match = m.FilterChainMatch(
            application_protocols=list(match.alpn_protocols),
            server_names=list(match.server_names),
            destination_port=None if match.destination_port is None else match.destination_port.value,
        )
    if router.l7 is not None:
        made.filters = list(_requests(f"{path}.l7", router.l7, known))
    elif router.l4 is not None:
        made.filters = list(_connections(f"{path}.l4", router.l4))
    else:
        raise Unfit(f"{path} has no destination: set l4 or l7")
    if router.inbound_tls is not None:
        made.transport_socket = tls.inbound(f"{path}.inbound_tls", router.inbound_tls)
    return made


def _connections(path: str, given: L4Destination) -> Iterator[m.Filter]:
    prefix = given.stat_prefix or "tcp"
    yield from permissions.tcp(given.traffic_permissions, prefix)
    yield from _limit(given.max_inbound_connections, prefix)
    proxy = m.TcpProxy(stat_prefix=prefix)
    if given.weighted_clusters is not None:
        weights = [(each.name, each.weight.value if each.weight else 0) for each in given.weighted_clusters.clusters]
        routes.check_weights(f"{path}.weighted_clusters", [weight for _, weight in weights])
        # Unlike for requests, a proxy takes no weight of 0 here.
        shares = [
            m.TcpProxyWeightedClusterClusterWeight(name=name, weight=weight) for name, weight in weights if weight
        ]
        proxy.weighted_clusters = m.TcpProxyWeightedCluster(clusters=shares)
    elif given.cluster is not None:
        proxy.cluster = given.cluster.name
    else:
        raise Unfit(f"{path} has neither cluster nor weighted_clusters: set one of them")
    yield m.Filter(name="envoy.filters.network.tcp_proxy", typed_config=packed(proxy))


def _requests(path: str, given: L7Destination, known: Mapping[str, Route]) -> Iterator[m.Filter]:
    prefix = given.stat_prefix or "http"
    name = given.route.name if given.route is not None else ""
    if name not in known:
        raise Unfit(f"{path}.route.name: no route has the name {name!r}: name one of the state's routes")
    yield from _limit(given.max_inbound_connections, prefix)
    manager = m.HttpConnectionManager(
        stat_prefix=prefix,
        codec_type=m.HttpConnectionManagerCodecType.AUTO,
        upgrade_configs=[m.HttpConnectionManagerUpgradeConfig(upgrade_type="websocket")],
        http_filters=[*permissions.http(given.traffic_permissions), _ROUTER],
    )
    # Even a fixed route comes apart: a changed listener would close its connections.
    manager.rds = m.Rds(config_source=ADS, route_config_name=name)
    yield m.Filter(name="envoy.filters.network.http_connection_manager", typed_config=packed(manager))


def _limit(most: int, prefix: str) -> Iterator[m.Filter]:
    if most:
        limit = m.ConnectionLimit(stat_prefix=prefix, max_connections=most)
        yield m.Filter(name="envoy.filters.network.connection_limit", typed_config=packed(limit))


def destinations(given: Listener) -> Iterator[L4Destination | L7Destination]:
    """Yield where the routers of a listener send connections and requests."""
    for router in (*given.routers, *([given.default_router] if given.default_router is not None else [])):
        if router.l7 is not None:
            yield router.l7
        elif router.l4 is not None:
            yield router.l4


def clusters(given: Listener) -> Iterator[str]:
    """Yield the names of the clusters that a listener sends connections to."""
    for each in destinations(given):
        if not isinstance(each, L4Destination):
            continue
        if each.weighted_clusters is not None:
            yield from (share.name for share in each.weighted_clusters.clusters)
        elif each.cluster is not None:
            yield each.cluster.name

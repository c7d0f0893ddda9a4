"""The routing of requests: virtual hosts, their rules in order, and what is done with the requests on their way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mesh.messages.proxy_state import (
    AppendAction,
    DestinationConfiguration,
    HeaderMatch,
    HeaderMutation,
    L7WeightedClusterGroup,
    QueryParameterMatch,
    RequestHeaderAdd,
    ResponseHeaderAdd,
    Route,
    RouteDestination,
    RouteMatch,
    RouteRule,
    TrafficPermissions,
    VirtualHost,
)
from mesh.xds import messages as m
from mesh.xds.translation.faults import Unfit, regex
from mesh.xds.translation.permissions import method, of_route

_ACTIONS = {
    AppendAction.APPEND_ACTION_APPEND_IF_EXISTS_OR_ADD: m.HeaderValueOptionHeaderAppendAction.APPEND_IF_EXISTS_OR_ADD,
    AppendAction.APPEND_ACTION_ADD_IF_ABSENT: m.HeaderValueOptionHeaderAppendAction.ADD_IF_ABSENT,
    AppendAction.APPEND_ACTION_OVERWRITE_IF_EXISTS_OR_ADD: (
        m.HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
    ),
}
MOST_WEIGHT = 4_294_967_295


def configuration(
    path: str, name: str, given: Route, permitted: TrafficPermissions | None = None
) -> m.RouteConfiguration:
    """Return the routes of a name, for requests that are permitted."""
    hosts = [
        _host(f"{path}.virtual_hosts[{index}]", name, index, each) for index, each in enumerate(given.virtual_hosts)
    ]
    for host in hosts:
        host.typed_per_filter_config = of_route(permitted)
    seen: set[str] = set()
    for domain in (each for host in hosts for each in host.domains):
        if domain.lower() in seen:
            raise Unfit(
                f"{path}.virtual_hosts: the domain {domain!r} is in two places: each may be in one virtual host"
            )
        seen.add(domain.lower())
    return m.RouteConfiguration(name=name, virtual_hosts=hosts, validate_clusters=True)


def _host(path: str, name: str, index: int, given: VirtualHost) -> m.VirtualHost:
    rules = [
        _rule(f"{path}.route_rules[{at}]", each, given.header_mutations) for at, each in enumerate(given.route_rules)
    ]
    named = f"{name}#{index}" if index else name
    return m.VirtualHost(name=named, domains=list(given.domains) or ["*"], routes=rules)


def _rule(path: str, given: RouteRule, of_host: Sequence[HeaderMutation]) -> m.Route:
    if given.destination is None:
        raise Unfit(f"{path}.destination is missing: name a cluster")
    made = m.Route(match=_match(given.match or RouteMatch()), route=_action(f"{path}.destination", given.destination))
    _mutate(made, [*given.header_mutations, *of_host])
    return made


def _match(given: RouteMatch) -> m.RouteMatch:
    made = m.RouteMatch(
        headers=[_header(each) for each in given.header_matches],
        query_parameters=[_query(each) for each in given.query_parameter_matches],
    )
    methods = sorted(set(given.method_matches))
    if len(methods) == 1:
        made.headers.append(method(methods[0]))
    elif methods:
        made.headers.append(m.HeaderMatcher(name=":method", string_match=regex("|".join(methods))))
    on = given.path_match
    if on is not None and on.exact is not None:
        made.path = on.exact
    elif on is not None and on.regex is not None:
        made.safe_regex = m.RegexMatcher(regex=on.regex)
    else:
        made.prefix = on.prefix if on is not None and on.prefix is not None else "/"
    return made


def _header(given: HeaderMatch) -> m.HeaderMatcher:
    made = m.HeaderMatcher(name=given.name, invert_match=given.invert_match)
    text = _text(given.exact, given.regex, prefix=given.prefix, suffix=given.suffix)
    if text is None:
        made.present_match = given.present is not False
    else:
        made.string_match = text
    return made


def _query(given: QueryParameterMatch) -> m.QueryParameterMatcher:
    made = m.QueryParameterMatcher(name=given.name)
    text = _text(given.exact, given.regex)
    if text is None:
        made.present_match = given.present is not False
    else:
        made.string_match = text
    return made


def _text(
    exact: str | None, pattern: str | None, *, prefix: str | None = None, suffix: str | None = None
) -> m.StringMatcher | None:
    if exact is not None:
        return m.StringMatcher(exact=exact)
    if prefix is not None:
        return m.StringMatcher(prefix=prefix)
    if suffix is not None:
        return m.StringMatcher(suffix=suffix)
    return None if pattern is None else regex(pattern)


def _action(path: str, given: RouteDestination) -> m.RouteAction:
    made = m.RouteAction()
    if given.weighted_clusters is not None:
        made.weighted_clusters = _shares(f"{path}.weighted_clusters", given.weighted_clusters)
    elif given.cluster is not None:
        made.cluster = given.cluster.name
    else:
        raise Unfit(f"{path} has neither cluster nor weighted_clusters: set one of them")
    _treat(made, given.destination_configuration or DestinationConfiguration())
    return made


def _shares(path: str, given: L7WeightedClusterGroup) -> m.WeightedCluster:
    clusters = []
    for index, each in enumerate(given.clusters):
        if each.header_mutations:
            raise Unfit(f"{path}.clusters[{index}].header_mutations: only a whole rule can change headers")
        clusters.append(m.WeightedClusterClusterWeight(name=each.name, weight=each.weight.value if each.weight else 0))
    check_weights(path, [each.weight or 0 for each in clusters])
    return m.WeightedCluster(clusters=clusters)


def check_weights(path: str, weights: Sequence[int]) -> None:
    """Raise Unfit unless a proxy takes these weights."""
    if not 1 <= (total := sum(weights)) <= MOST_WEIGHT:
        raise Unfit(f"{path}: the sum of the weights is {total}: it must be from 1 to {MOST_WEIGHT}")


def _treat(made: m.RouteAction, given: DestinationConfiguration) -> None:
    if given.auto_host_rewrite is not None:
        made.auto_host_rewrite = given.auto_host_rewrite.value
    made.prefix_rewrite = given.prefix_rewrite
    if given.timeout_config is not None:
        made.timeout = given.timeout_config.timeout
        made.idle_timeout = given.timeout_config.idle_timeout
    retry = given.retry_policy
    if retry is not None:
        made.retry_policy = m.RetryPolicy(
            retry_on=retry.retry_on,
            num_retries=None if retry.num_retries is None else retry.num_retries.value,
            retriable_status_codes=list(retry.retriable_status_codes),
        )


def _mutate(made: m.Route, mutations: Iterable[HeaderMutation]) -> None:
    for each in mutations:
        if each.request_header_add is not None and each.request_header_add.header is not None:
            made.request_headers_to_add.append(_added(each.request_header_add))
        if each.response_header_add is not None and each.response_header_add.header is not None:
            made.response_headers_to_add.append(_added(each.response_header_add))
        if each.request_header_remove is not None:
            made.request_headers_to_remove += each.request_header_remove.header_keys
        if each.response_header_remove is not None:
            made.response_headers_to_remove += each.response_header_remove.header_keys


def _added(given: RequestHeaderAdd | ResponseHeaderAdd) -> m.HeaderValueOption:
    assert given.header is not None
    # A percent sign begins a command of Envoy's.
    value = m.HeaderValue(key=given.header.key, value=given.header.value.replace("%", "%%"))
    return m.HeaderValueOption(header=value, append_action=_ACTIONS[given.append_action])


def clusters(given: Route) -> Iterable[str]:
    """Yield the names of the clusters that a route uses."""
    for destination in (each.destination for host in given.virtual_hosts for each in host.route_rules):
        if destination is None:
            continue
        if destination.weighted_clusters is not None:
            yield from (each.name for each in destination.weighted_clusters.clusters)
        elif destination.cluster is not None:
            yield destination.cluster.name

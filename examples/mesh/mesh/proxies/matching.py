"""The conditions and the treatment of requests, in the words of a proxy's state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mesh.messages import (
    GRPCHeaderMatch,
    GRPCMethodMatch,
    GRPCMethodMatchType,
    GRPCRouteFilter,
    GRPCRouteMatch,
    HeaderMatchType,
    HTTPHeaderFilter,
    HTTPHeaderMatch,
    HTTPPathMatch,
    HTTPQueryParamMatch,
    HTTPRouteFilter,
    HTTPRouteMatch,
    HTTPRouteRetries,
    HTTPRouteTimeouts,
    PathMatchType,
    QueryParamMatchType,
)
from mesh.messages.proxy_state import (
    AppendAction,
    DestinationConfiguration,
    Header,
    HeaderMatch,
    HeaderMutation,
    PathMatch,
    QueryParameterMatch,
    RequestHeaderAdd,
    RequestHeaderRemove,
    ResponseHeaderAdd,
    ResponseHeaderRemove,
    RetryPolicy,
    RouteMatch,
    TimeoutConfig,
)

Filter = HTTPRouteFilter | GRPCRouteFilter
_ANY = "[^/]+"


def http(match: HTTPRouteMatch) -> RouteMatch:
    """Return the match of an HTTP request."""
    return RouteMatch(
        path_match=_path(match.path),
        header_matches=[_header(each, is_inverted=each.invert) for each in match.headers],
        method_matches=[match.method] if match.method else [],
        query_parameter_matches=[_query(each) for each in match.query_params],
    )


def grpc(match: GRPCRouteMatch) -> RouteMatch:
    """Return the match of a gRPC call."""
    return RouteMatch(path_match=_method(match.method), header_matches=[_header(each) for each in match.headers])


def _path(given: HTTPPathMatch | None) -> PathMatch:
    if given is None:
        return PathMatch(prefix="/")
    if given.type == PathMatchType.PATH_MATCH_TYPE_EXACT:
        return PathMatch(exact=given.value)
    if given.type == PathMatchType.PATH_MATCH_TYPE_REGEX:
        return PathMatch(regex=given.value)
    return PathMatch(prefix=given.value)


def _method(given: GRPCMethodMatch | None) -> PathMatch:
    if given is None or not (given.service or given.method):
        return PathMatch(prefix="/")
    if given.type == GRPCMethodMatchType.GRPC_METHOD_MATCH_TYPE_REGEX:
        return PathMatch(regex=f"/{given.service or _ANY}/{given.method or '.+'}")
    if not given.method:
        return PathMatch(prefix=f"/{given.service}/")
    if not given.service:
        return PathMatch(regex=f"/{_ANY}/{re.escape(given.method)}")
    return PathMatch(exact=f"/{given.service}/{given.method}")


def _header(given: HTTPHeaderMatch | GRPCHeaderMatch, *, is_inverted: bool = False) -> HeaderMatch:
    made = HeaderMatch(name=given.name, invert_match=is_inverted)
    match given.type:
        case HeaderMatchType.HEADER_MATCH_TYPE_REGEX:
            made.regex = given.value
        case HeaderMatchType.HEADER_MATCH_TYPE_PRESENT:
            made.present = True
        case HeaderMatchType.HEADER_MATCH_TYPE_PREFIX:
            made.prefix = given.value
        case HeaderMatchType.HEADER_MATCH_TYPE_SUFFIX:
            made.suffix = given.value
        case _:
            made.exact = given.value
    return made


def _query(given: HTTPQueryParamMatch) -> QueryParameterMatch:
    made = QueryParameterMatch(name=given.name)
    match given.type:
        case QueryParamMatchType.QUERY_PARAM_MATCH_TYPE_REGEX:
            made.regex = given.value
        case QueryParamMatchType.QUERY_PARAM_MATCH_TYPE_PRESENT:
            made.present = True
        case _:
            made.exact = given.value
    return made


def mutations(filters: Iterable[Filter]) -> Iterator[HeaderMutation]:
    """Yield the changes of headers: for each filter those that are set, added, and removed."""
    for each in filters:
        if each.request_header_modifier is not None:
            for header, action in _added(each.request_header_modifier):
                request = RequestHeaderAdd(header=header, append_action=action)
                yield HeaderMutation(request_header_add=request)
            if each.request_header_modifier.remove:
                keys = list(each.request_header_modifier.remove)
                yield HeaderMutation(request_header_remove=RequestHeaderRemove(header_keys=keys))
        if each.response_header_modifier is not None:
            for header, action in _added(each.response_header_modifier):
                response = ResponseHeaderAdd(header=header, append_action=action)
                yield HeaderMutation(response_header_add=response)
            if each.response_header_modifier.remove:
                keys = list(each.response_header_modifier.remove)
                yield HeaderMutation(response_header_remove=ResponseHeaderRemove(header_keys=keys))


def _added(given: HTTPHeaderFilter) -> Iterator[tuple[Header, AppendAction]]:
    overwrite = AppendAction.APPEND_ACTION_OVERWRITE_IF_EXISTS_OR_ADD
    append = AppendAction.APPEND_ACTION_APPEND_IF_EXISTS_OR_ADD
    for headers, action in ((given.set, overwrite), (given.add, append)):
        for each in headers:
            yield Header(key=each.name, value=each.value), action


def treatment(
    filters: Iterable[Filter],
    timeouts: HTTPRouteTimeouts | None,
    retries: HTTPRouteRetries | None,
) -> DestinationConfiguration | None:
    """Return the treatment of the requests of a rule, or None if the rule says nothing about it."""
    rewrite = next((each.url_rewrite.path_prefix for each in filters if each.url_rewrite is not None), "")
    if not rewrite and timeouts is None and retries is None:
        return None
    made = DestinationConfiguration(prefix_rewrite=rewrite)
    if timeouts is not None:
        made.timeout_config = TimeoutConfig(timeout=timeouts.request, idle_timeout=timeouts.idle)
    if retries is not None:
        on = [*retries.on_conditions]
        if retries.on_connect_failure and "connect-failure" not in on:
            on.append("connect-failure")
        if retries.on_status_codes and "retriable-status-codes" not in on:
            on.append("retriable-status-codes")
        made.retry_policy = RetryPolicy(
            retry_on=",".join(on), num_retries=retries.number, retriable_status_codes=list(retries.on_status_codes)
        )
    return made

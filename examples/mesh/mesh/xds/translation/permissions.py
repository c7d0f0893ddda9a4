"""The filters that allow and deny: first those that deny, then those that allow.

All conditions of a rule must hold. A filter that allows by policies, and has none, denies every request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mesh.messages.proxy_state import (
    DestinationRule,
    DestinationRuleHeader,
    Permission,
    Principal,
    Spiffe,
    TrafficPermissions,
)
from mesh.xds import messages as m
from mesh.xds.resources import packed
from mesh.xds.translation.faults import regex

_ANY = m.Permission(any=True)
_DENY, _ALLOW = "deny", "allow"
_NOBODY = m.RbacRules(action=m.RbacAction.ALLOW)


def http(given: TrafficPermissions | None) -> list[m.HttpFilter]:
    """Return the filters of requests. Without permissions, such as on the way out, there are none.

    Alone, they deny every request. The route says what they allow and deny, so that a change of a permission closes no
    connection, and holds for the next request.
    """
    if given is None:
        return []
    return [
        m.HttpFilter(name=_DENY, typed_config=packed(m.HttpRbac())),
        m.HttpFilter(name=_ALLOW, typed_config=packed(m.HttpRbac(rules=_NOBODY))),
    ]


def of_route(given: TrafficPermissions | None) -> dict[str, m.Any]:
    """Return the part of a route that says what the filters of `http` allow and deny."""
    if given is None:
        return {}
    # Without rules, a filter lets everyone through.
    made = {_ALLOW: m.HttpRbacPerRoute()}
    for rules in _rules(given, has_requests=True):
        name = _DENY if rules.action == m.RbacAction.DENY else _ALLOW
        made[name] = m.HttpRbacPerRoute(rbac=m.HttpRbac(rules=rules))
    return {name: packed(made[name]) for name in sorted(made)}


def tcp(given: TrafficPermissions | None, stat_prefix: str) -> list[m.Filter]:
    """Return the filters of connections.

    A rule about requests cannot be applied to a connection. One that allows is left out, and one that denies holds for
    the whole connection.
    """
    name = "envoy.filters.network.rbac"
    return [
        m.Filter(name=name, typed_config=packed(m.NetworkRbac(rules=each, stat_prefix=stat_prefix)))
        for each in _rules(given, has_requests=False)
    ]


def _rules(given: TrafficPermissions | None, *, has_requests: bool) -> Iterator[m.RbacRules]:
    if given is None:
        return
    denied = _policies(given.deny_permissions, has_requests, allows=False)
    if denied:
        yield m.RbacRules(action=m.RbacAction.DENY, policies=denied)
    if not given.default_allow:
        allowed = _policies(given.allow_permissions, has_requests, allows=True)
        yield m.RbacRules(action=m.RbacAction.ALLOW, policies=allowed)


def _policies(given: Iterable[Permission], has_requests: bool, *, allows: bool) -> dict[str, m.Policy]:
    found: dict[str, m.Policy] = {}
    for each in given:
        principals = [principal for one in each.principals if (principal := _principal(one, allows=allows)) is not None]
        rules = [_ANY]
        if each.destination_rules and has_requests:
            rules = [_all(m.Permission(and_rules=m.PermissionSet(rules=[])), rule) for rule in each.destination_rules]
        elif each.destination_rules and allows:
            continue
        if principals:
            found[f"{len(found):04}"] = m.Policy(permissions=rules, principals=principals)
    return found


def _principal(given: Principal, *, allows: bool) -> m.Principal | None:
    if given.spiffe is None:
        # The sender is not given. A denial then holds for all senders, and a permission for none.
        return None if allows else m.Principal(any=True)
    excluded = [m.Principal(not_id=_sender(each)) for each in given.exclude_spiffes]
    if not excluded:
        return _sender(given.spiffe)
    return m.Principal(and_ids=m.PrincipalSet(ids=[_sender(given.spiffe), *excluded]))


def _sender(given: Spiffe) -> m.Principal:
    return m.Principal(authenticated=m.PrincipalAuthenticated(principal_name=regex(given.regex)))


def _all(made: m.Permission, rule: DestinationRule) -> m.Permission:
    """Return the permission that has all conditions of a rule."""
    conditions = [*_paths(rule), *(m.Permission(header=header(each)) for each in rule.destination_rule_header)]
    if rule.methods:
        methods = [m.Permission(header=method(each)) for each in sorted(set(rule.methods))]
        conditions.append(methods[0] if len(methods) == 1 else m.Permission(or_rules=m.PermissionSet(rules=methods)))
    if not conditions:
        return _ANY
    made.and_rules = m.PermissionSet(rules=conditions)
    return made


def _paths(rule: DestinationRule) -> Iterator[m.Permission]:
    matchers = []
    if rule.path_exact:
        matchers.append(m.StringMatcher(exact=rule.path_exact))
    if rule.path_prefix:
        matchers.append(m.StringMatcher(prefix=rule.path_prefix))
    if rule.path_regex:
        matchers.append(regex(rule.path_regex))
    for each in matchers:
        yield m.Permission(url_path=m.PathMatcher(path=each))


def method(name: str) -> m.HeaderMatcher:
    """Return the matcher of a request's method."""
    return m.HeaderMatcher(name=":method", string_match=m.StringMatcher(exact=name))


def header(given: DestinationRuleHeader) -> m.HeaderMatcher:
    """Return the matcher of a header."""
    made = m.HeaderMatcher(name=given.name, invert_match=given.invert)
    if given.exact:
        made.string_match = m.StringMatcher(exact=given.exact)
    elif given.prefix:
        made.string_match = m.StringMatcher(prefix=given.prefix)
    elif given.suffix:
        made.string_match = m.StringMatcher(suffix=given.suffix)
    elif given.regex:
        made.string_match = regex(given.regex)
    else:
        made.present_match = True
    return made

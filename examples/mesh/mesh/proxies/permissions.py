"""The permissions of a port: who may send what to it.

Where the state of a proxy cannot say what was written, fewer requests are allowed than written, never more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from catalog.messages import ComputedTrafficPermissions, ExcludePermissionRule, ExcludeSource, Source
from catalog.messages import DestinationRule as Rule
from catalog.messages import Permission as Given
from mesh.checks import limits
from mesh.messages.proxy_state import (
    DestinationRule,
    DestinationRuleHeader,
    Permission,
    Principal,
    Spiffe,
    TrafficPermissions,
)
from mesh.proxies.names import LOCAL, Mesh


def of_port(
    computed: ComputedTrafficPermissions | None, port: str, mesh: Mesh, *, has_requests: bool
) -> TrafficPermissions:
    """Return the permissions of a port. Without computed permissions, it denies everything.

    Args:
        computed: the permissions of the workload's identity.
        port: the name of the port.
        mesh: the mesh of the proxy.
        has_requests: True if the proxy understands the port's requests, so that it can apply rules about them.
    """
    if computed is None:
        return TrafficPermissions()
    return TrafficPermissions(
        allow_permissions=list(_permissions(computed.allow_permissions, port, mesh, has_requests, allows=True)),
        deny_permissions=list(_permissions(computed.deny_permissions, port, mesh, has_requests, allows=False)),
        default_allow=computed.is_default and mesh.allows_by_default,
    )


def _permissions(
    given: Iterable[Given], port: str, mesh: Mesh, has_requests: bool, *, allows: bool
) -> Iterator[Permission]:
    for each in given:
        principals = list(_principals(each.sources, mesh, allows=allows))
        rules: list[DestinationRule] | None = []
        if each.destination_rules:
            rules = _rules(each.destination_rules, port, has_requests, allows=allows)
        if principals and rules is not None:
            yield Permission(principals=principals, destination_rules=rules)


def _rules(given: Iterable[Rule], port: str, has_requests: bool, *, allows: bool) -> list[DestinationRule] | None:
    """Return the rules about the requests to a port: none if all are meant, or None if the port is not meant."""
    found: list[DestinationRule] = []
    for rule in given:
        if rule.port_names and port not in rule.port_names:
            continue
        on_port = [each for each in rule.exclude if not each.port_names or port in each.port_names]
        if any(not _is_about_requests(each) for each in on_port):
            continue
        # A state has no field for excluded requests.
        has_sense = has_requests and _is_understood(rule)
        is_exact = not on_port and (has_sense or not _is_about_requests(rule))
        if not is_exact and allows:
            continue
        if not _is_about_requests(rule) or not has_sense:
            return []
        found.append(
            DestinationRule(
                path_exact=rule.path_exact,
                path_prefix=rule.path_prefix,
                path_regex=rule.path_regex,
                methods=list(rule.methods),
                destination_rule_header=[
                    DestinationRuleHeader(
                        name=each.name,
                        present=each.present,
                        exact=each.exact,
                        prefix=each.prefix,
                        suffix=each.suffix,
                        regex=each.regex,
                        invert=each.invert,
                    )
                    for each in rule.headers
                ],
            )
        )
    return found or None


def _is_about_requests(rule: Rule | ExcludePermissionRule) -> bool:
    return bool(rule.path_exact or rule.path_prefix or rule.path_regex or rule.methods or rule.headers)


def _is_understood(rule: Rule) -> bool:
    """Return True if a proxy takes the patterns and the names in a rule. With others, it would refuse all rules."""
    patterns = [each for each in (rule.path_regex, *(header.regex for header in rule.headers)) if each]
    names = [fault for each in rule.headers for fault in limits.header_name("", each.name)]
    return all(map(limits.is_pattern, patterns)) and not names


def _principals(sources: Iterable[Source], mesh: Mesh, *, allows: bool) -> Iterator[Principal]:
    """Yield the senders of this cluster. The members of a sameness group are not known: all may be, or none."""
    for source in sources:
        if not _is_here(source):
            continue
        excluded = [each for each in source.exclude if _is_here(each)]
        if source.sameness_group or any(each.sameness_group for each in excluded):
            if allows:
                continue
            excluded = [each for each in excluded if not each.sameness_group]
        spiffe = Spiffe(regex=mesh.everyone) if source.sameness_group else _spiffe(source, mesh)
        yield Principal(spiffe=spiffe, exclude_spiffes=[_spiffe(each, mesh) for each in excluded])


def _is_here(source: Source | ExcludeSource) -> bool:
    """Return True if a source is not in another cluster, which has no caller here."""
    return source.peer in ("", LOCAL)


def _spiffe(source: Source | ExcludeSource, mesh: Mesh) -> Spiffe:
    return Spiffe(regex=mesh.identities(source.partition, source.namespace, source.identity_name))

"""The rules of traffic permissions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from catalog.checks.faults import Faults
from catalog.messages import (
    Action,
    ComputedTrafficPermissions,
    DestinationRule,
    ExcludePermissionRule,
    ExcludeSource,
    NamespaceTrafficPermissions,
    PartitionTrafficPermissions,
    Permission,
    Source,
    TrafficPermissions,
)
from headway import Resource, ResourceId
from headway.resource import DEFAULT_UNIT, quoted

LOCAL = "local"
"""The peer that stands for this cluster."""


class _WithPermissions(Protocol):
    @property
    def id(self) -> ResourceId: ...
    @property
    def data(self) -> TrafficPermissions | NamespaceTrafficPermissions | PartitionTrafficPermissions: ...


def fill_in(resource: _WithPermissions) -> None:
    """Complete the tenancies of the sources and of what they exclude."""
    for permission in resource.data.permissions:
        for source in permission.sources:
            _complete(source, resource.id)
            for exclude in source.exclude:
                _complete(exclude, resource.id)


def _complete(source: Source | ExcludeSource, within: ResourceId) -> None:
    if _is_foreign(source.peer):
        return
    before = (source.partition, source.namespace)
    partition = within.partition or DEFAULT_UNIT
    source.partition = source.partition or partition
    if source.identity_name and not source.namespace:
        inherited = within.namespace if source.partition == partition else ""
        source.namespace = inherited or DEFAULT_UNIT
    if (source.partition, source.namespace) != before:
        source.peer = LOCAL


def _is_foreign(peer: str) -> bool:
    return peer not in ("", LOCAL)


def of_identity(resource: Resource[TrafficPermissions]) -> Faults:
    """Yield the faults of permissions for one identity."""
    destination = resource.data.destination
    yield from of_tenancy(resource)
    if destination is None or not destination.identity_name:
        yield "data.destination.identity_name is required, such as 'api'"


def of_tenancy(resource: _WithPermissions) -> Faults:
    """Yield the faults of permissions for all identities of a namespace or a partition."""
    action = resource.data.action
    if action != Action.ACTION_ALLOW:
        yield f"data.action {action.name or int(action)} is not supported: use ACTION_ALLOW"
    yield from _permissions("data.permissions", resource.data.permissions, resource.id)


def computed(resource: Resource[ComputedTrafficPermissions]) -> Faults:
    """Yield the faults of computed permissions."""
    yield from _permissions("data.allow_permissions", resource.data.allow_permissions, resource.id)
    yield from _permissions("data.deny_permissions", resource.data.deny_permissions, resource.id)


def _permissions(path: str, given: Iterable[Permission], within: ResourceId) -> Faults:
    for index, permission in enumerate(given):
        at = f"{path}[{index}]"
        if not permission.sources:
            yield f"{at}.sources is empty: say who may send"
        for number, source in enumerate(permission.sources):
            yield from _source(f"{at}.sources[{number}]", source, within)
        for number, rule in enumerate(permission.destination_rules):
            yield from _rule(f"{at}.destination_rules[{number}]", rule)


def _source(path: str, given: Source, within: ResourceId) -> Faults:
    yield from _sender(path, given, within)
    if given.identity_name and given.exclude:
        yield f"{path}.exclude must be empty, because identity_name names a single sender"
        return
    for index, exclude in enumerate(given.exclude):
        yield from _sender(f"{path}.exclude[{index}]", exclude, within)


def _sender(path: str, given: Source | ExcludeSource, within: ResourceId) -> Faults:
    partition = within.partition or DEFAULT_UNIT
    kinds = {
        # Consul counts an empty partition, too, and so refuses a peer without the resource's own partition.
        "a partition other than its own": given.partition not in ("", partition),
        "a peer": _is_foreign(given.peer),
        "a sameness_group": bool(given.sameness_group),
    }
    found = [kind for kind, is_given in kinds.items() if is_given]
    if len(found) > 1:
        yield f"{path} has {' and '.join(found)}: give at most one of them"
    if given.identity_name and not given.namespace:
        yield f"{path}.namespace is required for the identity {quoted(given.identity_name)}, such as 'default'"


def _rule(path: str, given: DestinationRule) -> Faults:
    yield from _paths(path, given)
    for index, header in enumerate(given.headers):
        if not header.name:
            yield f"{path}.headers[{index}].name is required, such as 'x-team'"
    for index, exclude in enumerate(given.exclude):
        yield from _paths(f"{path}.exclude[{index}]", exclude)


def _paths(path: str, given: DestinationRule | ExcludePermissionRule) -> Faults:
    found: Sequence[str] = [name for name in ("path_exact", "path_prefix", "path_regex") if getattr(given, name)]
    if len(found) > 1:
        yield f"{path} has {' and '.join(found)}: give at most one of them"

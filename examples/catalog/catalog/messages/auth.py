"""The messages of workload identities and of the permissions to send them traffic."""

from __future__ import annotations

from enum import IntEnum

from headway import field, message

_PACKAGE = "hashicorp.consul.auth.v2beta1"


class Action(IntEnum):
    """The effect of permissions."""

    ACTION_UNSPECIFIED = 0
    ACTION_DENY = 1
    ACTION_ALLOW = 2


@message(name=f"{_PACKAGE}.WorkloadIdentity")
class WorkloadIdentity:
    """An identity that workloads have. Its name is all there is to it."""


@message(name=f"{_PACKAGE}.Destination")
class Destination:
    """The identity that receives traffic."""

    identity_name: str = field(1)


@message(name=f"{_PACKAGE}.ExcludeSource")
class ExcludeSource:
    """Senders that a source does not mean."""

    identity_name: str = field(1)
    namespace: str = field(2)
    partition: str = field(3)
    peer: str = field(4)
    sameness_group: str = field(5)


@message(name=f"{_PACKAGE}.Source")
class Source:
    """Senders of traffic: an identity, a namespace, a partition, a peer or a sameness group."""

    identity_name: str = field(1)
    namespace: str = field(2)
    partition: str = field(3)
    peer: str = field(4)
    sameness_group: str = field(5)
    exclude: list[ExcludeSource] = field(6)


@message(name=f"{_PACKAGE}.DestinationRuleHeader")
class DestinationRuleHeader:
    """A condition on a header of a request."""

    name: str = field(1)
    present: bool = field(2)
    exact: str = field(3)
    prefix: str = field(4)
    suffix: str = field(5)
    regex: str = field(6)
    invert: bool = field(7)


@message(name=f"{_PACKAGE}.ExcludePermissionRule")
class ExcludePermissionRule:
    """Requests that a rule does not mean."""

    path_exact: str = field(1)
    path_prefix: str = field(2)
    path_regex: str = field(3)
    methods: list[str] = field(4)
    headers: list[DestinationRuleHeader] = field(5)
    port_names: list[str] = field(6)


@message(name=f"{_PACKAGE}.DestinationRule")
class DestinationRule:
    """The requests and ports that a permission is about."""

    path_exact: str = field(1)
    path_prefix: str = field(2)
    path_regex: str = field(3)
    methods: list[str] = field(4)
    headers: list[DestinationRuleHeader] = field(5)
    port_names: list[str] = field(6)
    exclude: list[ExcludePermissionRule] = field(7)


@message(name=f"{_PACKAGE}.Permission")
class Permission:
    """Senders, and what they may send."""

    sources: list[Source] = field(1)
    destination_rules: list[DestinationRule] = field(2)


@message(name=f"{_PACKAGE}.TrafficPermissions")
class TrafficPermissions:
    """Permissions to send traffic to one identity."""

    destination: Destination | None = field(1)
    action: Action = field(2)
    permissions: list[Permission] = field(3)


@message(name=f"{_PACKAGE}.NamespaceTrafficPermissions")
class NamespaceTrafficPermissions:
    """Permissions to send traffic to every identity of a namespace."""

    action: Action = field(1)
    permissions: list[Permission] = field(2)


@message(name=f"{_PACKAGE}.PartitionTrafficPermissions")
class PartitionTrafficPermissions:
    """Permissions to send traffic to every identity of a partition."""

    action: Action = field(1)
    permissions: list[Permission] = field(2)


@message(name=f"{_PACKAGE}.ComputedTrafficPermissions")
class ComputedTrafficPermissions:
    """All permissions to send traffic to the identity of the same name."""

    allow_permissions: list[Permission] = field(1)
    deny_permissions: list[Permission] = field(2)
    is_default: bool = field(3)

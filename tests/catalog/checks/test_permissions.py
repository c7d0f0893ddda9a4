"""Identities and traffic permissions: facts T-17 to T-23."""

from __future__ import annotations

from typing import Any

import pytest

import headway
from catalog.messages import (
    Action,
    ComputedTrafficPermissions,
    Destination,
    DestinationRule,
    DestinationRuleHeader,
    ExcludePermissionRule,
    ExcludeSource,
    NamespaceTrafficPermissions,
    PartitionTrafficPermissions,
    Permission,
    Source,
    TrafficPermissions,
)
from catalog.types import (
    COMPUTED_TRAFFIC_PERMISSIONS,
    NAMESPACE_TRAFFIC_PERMISSIONS,
    PARTITION_TRAFFIC_PERMISSIONS,
    TRAFFIC_PERMISSIONS,
    WORKLOAD_IDENTITY,
)
from headway import Resource
from tests.catalog.checks.hooked import faults, stored

ALLOW, DENY = Action.ACTION_ALLOW, Action.ACTION_DENY
UNITS: dict[str, Any] = {"partition": "far", "namespace": "lab"}


def permissions(*given: Permission, action: Action = ALLOW) -> Resource[TrafficPermissions]:
    """Return permissions for the identity api in far/lab."""
    data = TrafficPermissions(destination=Destination(identity_name="api"), action=action, permissions=list(given))
    return TRAFFIC_PERMISSIONS.new("to-api", data, **UNITS)


def of_namespace(*given: Permission, action: Action = ALLOW) -> Resource[NamespaceTrafficPermissions]:
    data = NamespaceTrafficPermissions(action=action, permissions=list(given))
    return NAMESPACE_TRAFFIC_PERMISSIONS.new("to-all", data, **UNITS)


def of_partition(*given: Permission, action: Action = ALLOW) -> Resource[PartitionTrafficPermissions]:
    data = PartitionTrafficPermissions(action=action, permissions=list(given))
    return PARTITION_TRAFFIC_PERMISSIONS.new("to-all", data, partition="far")


KINDS: list[Any] = [permissions, of_namespace, of_partition]


def test_identity_has_nothing_to_check() -> None:
    """T-17."""
    stored(WORKLOAD_IDENTITY.new("api"))


def s(identity: str = "", namespace: str = "", partition: str = "", peer: str = "", group: str = "") -> tuple[str, ...]:
    return identity, namespace, partition, peer, group


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (s(), s("", "", "far", "local")),
        (s("api"), s("api", "OWN", "far", "local")),
        (s("api", "x"), s("api", "x", "far", "local")),
        (s("api", "", "far"), s("api", "OWN", "far", "local")),
        (s("api", "", "other"), s("api", "default", "other", "local")),
        (s("api", "x", "other"), s("api", "x", "other")),
        (s("api", "x", "other", "local"), s("api", "x", "other", "local")),
        (s("", "x"), s("", "x", "far", "local")),
        (s("", "", "other"), s("", "", "other")),
        (s("", "", "", "east"), s("", "", "", "east")),
        (s("api", "", "", "east"), s("api", "", "", "east")),
        (s("", "", "", "local"), s("", "", "far", "local")),
        (s("", "", "", "", "g"), s("", "", "far", "local", "g")),
    ],
)
def test_sources_and_excludes_get_the_tenancy_of_the_permissions(
    kind: Any, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """T-18. A partition has no namespace to inherit."""
    names = ("identity_name", "namespace", "partition", "peer", "sameness_group")
    own = "default" if kind is of_partition else "lab"
    expected = tuple(own if each == "OWN" else each for each in after)
    given: dict[str, Any] = dict(zip(names, before, strict=True))
    filled = kind(Permission(sources=[Source(**given), Source(exclude=[ExcludeSource(**given)])]))
    filled.type.hooks.mutate(filled)
    first, second = filled.data.permissions[0].sources
    for each in (first, second.exclude[0]):
        assert tuple(getattr(each, name) for name in names) == expected


@pytest.mark.parametrize("partition", ["", "far"])
def test_source_with_only_a_peer_is_valid(partition: str) -> None:
    """T-18 and T-20, without the weakness W-23: also without the partition of the permissions."""
    assert faults(permissions(Permission(sources=[Source(peer="east", partition=partition)]))) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", [Action.ACTION_UNSPECIFIED, DENY, int.__new__(Action, 7)])
def test_action_is_to_allow(kind: Any, action: Action) -> None:
    """T-19. No permissions are valid."""
    assert faults(kind(action=action)) == ["data.action"]
    assert faults(kind()) == []


@pytest.mark.parametrize("destination", [None, Destination()])
def test_permissions_have_a_destination(destination: Destination | None) -> None:
    """T-19."""
    data = TrafficPermissions(action=ALLOW, destination=destination)
    assert faults(TRAFFIC_PERMISSIONS.new("to-api", data)) == ["data.destination.identity_name"]


ANY = Source(namespace="lab")
EXCLUDE = [ExcludeSource(identity_name="x"), ExcludeSource(partition="other", peer="east")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("permission", "paths"),
    [
        (Permission(sources=[ANY]), []),
        (Permission(), ["sources"]),
        (Permission(sources=[ANY, Source(partition="other", peer="east")]), ["sources[1]"]),
        (Permission(sources=[Source(partition="other", sameness_group="g")]), ["sources[0]"]),
        (Permission(sources=[Source(peer="east", sameness_group="g")]), ["sources[0]"]),
        (Permission(sources=[Source(identity_name="api", peer="east")]), ["sources[0].namespace"]),
        (
            Permission(sources=[Source(identity_name="api", exclude=[ExcludeSource(peer="e", sameness_group="g")])]),
            ["sources[0].exclude"],
        ),
        (Permission(sources=[ANY, Source(exclude=EXCLUDE)]), ["sources[1].exclude[1]"]),
        (
            Permission(sources=[Source(exclude=[ExcludeSource(identity_name="a", peer="e", sameness_group="g")])]),
            ["sources[0].exclude[0]", "sources[0].exclude[0].namespace"],
        ),
        (
            Permission(sources=[ANY], destination_rules=[DestinationRule(path_exact="/"), DestinationRule()]),
            [],
        ),
        (
            Permission(
                sources=[ANY],
                destination_rules=[
                    DestinationRule(path_exact="/", path_regex=".*"),
                    DestinationRule(headers=[DestinationRuleHeader(name="a"), DestinationRuleHeader(present=True)]),
                    DestinationRule(exclude=[ExcludePermissionRule(path_exact="/", path_prefix="/")]),
                ],
            ),
            ["destination_rules[0]", "destination_rules[1].headers[1].name", "destination_rules[2].exclude[0]"],
        ),
    ],
)
def test_faults_of_permissions_have_the_paths_of_fields(kind: Any, permission: Permission, paths: list[str]) -> None:
    """T-20, T-21 and T-22, with the index of the source of an exclude (W-25)."""
    given: headway.Resource[Any] = kind(Permission(sources=[ANY]), permission)
    assert faults(given) == [f"data.permissions[1].{path}" for path in paths]


def test_computed_permissions_are_checked_as_permissions() -> None:
    """T-23: nothing is filled in."""
    bad, good = Permission(sources=[Source(identity_name="a")]), Permission(sources=[Source(partition="far")])
    data = ComputedTrafficPermissions(allow_permissions=[good, bad], deny_permissions=[Permission()], is_default=True)
    assert faults(COMPUTED_TRAFFIC_PERMISSIONS.new("api", data, **UNITS)) == [
        "data.allow_permissions[1].sources[0].namespace",
        "data.deny_permissions[0].sources",
    ]
    given = COMPUTED_TRAFFIC_PERMISSIONS.new("api", ComputedTrafficPermissions(allow_permissions=[good]), **UNITS)
    assert stored(given) == given

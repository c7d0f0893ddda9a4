"""Destination policies, computed routes and templates: facts MT-10 to MT-12."""

from __future__ import annotations

import datetime

import pytest

from catalog.messages import Protocol
from mesh.messages import (
    BackendTargetDetails,
    BackendTargetDetailsType,
    ComputedFailoverConfig,
    ComputedPortRoutes,
    ComputedRoutes,
    ComputedTCPRoute,
    DestinationConfig,
    DestinationPolicy,
    HashPolicy,
    LeastRequestConfig,
    LoadBalancer,
    LoadBalancerPolicy,
    LocalityPrioritization,
    LocalityPrioritizationMode,
    ProxyState,
    ProxyStateTemplate,
    RingHashConfig,
)
from mesh.messages.proxy_state import Cluster, EndpointGroup, FailoverGroup
from mesh.types import COMPUTED_ROUTES, DESTINATION_POLICY, PROXY_STATE_TEMPLATE
from tests.catalog.checks.hooked import faults

NEGATIVE = datetime.timedelta(seconds=-1)
LEAST, RING = LoadBalancerPolicy.LOAD_BALANCER_POLICY_LEAST_REQUEST, LoadBalancerPolicy.LOAD_BALANCER_POLICY_RING_HASH


def ring(smallest: int, largest: int = 0) -> RingHashConfig:
    return RingHashConfig(minimum_ring_size=smallest, maximum_ring_size=largest)


def balanced(policy: LoadBalancerPolicy, **given: object) -> DestinationConfig:
    balancer = LoadBalancer(policy=policy)
    for name, value in given.items():
        setattr(balancer, name, value)
    return DestinationConfig(load_balancer=balancer)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (DestinationConfig(), []),
        (DestinationConfig(connect_timeout=NEGATIVE, request_timeout=NEGATIVE), ["connect_timeout", "request_timeout"]),
        (balanced(LEAST, least_request_config=LeastRequestConfig(choice_count=2)), []),
        (balanced(RING, ring_hash_config=ring(2)), []),
        (balanced(LEAST, least_request_config=LeastRequestConfig()), []),
        (
            balanced(LEAST, least_request_config=LeastRequestConfig(choice_count=1)),
            ["load_balancer.least_request_config.choice_count"],
        ),
        (balanced(RING, ring_hash_config=ring(2, 2)), []),
        (balanced(RING, ring_hash_config=ring(1 << 23, 1 << 23)), []),
        (
            balanced(RING, ring_hash_config=ring((1 << 23) + 1)),
            ["load_balancer.ring_hash_config.minimum_ring_size"],
        ),
        (
            balanced(RING, ring_hash_config=ring(2, (1 << 23) + 1)),
            ["load_balancer.ring_hash_config.maximum_ring_size"],
        ),
        (balanced(RING, ring_hash_config=ring(3, 2)), ["load_balancer.ring_hash_config.maximum_ring_size"]),
        (
            # A proxy has a minimum of 1,024 by default.
            balanced(RING, ring_hash_config=ring(0, 1023)),
            ["load_balancer.ring_hash_config.maximum_ring_size"],
        ),
        (balanced(RING, least_request_config=LeastRequestConfig()), ["load_balancer.least_request_config"]),
        (balanced(LEAST, ring_hash_config=RingHashConfig()), ["load_balancer.ring_hash_config"]),
        (balanced(RING, hash_policies=[HashPolicy()]), ["load_balancer.hash_policies"]),
        (
            DestinationConfig(locality_prioritization=LocalityPrioritization(mode=LocalityPrioritizationMode(2))),
            ["locality_prioritization.mode"],
        ),
        (
            DestinationConfig(locality_prioritization=LocalityPrioritization(mode=LocalityPrioritizationMode(1))),
            [],
        ),
    ],
)
def test_destination_policy_is_checked(config: DestinationConfig, found: list[str]) -> None:
    """MT-10. Hash policies and localities are left out, so they are refused, and so are sizes that no proxy takes."""
    policy = DestinationPolicy(port_configs={"http": config})
    at = "data.port_configs['http']"
    assert faults(DESTINATION_POLICY.new("api", policy)) == [f"{at}.{each}" for each in found]


def test_destination_policy_has_ports() -> None:
    """MT-10. A key that no service can have as a port is refused as well."""
    assert faults(DESTINATION_POLICY.new("api", DestinationPolicy())) == ["data.port_configs"]
    policy = DestinationPolicy(port_configs={"no port": DestinationConfig()})
    assert faults(DESTINATION_POLICY.new("api", policy)) == ["data.port_configs"]


DIRECT = BackendTargetDetailsType.BACKEND_TARGET_DETAILS_TYPE_DIRECT
INDIRECT = BackendTargetDetailsType.BACKEND_TARGET_DETAILS_TYPE_INDIRECT


def target(
    type: BackendTargetDetailsType = DIRECT,
    mesh_port: str = "mesh",
    failover: ComputedFailoverConfig | None = None,
    config: DestinationConfig | None = None,
) -> BackendTargetDetails:
    return BackendTargetDetails(
        type=type, mesh_port=mesh_port, failover_config=failover, destination_config=config or DestinationConfig()
    )


NO_CONFIG = target()
NO_CONFIG.destination_config = None


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (target(failover=ComputedFailoverConfig()), ""),
        (target(INDIRECT), ""),
        (target(BackendTargetDetailsType(0)), "type"),
        (target(INDIRECT, failover=ComputedFailoverConfig()), "failover_config"),
        (target(mesh_port=""), "mesh_port"),
        (NO_CONFIG, "destination_config"),
        (target(config=DestinationConfig(connect_timeout=NEGATIVE)), "destination_config.connect_timeout"),
    ],
)
def test_target_of_computed_routes_is_checked(given: BackendTargetDetails, fault: str) -> None:
    """MT-11."""
    routes = ComputedRoutes(ported_configs={"http": ComputedPortRoutes(tcp=ComputedTCPRoute(), targets={"t": given})})
    at = f"data.ported_configs['http'].targets['t'].{fault}"
    assert faults(COMPUTED_ROUTES.new("api", routes)) == ([at] if fault else [])


def test_computed_routes_have_ports_and_their_routing() -> None:
    """MT-11."""
    assert faults(COMPUTED_ROUTES.new("api", ComputedRoutes())) == ["data.ported_configs"]
    routes = ComputedRoutes(ported_configs={"http": ComputedPortRoutes()})
    assert faults(COMPUTED_ROUTES.new("api", routes)) == ["data.ported_configs['http']"]


TCP, GROUP = Protocol.PROTOCOL_TCP, EndpointGroup()


@pytest.mark.parametrize(
    ("cluster", "found"),
    [
        (Cluster(name="c", protocol=TCP, endpoint_group=GROUP), []),
        (Cluster(name="c", protocol=TCP, endpoint_group=EndpointGroup(name="c")), []),
        (Cluster(name="x", protocol=TCP, endpoint_group=GROUP), [".name"]),
        (Cluster(name="c", endpoint_group=GROUP), [".protocol"]),
        (Cluster(name="c", protocol=Protocol.PROTOCOL_MESH, endpoint_group=GROUP), [".protocol"]),
        (Cluster(name="c", protocol=TCP), [""]),
        (Cluster(name="c", protocol=TCP, endpoint_group=EndpointGroup(name="x")), [".endpoint_group.name"]),
        (Cluster(name="c", protocol=TCP, failover_group=FailoverGroup()), [".failover_group.endpoint_groups"]),
        (
            Cluster(
                name="c",
                protocol=TCP,
                failover_group=FailoverGroup(endpoint_groups=[EndpointGroup(name=name) for name in ("", "c", "d")]),
            ),
            [f".failover_group.endpoint_groups[{index}].name" for index in (0, 1)],
        ),
    ],
)
def test_cluster_of_a_template_is_checked(cluster: Cluster, found: list[str]) -> None:
    """MT-12."""
    template = ProxyStateTemplate(proxy_state=ProxyState(clusters={"c": cluster}))
    at = "data.proxy_state.clusters['c']"
    assert faults(PROXY_STATE_TEMPLATE.new("api-1", template)) == [at + each for each in found]


def test_cluster_of_a_template_has_a_name() -> None:
    """MT-12."""
    template = ProxyStateTemplate(
        proxy_state=ProxyState(clusters={"": Cluster(name="", protocol=TCP, endpoint_group=GROUP)})
    )
    assert faults(PROXY_STATE_TEMPLATE.new("api-1", template)) == ["data.proxy_state.clusters[''].name"]

"""The rules of destination policies."""

from __future__ import annotations

from typing import Final

from catalog.checks import values
from catalog.checks.faults import Faults
from headway import Resource
from headway.resource import quoted
from mesh.checks import limits
from mesh.messages import (
    DestinationConfig,
    DestinationPolicy,
    LoadBalancer,
    LoadBalancerPolicy,
    LocalityPrioritizationMode,
    RingHashConfig,
)

_LARGEST_RING: Final = 1 << 23
_DEFAULT_RING: Final = 1024


def policy(resource: Resource[DestinationPolicy]) -> Faults:
    """Yield the faults of a destination policy."""
    if not resource.data.port_configs:
        yield "data.port_configs is empty: give a configuration for at least one port"
    for port, config in resource.data.port_configs.items():
        yield from values.port_id("data.port_configs key", port)
        yield from _config(f"data.port_configs[{quoted(port)}]", config)


def _config(path: str, config: DestinationConfig) -> Faults:
    yield from limits.duration(f"{path}.connect_timeout", config.connect_timeout)
    yield from limits.duration(f"{path}.request_timeout", config.request_timeout)
    if config.load_balancer is not None:
        yield from _load_balancer(f"{path}.load_balancer", config.load_balancer)
    if config.locality_prioritization is not None:
        mode = config.locality_prioritization.mode
        yield from values.member(f"{path}.locality_prioritization.mode", mode)
        if mode == LocalityPrioritizationMode.LOCALITY_PRIORITIZATION_MODE_FAILOVER:
            yield f"{path}.locality_prioritization.mode {mode.name} is not supported: leave it out"


def _load_balancer(path: str, given: LoadBalancer) -> Faults:
    yield from values.member(f"{path}.policy", given.policy)
    yield from limits.absent(f"{path}.hash_policies", given.hash_policies)
    if given.ring_hash_config is not None:
        yield from _ring(f"{path}.ring_hash_config", given.ring_hash_config)
    if given.least_request_config is not None and given.least_request_config.choice_count == 1:
        yield f"{path}.least_request_config.choice_count 1 is no choice: use at least 2, or 0 for the default of 2"
    if given.ring_hash_config is not None and given.policy != LoadBalancerPolicy.LOAD_BALANCER_POLICY_RING_HASH:
        yield f"{path}.ring_hash_config is only for LOAD_BALANCER_POLICY_RING_HASH: leave it out"
    if given.least_request_config is not None and given.policy != LoadBalancerPolicy.LOAD_BALANCER_POLICY_LEAST_REQUEST:
        yield f"{path}.least_request_config is only for LOAD_BALANCER_POLICY_LEAST_REQUEST: leave it out"


def _ring(path: str, given: RingHashConfig) -> Faults:
    for name in ("minimum_ring_size", "maximum_ring_size"):
        yield from values.number(f"{path}.{name}", getattr(given, name), 0, _LARGEST_RING)
    smallest = given.minimum_ring_size or _DEFAULT_RING
    if given.maximum_ring_size and given.maximum_ring_size < smallest:
        yield f"{path}.maximum_ring_size {given.maximum_ring_size} must be at least the minimum, {smallest}"

"""The failover of each port of a service, computed from a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import headway
from catalog.computed import condition, id_text
from catalog.messages import (
    ComputedFailoverPolicy,
    FailoverConfig,
    FailoverDestination,
    FailoverPolicy,
    Protocol,
    Service,
)
from catalog.ports import destinations, find_port, is_empty, port_number, port_text
from catalog.types import SERVICE

Find = Callable[[headway.ResourceId], Service | None]
"""A function that returns the service with an id, or None."""


def accepted(reason: str, message: str) -> headway.Condition:
    """Return the condition of a failover policy. Only the reason ``Ok`` accepts it."""
    return condition("accepted", reason == "Ok", message, reason)


_MOST = 50
"""The most conditions of a policy. A store refuses a status with more than 100 conditions, or with too much text."""

OK = accepted("Ok", "failover policy was accepted")
MISSING_SERVICE = accepted("MissingService", "service for failover policy does not exist")


def compute(
    policy: FailoverPolicy, id: headway.ResourceId, service: Service, find: Find
) -> tuple[ComputedFailoverPolicy, list[headway.Condition]]:
    """Return the computed policy of a service, and the conditions that say what is wrong with the policy.

    Everything is in a fixed order, so that the same input always gives the same result. Of many faults, the first 50
    are reported.
    """
    by_port, conditions = _by_target_port(policy, id, service)
    found = {each: find(each) for each in service_ids(destinations(None, by_port))}
    computed: dict[str, FailoverConfig] = {}
    for name in sorted(by_port):
        left = [aligned for each in by_port[name].destinations if (aligned := _aligned(each, found)) is not None]
        if left:
            config = by_port[name]
            computed[name] = FailoverConfig(destinations=left, mode=config.mode, regions=list(config.regions))
    conditions += _port_conditions(destinations(None, computed), found)
    for missing in sorted((each for each in found if found[each] is None), key=lambda each: each.key):
        text = f"destination service for failover policy does not exist: {id_text(missing)}"
        conditions.append(accepted("MissingDestinationService", text))
    for group in sorted({each.sameness_group for each in by_port.values()} - {""}):
        # Consul's community edition has no sameness groups, so none exists here either.
        text = f"referenced sameness group does not exist: multicluster.v2.SamenessGroup/{id.partition}/{group}"
        conditions.append(accepted("MissingSamenessGroup", text))
    bound = sorted({id, *found}, key=lambda each: each.key)
    data = ComputedFailoverPolicy(port_configs=computed, bound_references=[each.reference() for each in bound])
    return data, conditions[:_MOST] or [OK]


def service_ids(named: Iterable[FailoverDestination]) -> list[headway.ResourceId]:
    """Return the ids of the services that destinations name."""
    return [_service_id(each.ref) for each in named if each.ref is not None]


def _service_id(ref: headway.Reference) -> headway.ResourceId:
    # Not SERVICE.id(...), which refuses a name that no service can have. Such a service does not exist, as any other.
    tenancy = ref.tenancy
    units = ("", "") if tenancy is None else (tenancy.partition, tenancy.namespace)
    return headway.ResourceId(SERVICE.name, ref.name, *units)


def _by_target_port(
    policy: FailoverPolicy, id: headway.ResourceId, service: Service
) -> tuple[dict[str, FailoverConfig], list[headway.Condition]]:
    """Return the configuration of each target port, and a condition for each key that finds no port of its own.

    If two keys mean one port, its target port wins over a virtual port.
    """
    by_port: dict[str, FailoverConfig] = {}
    faults: dict[str, headway.Condition] = {}
    for key in sorted(policy.port_configs, key=lambda each: (port_number(each) is not None, each)):
        port = find_port(service, key)
        if port is None:
            faults[key] = accepted("UnknownPort", f"port is not defined on service: {key} on {id_text(id)}")
        elif port.target_port in by_port:
            text = f"multiple configs found for port on destination service: {port_text(port)} on {id_text(id)}"
            faults[key] = accepted("ConflictDestinationPort", text)
        else:
            by_port[port.target_port] = policy.port_configs[key]
    for port in service.ports:
        name = port.target_port
        if port.protocol == Protocol.PROTOCOL_MESH:
            continue  # Nothing can be routed to it by name, so its configuration stays as it is.
        if name in by_port:
            by_port[name] = _with_ports(by_port[name], [each.port or name for each in by_port[name].destinations])
        elif policy.config is not None and not is_empty(policy.config):
            by_port[name] = _with_ports(policy.config, [name] * len(policy.config.destinations))
    return by_port, [faults[key] for key in sorted(faults)]


def _with_ports(config: FailoverConfig, ports: list[str]) -> FailoverConfig:
    named = [
        FailoverDestination(ref=each.ref, port=port, datacenter=each.datacenter)
        for each, port in zip(config.destinations, ports, strict=True)
    ]
    return FailoverConfig(
        destinations=named, mode=config.mode, regions=list(config.regions), sameness_group=config.sameness_group
    )


def _aligned(
    destination: FailoverDestination, found: dict[headway.ResourceId, Service | None]
) -> FailoverDestination | None:
    """Return a destination with its target port, or None if its service does not exist. An unknown port stays."""
    service = None if destination.ref is None else found[_service_id(destination.ref)]
    if service is None:
        return None
    port = find_port(service, destination.port)
    name = destination.port if port is None else port.target_port
    return FailoverDestination(ref=destination.ref, port=name, datacenter=destination.datacenter)


def _port_conditions(
    named: Iterable[FailoverDestination], found: dict[headway.ResourceId, Service | None]
) -> list[headway.Condition]:
    """Return a condition for each port of an existing service that traffic cannot be sent to, in order."""
    faults: set[tuple[str, str, str]] = set()
    for each in named:
        if each.ref is None or (service := found[_service_id(each.ref)]) is None:
            continue
        port, text = find_port(service, each.port), id_text(_service_id(each.ref))
        if port is None:
            message = f"port is not defined on destination service: {each.port} on {text}"
            faults.add((text, message, "UnknownDestinationPort"))
        elif port.protocol == Protocol.PROTOCOL_MESH:
            message = f"port is a special unroutable mesh port on destination service: {each.port} on {text}"
            faults.add((text, message, "UsingMeshDestinationPort"))
    return [accepted(reason, message) for _, message, reason in sorted(faults)]

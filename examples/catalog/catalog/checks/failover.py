"""The rules of failover policies."""

from __future__ import annotations

from collections.abc import Iterable

from catalog.checks import values
from catalog.checks.faults import Faults
from catalog.checks.references import complete, service_reference
from catalog.messages import ComputedFailoverPolicy, FailoverConfig, FailoverDestination, FailoverPolicy
from catalog.ports import is_empty
from headway import Resource
from headway.resource import quoted


def fill_in(resource: Resource[FailoverPolicy]) -> None:
    """Remove empty configurations, and complete the tenancies of the destinations."""
    data, id = resource.data, resource.id
    if is_empty(data.config):
        data.config = None
    data.port_configs = {key: config for key, config in data.port_configs.items() if not is_empty(config)}
    for config in (data.config, *data.port_configs.values()):
        for destination in config.destinations if config is not None else ():
            complete(destination.ref, id)


def policy(resource: Resource[FailoverPolicy]) -> Faults:
    """Yield the faults of a failover policy."""
    data = resource.data
    if data.config is None and not data.port_configs:
        yield "data.config is required if there are no port_configs: give at least one destination"
    if data.config is not None:
        yield from _config("data.config", data.config, is_general=True)
    yield from _port_configs(data.port_configs.items())


def computed(resource: Resource[ComputedFailoverPolicy]) -> Faults:
    """Yield the faults of a computed failover policy."""
    data = resource.data
    if data.config is not None:
        yield "data.config must be absent: a computed policy has a configuration for each port"
        return
    grouped = [key for key, config in data.port_configs.items() if config.sameness_group]
    if grouped:
        path = f"data.port_configs[{quoted(grouped[0])}].sameness_group"
        yield f"{path} must be empty: a computed policy has the destinations themselves"
        return
    yield from _port_configs(data.port_configs.items())


def _port_configs(configs: Iterable[tuple[str, FailoverConfig]]) -> Faults:
    for key, config in configs:
        yield from values.port_id("data.port_configs key", key)
        yield from _config(f"data.port_configs[{quoted(key)}]", config, is_general=False)


def _config(path: str, config: FailoverConfig, *, is_general: bool) -> Faults:
    if config.regions:
        yield f"{path}.regions is not supported: leave it out"
    if config.mode != 0:
        yield f"{path}.mode {int(config.mode)} is not supported: leave it out"
    if bool(config.destinations) == bool(config.sameness_group):
        yield f"{path}.destinations: give either destinations or a sameness_group"
    for index, destination in enumerate(config.destinations):
        yield from _destination(f"{path}.destinations[{index}]", destination, is_general=is_general)


def _destination(path: str, given: FailoverDestination, *, is_general: bool) -> Faults:
    yield from service_reference(f"{path}.ref", given.ref, "takes over")
    if given.port and is_general:
        yield f"{path}.port {quoted(given.port)} is only for a configuration of one port: leave it out"
    elif given.port:
        yield from values.port_id(f"{path}.port", given.port)

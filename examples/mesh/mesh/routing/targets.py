"""The targets of computed routes: the ports of services that traffic goes to, directly or after a failure."""

from __future__ import annotations

import datetime
from typing import Final

import headway
from catalog.checks.references import service_id
from catalog.computed import id_text
from catalog.messages import FailoverConfig, Protocol, Service, ServicePort
from catalog.ports import find_port, find_target_port, port_number
from headway.protobuf import copy_message
from mesh.messages import (
    BackendReference,
    BackendTargetDetails,
    BackendTargetDetailsType,
    ComputedFailoverConfig,
    ComputedFailoverDestination,
    DestinationConfig,
)
from mesh.routing.binding import mesh_port_of
from mesh.routing.view import View

NULL_ROUTE: Final = "NULL-ROUTE"
"""The target of traffic that has none: its share fails."""
_CONNECT_TIMEOUT: Final = datetime.timedelta(seconds=5)
_DIRECT = BackendTargetDetailsType.BACKEND_TARGET_DETAILS_TYPE_DIRECT
_INDIRECT = BackendTargetDetailsType.BACKEND_TARGET_DETAILS_TYPE_INDIRECT


def find_backend(service: Service, port: str, parent_port: str) -> ServicePort | None:
    """Return the port of a service that a backend means. Without a port, it is the one with the parent's name."""
    return find_port(service, port) if port else find_target_port(service, parent_port)


class Targets:
    """The targets of one port, and the resources that they come from.

    Args:
        view: finds services and policies.
        beside: the id of the service, in whose tenancy references without one are.
        port: the target port whose traffic goes to the targets.
    """

    def __init__(self, view: View, beside: headway.ResourceId, port: str) -> None:
        self._view = view
        self._beside = beside
        self._port = port
        self.details: dict[str, BackendTargetDetails] = {}
        self.used: set[headway.ResourceId] = set()

    def add(self, backend: BackendReference | None) -> str:
        """Add the target of a backend, and those that stand in for it. Return its key, or that of no target."""
        if backend is None or backend.ref is None:
            return NULL_ROUTE
        id = service_id(backend.ref, self._beside)
        return self.add_service(id, backend.port)

    def add_service(self, id: headway.ResourceId, port: str) -> str:
        """Add a port of a service, and the targets that stand in for it. Return its key, or that of no target."""
        found = self._find(id, port)
        if found is None:
            return NULL_ROUTE
        key, details = found
        details.type = _DIRECT
        known = self.details.get(key)
        if known is None or known.type != _DIRECT:
            self.details[key] = details
            target = "" if details.backend_ref is None else details.backend_ref.port
            details.failover_config = self._failover(id, target)
        return key

    def request_timeout(self, key: str) -> datetime.timedelta | None:
        """Return the request timeout of a target, if a policy has one."""
        details = self.details.get(key)
        config = None if details is None else details.destination_config
        return None if config is None else config.request_timeout

    def _find(self, id: headway.ResourceId, port: str) -> tuple[str, BackendTargetDetails] | None:
        service = self._view.service(id)
        mesh_port = mesh_port_of(service)
        if service is None or not mesh_port:
            return None
        found = find_backend(service, port, self._port)
        if found is None or found.protocol == Protocol.PROTOCOL_MESH:
            return None
        self.used.add(id)
        details = BackendTargetDetails(
            backend_ref=BackendReference(ref=id.reference(), port=found.target_port),
            mesh_port=mesh_port,
            destination_config=self._config(id, service, found.target_port),
        )
        return f"{id_text(id)}?port={found.target_port}", details

    def _config(self, id: headway.ResourceId, service: Service, port: str) -> DestinationConfig:
        """Return the configuration of a port. The key of a target port wins over that of a virtual port."""
        policy = self._view.policy(id)
        config = DestinationConfig()
        if policy is not None:
            self.used.add(policy.id.without_uid())
            for key in sorted(policy.data.port_configs, key=lambda each: (port_number(each) is not None, each)):
                named = find_port(service, key)
                if named is not None and named.target_port == port:
                    config = copy_message(policy.data.port_configs[key])
                    break
        if not config.connect_timeout:  # A proxy refuses 0 s.
            config.connect_timeout = _CONNECT_TIMEOUT
        return config

    def _failover(self, id: headway.ResourceId, port: str) -> ComputedFailoverConfig | None:
        policy = self._view.failover(id)
        config = None if policy is None else policy.data.port_configs.get(port)
        if policy is None or config is None:
            return None
        self.used.add(policy.id.without_uid())
        keys = self._standing_in(config)
        if not keys:
            return None
        named = [ComputedFailoverDestination(backend_target=key) for key in keys]
        return ComputedFailoverConfig(destinations=named, mode=config.mode)

    def _standing_in(self, config: FailoverConfig) -> list[str]:
        keys: list[str] = []
        for each in config.destinations:
            found = None if each.ref is None else self._find(service_id(each.ref, self._beside), each.port)
            if found is None:
                continue
            key, details = found
            details.type = _INDIRECT
            self.details.setdefault(key, details)
            if key not in keys:
                keys.append(key)
        return keys

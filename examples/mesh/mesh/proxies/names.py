"""The names of identities, servers and clusters, as proxies know them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import headway
from headway.resource import DEFAULT_UNIT

NULL_CLUSTER: Final = "null_route_cluster"
"""The cluster of traffic that has no target. It has no endpoints."""
BLACK_HOLE: Final = "black-hole-cluster"
"""The cluster of a listener that has nothing to serve."""
LOCAL: Final = "local"
"""The peer that stands for this cluster."""
_ANY: Final = "[^/]+"


@dataclass(frozen=True)
class Mesh:
    """The facts that all proxies of a mesh share.

    Args:
        trust_domain: the domain of all identities.
        datacenter: the datacenter in the names of servers.
        allows_by_default: True if an identity without permissions may be called by everyone.
    """

    trust_domain: str = "cluster.local"
    datacenter: str = "dc1"
    allows_by_default: bool = False

    def identity(self, service: headway.ResourceId, name: str) -> str:
        """Return the SPIFFE id of an identity in the tenancy of a service."""
        return f"spiffe://{self.trust_domain}/ap/{service.partition}/ns/{service.namespace}/identity/{name}"

    def identities(self, partition: str, namespace: str, name: str) -> str:
        """Return the pattern of SPIFFE ids. An empty namespace or name stands for all."""
        units = (_pattern(partition or DEFAULT_UNIT), _pattern(namespace) or _ANY, _pattern(name) or _ANY)
        return "^spiffe://{}/ap/{}/ns/{}/identity/{}$".format(_pattern(self.trust_domain), *units)

    @property
    def everyone(self) -> str:
        """The pattern of all SPIFFE ids of the mesh."""
        return f"^spiffe://{_pattern(self.trust_domain)}/.+$"

    def server_name(self, service: headway.ResourceId) -> str:
        """Return the server name (SNI) of a service."""
        within = f"{service.name}.{service.namespace}"
        if service.partition == DEFAULT_UNIT:
            return f"{within}.{self.datacenter}.internal.{self.trust_domain}"
        return f"{within}.{service.partition}.{self.datacenter}.internal-v1.{self.trust_domain}"

    def cluster(self, service: headway.ResourceId, port: str) -> str:
        """Return the name of the cluster of a service's port."""
        return f"{port}.{self.server_name(service)}"


MESH: Final = Mesh()
"""The mesh of this app."""


def alpn(port: str) -> str:
    """Return the ALPN protocol that chooses a port."""
    return f"consul~{port}"


def _pattern(text: str) -> str:
    """Return a pattern that matches a text and nothing else."""
    # A proxy compares bytes, and takes no backslash before those of other characters than ASCII.
    return re.sub(r"([^A-Za-z0-9_\u0080-\U0010ffff-])", r"\\\1", text)

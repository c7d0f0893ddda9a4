"""From a template, its endpoints, its certificate and the roots to the snapshot of its proxy.

What several proxies share is made once: the endpoints of a cluster, a certificate, and the roots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import headway
from catalog.messages import ServiceEndpoints
from catalog.types import SERVICE_ENDPOINTS
from mesh.certificates import IdentityKey, Leaf
from mesh.control.conditions import BAD_ENDPOINTS, NO_ENDPOINTS, NO_STATE, NOT_PUSHED, Problem
from mesh.control.connected import Key
from mesh.messages import ProxyStateTemplate
from mesh.messages.proxy_state import EndpointRef
from mesh.proxies.names import Mesh
from mesh.xds import Resource, Snapshot
from mesh.xds.translation import Unfit, assign, leaf_name, leaf_secret, roots_name, roots_secret, translate, trusted

Find = Callable[[headway.ResourceId], headway.Resource[ServiceEndpoints] | None]
"""Finds the endpoints of a service."""
_MOST_KEPT = 50_000


@dataclass(frozen=True)
class Fixed:
    """What follows from a template alone.

    Attributes:
        of: the uid and the generation of the template.
        resources: its clusters, listeners and routes.
        trusted: the SPIFFE ids that each cluster accepts.
    """

    of: tuple[str, str]
    resources: tuple[Resource, ...]
    trusted: dict[str, frozenset[str]]


@dataclass(frozen=True)
class _Endpoints:
    of: tuple[str, str] | None
    resource: Resource
    problems: tuple[str, ...]


class Failed(Exception):
    """A template cannot be completed, and its proxy keeps what it has.

    Attributes:
        problem: why.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def endpoints_id(ref: EndpointRef) -> headway.ResourceId | None:
    """Return the id of the endpoints that a template refers to, or None if it refers to none."""
    id = ref.id
    if id is None or not id.name:
        return None
    units = (id.tenancy.partition, id.tenancy.namespace) if id.tenancy is not None else ("", "")
    return SERVICE_ENDPOINTS.id(id.name, partition=units[0], namespace=units[1])


class Publishing:
    """Makes snapshots.

    Args:
        mesh: the mesh of the proxies.
    """

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._fixed: dict[Key, Fixed] = {}
        self._endpoints: dict[tuple[Any, ...], _Endpoints] = {}
        self._secrets: dict[IdentityKey, tuple[Leaf, Resource]] = {}
        self._roots: tuple[tuple[str, ...], Resource] | None = None

    def forget(self, id: headway.ResourceId) -> None:
        """Forget a template whose proxy is not connected."""
        self._fixed.pop(id.key, None)
        if not self._fixed:
            self._endpoints.clear()

    def forget_secret(self, identity: IdentityKey) -> None:
        """Forget the certificate of an identity."""
        self._secrets.pop(identity, None)

    def snapshot(
        self,
        template: headway.Resource[ProxyStateTemplate],
        find: Find,
        *,
        secret: Resource,
        roots: tuple[str, ...],
    ) -> tuple[Snapshot, list[Problem]]:
        """Return the snapshot of a proxy, and what is missing in it.

        Raises:
            Failed: there can be none.
        """
        fixed = self.fixed(template)
        resources = [*fixed.resources, secret]
        problems: list[Problem] = []
        for cluster in sorted(template.data.required_endpoints):
            found = self._assigned(cluster, template.data.required_endpoints[cluster], fixed, find, problems)
            resources.append(found)
        resources += [self._bundle(peer, roots) for peer in template.data.required_trust_bundles]
        return Snapshot(resources), problems

    def fixed(self, template: headway.Resource[ProxyStateTemplate]) -> Fixed:
        """Return what follows from a template alone.

        Raises:
            Failed: no proxy could use it.
        """
        of = (template.id.uid, template.generation)
        known = self._fixed.get(template.id.key)
        if known is not None and known.of == of:
            return known
        state = template.data.proxy_state
        if state is None:
            raise Failed(Problem(NO_STATE, "data.proxy_state is missing"))
        try:
            made = tuple(map(Resource.of, translate(state)))
        except Unfit as error:
            raise Failed(Problem(NOT_PUSHED, str(error))) from error
        known = self._fixed[template.id.key] = Fixed(of, made, trusted(state.clusters))
        return known

    def _assigned(self, cluster: str, ref: EndpointRef, fixed: Fixed, find: Find, problems: list[Problem]) -> Resource:
        id = endpoints_id(ref)
        found = None if id is None else find(id)
        accepted = fixed.trusted.get(cluster, frozenset())
        key = (cluster, id, ref.mesh_port, ref.route_port, accepted)
        of = None if found is None else (found.id.uid, found.version)
        known = self._endpoints.get(key)
        if known is None or known.of != of:
            if len(self._endpoints) >= _MOST_KEPT:
                self._endpoints.clear()
            data = None if found is None else found.data
            assigned = assign(cluster, ref, data, partial(self._is_trusted, id, accepted))
            known = self._endpoints[key] = _Endpoints(of, Resource.of(assigned.message), assigned.problems)
        if id is not None and found is None:
            problems.append(
                Problem(NO_ENDPOINTS, f"cluster {cluster}: the endpoints of service {id.name} do not exist")
            )
        if known.problems:
            listed = ", ".join(known.problems)
            problems.append(Problem(BAD_ENDPOINTS, f"cluster {cluster}: left out endpoints: {listed}"))
        return known.resource

    def _is_trusted(self, service: headway.ResourceId | None, accepted: frozenset[str], identity: str) -> bool:
        return service is not None and self._mesh.identity(service, identity) in accepted

    def secret(self, identity: IdentityKey, name: str, leaf: Leaf) -> Resource:
        """Return the secret with the certificate of an identity, under its name in a template."""
        known = self._secrets.get(identity)
        if known is None or known[0] is not leaf or known[1].name != leaf_name(name):
            known = self._secrets[identity] = leaf, Resource.of(leaf_secret(name, leaf.chain, leaf.key))
        return known[1]

    def _bundle(self, peer: str, roots: tuple[str, ...]) -> Resource:
        if self._roots is None or self._roots[0] != roots or self._roots[1].name != roots_name(peer):
            self._roots = roots, Resource.of(roots_secret(peer, roots))
        return self._roots[1]

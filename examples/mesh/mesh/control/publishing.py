"""From a template, its endpoints, its certificate and the roots to the snapshot of its proxy.

What several proxies share is made once: the endpoints of a cluster, a certificate, and the roots.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import headway
from catalog.messages import ServiceEndpoints
from catalog.types import SERVICE_ENDPOINTS, WORKLOAD_IDENTITY
from headway.resource import DEFAULT_UNIT, TypeName, pb, quoted
from mesh.certificates import IdentityKey, Leaf
from mesh.control.conditions import (
    BAD_ENDPOINTS,
    BAD_LEAF_REFERENCE,
    NO_ENDPOINTS,
    NO_ROOTS,
    NO_STATE,
    NOT_PUSHED,
    Problem,
)
from mesh.control.connected import Key
from mesh.messages import ProxyState, ProxyStateTemplate
from mesh.messages.proxy_state import EndpointRef
from mesh.proxies.names import LOCAL, Mesh
from mesh.xds import Kind, Resource, Snapshot
from mesh.xds.translation import (
    Assigned,
    Unfit,
    assign,
    joined,
    leaf_name,
    leaf_secret,
    roots_name,
    roots_secret,
    translate,
    trusted,
)

Find = Callable[[headway.ResourceId], headway.Resource[ServiceEndpoints] | None]
"""Finds the endpoints of a service."""
_MOST_KEPT = 50_000


@dataclass(frozen=True)
class Group:
    """A group of endpoints that come apart: those of a cluster, or of one member of its failover.

    Attributes:
        name: its name.
        ref: the ports of its endpoints.
        service: the id of the endpoints of its service; None if the template names none.
        trusted: the SPIFFE ids that it accepts.
    """

    name: str
    ref: EndpointRef
    service: headway.ResourceId | None
    trusted: frozenset[str]

    @property
    def key(self) -> tuple[Any, ...]:
        """What the endpoints depend on, beside those of the service."""
        return self.name, self.service, self.ref.mesh_port, self.ref.route_port, self.trusted


@dataclass(frozen=True)
class Fixed:
    """What follows from a template alone. With it, a change of endpoints decodes no template.

    Attributes:
        of: the uid and the generation of the template.
        identity: the identity of the proxy.
        secret: the name of the secret with its certificate.
        bundles: the peers whose roots it trusts.
        resources: its clusters, listeners and routes.
        clusters: by name, the groups of endpoints of the clusters whose endpoints come apart, in order of their use,
            and the key of these.
    """

    of: tuple[str, str]
    identity: headway.ResourceId
    secret: str
    bundles: tuple[str, ...]
    resources: tuple[Resource, ...]
    clusters: dict[str, tuple[tuple[Group, ...], tuple[Any, ...]]]


@dataclass(frozen=True)
class _Endpoints:
    of: tuple[tuple[str, str] | None, ...]
    resource: Resource
    problems: tuple[Problem, ...]


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
    return _within(SERVICE_ENDPOINTS.name, id.name, id.tenancy)


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
        self, fixed: Fixed, find: Find, *, leaf: Leaf, roots: tuple[str, ...]
    ) -> tuple[Snapshot, list[Problem]]:
        """Return the snapshot of a proxy, and what is missing in it."""
        problems: list[Problem] = []
        resources = [*fixed.resources, self._secret(fixed, leaf)]
        resources += [self._assigned(name, *of, find, problems) for name, of in fixed.clusters.items()]
        resources += [self._bundle(peer, roots) for peer in fixed.bundles]
        return Snapshot(resources), problems

    def fixed(self, template: headway.Resource[ProxyStateTemplate]) -> Fixed:
        """Return what follows from a template alone.

        Raises:
            Failed: no proxy could use it.
        """
        of = (template.id.uid, template.generation)
        known = self._fixed.get(template.id.key)
        if known is None or known.of != of:
            known = self._fixed[template.id.key] = _fixed(of, template.data)
        return known

    def _assigned(
        self, cluster: str, groups: tuple[Group, ...], key: tuple[Any, ...], find: Find, problems: list[Problem]
    ) -> Resource:
        found = [None if each.service is None else find(each.service) for each in groups]
        of = tuple(None if each is None else (each.id.uid, each.version) for each in found)
        known = self._endpoints.get(key)
        if known is None or known.of != of:
            if len(self._endpoints) >= _MOST_KEPT:
                self._endpoints.clear()
            parts = [self._part(group, each) for group, each in zip(groups, found, strict=True)]
            made = parts[0] if len(parts) == 1 and groups[0].name == cluster else joined(cluster, parts)
            told = [_told(group, each, part) for group, each, part in zip(groups, found, parts, strict=True)]
            known = self._endpoints[key] = _Endpoints(of, Resource.of(made.message), tuple(itertools.chain(*told)))
        problems += known.problems
        return known.resource

    def _part(self, group: Group, found: headway.Resource[ServiceEndpoints] | None) -> Assigned:
        is_trusted = partial(self._is_trusted, group.service, group.trusted)
        return assign(group.name, group.ref, None if found is None else found.data, is_trusted)

    def _is_trusted(self, service: headway.ResourceId | None, accepted: frozenset[str], identity: str) -> bool:
        return service is not None and self._mesh.identity(service, identity) in accepted

    def _secret(self, fixed: Fixed, leaf: Leaf) -> Resource:
        identity = identity_key(fixed.identity)
        known = self._secrets.get(identity)
        if known is None or known[0] is not leaf or known[1].name != leaf_name(fixed.secret):
            secret = Resource.of(leaf_secret(fixed.secret, leaf.chain, leaf.key))
            known = self._secrets[identity] = leaf, secret
        return known[1]

    def _bundle(self, peer: str, roots: tuple[str, ...]) -> Resource:
        if self._roots is None or self._roots[0] != roots or self._roots[1].name != roots_name(peer):
            self._roots = roots, Resource.of(roots_secret(peer, roots))
        return self._roots[1]


def _told(group: Group, found: headway.Resource[ServiceEndpoints] | None, part: Assigned) -> Iterator[Problem]:
    if group.service is not None and found is None:
        text = f"cluster {group.name}: the endpoints of service {group.service.name} do not exist"
        yield Problem(NO_ENDPOINTS, text)
    if part.problems:
        yield Problem(BAD_ENDPOINTS, f"cluster {group.name}: left out endpoints: {', '.join(part.problems)}")


def identity_key(identity: headway.ResourceId) -> IdentityKey:
    """Return the key of the certificates of an identity."""
    return IdentityKey(partition=identity.partition, namespace=identity.namespace, name=identity.name)


def _fixed(of: tuple[str, str], data: ProxyStateTemplate) -> Fixed:
    state = data.proxy_state
    identity = _identity(state)
    if state is None or identity is None:
        raise Failed(Problem(NO_STATE, "data.proxy_state.identity is missing: name a WorkloadIdentity"))
    needed = data.required_leaf_certificates
    if [(each.partition, each.namespace, each.name) for each in needed.values()] != [identity_key(identity)]:
        found = f"data.required_leaf_certificates has {', '.join(map(quoted, sorted(needed))) or 'none'}"
        text = f"{found}: a proxy needs the one of its identity {identity.name}"
        raise Failed(Problem(BAD_LEAF_REFERENCE, text))
    bundles = tuple(sorted(data.required_trust_bundles))
    if set(bundles) - {LOCAL}:
        text = f"data.required_trust_bundles has {', '.join(map(quoted, bundles))}: only {quoted(LOCAL)} is known"
        raise Failed(Problem(NO_ROOTS, text))
    try:
        made = tuple(map(Resource.of, translate(state)))
    except Unfit as error:
        raise Failed(Problem(NOT_PUSHED, str(error))) from error
    secret = next(iter(needed))
    needs = {need for each in made for need in each.needs}
    known = {leaf_name(secret), *map(roots_name, bundles)}
    if missing := sorted(name for kind, name in needs if kind is Kind.SECRET and name not in known):
        # The proxy would wait for it without an end.
        text = (
            f"data.proxy_state needs the secret {quoted(missing[0])}: the template requires {', '.join(sorted(known))}"
        )
        raise Failed(Problem(NOT_PUSHED, text))
    clusters: dict[str, tuple[tuple[Group, ...], tuple[Any, ...]]] = {}
    for name, accepted in sorted(trusted(state.clusters).items()):
        refs = {at: data.required_endpoints.get(at, EndpointRef()) for at in accepted}
        groups = tuple(Group(at, ref, endpoints_id(ref), accepted[at]) for at, ref in refs.items())
        clusters[name] = groups, (name, *(each.key for each in groups))
    return Fixed(of, identity, secret, bundles, made, clusters)


def _identity(state: ProxyState | None) -> headway.ResourceId | None:
    """Return the workload identity of a proxy, or None if its state has none."""
    ref = state.identity if state is not None else None
    return None if ref is None or not ref.name else _within(WORKLOAD_IDENTITY.name, ref.name, ref.tenancy)


def _within(type: TypeName, name: str, tenancy: pb.Tenancy | None) -> headway.ResourceId:
    """Return an id, also if no resource can have the name."""
    units = tenancy or pb.Tenancy()
    return headway.ResourceId(type, name, units.partition or DEFAULT_UNIT, units.namespace or DEFAULT_UNIT)

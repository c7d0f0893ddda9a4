"""References, and resources of the mesh that refer to services, for the tests."""

from __future__ import annotations

from catalog.messages import WorkloadSelector
from catalog.types import SERVICE
from headway import Reference
from mesh.messages import (
    BackendReference,
    GRPCBackendRef,
    GRPCRoute,
    GRPCRouteRule,
    HTTPBackendRef,
    HTTPRoute,
    HTTPRouteRule,
    ParentReference,
    TCPBackendRef,
    TCPRoute,
    TCPRouteRule,
)

SELECTOR = WorkloadSelector(names=["api-1"])


def ref(name: str, namespace: str = "default") -> Reference:
    """Return a reference to a service."""
    return SERVICE.id(name, namespace=namespace).reference()


def bare(name: str) -> Reference:
    """Return a reference to a service without its tenancy."""
    return Reference(type=SERVICE.name.message(), name=name)


def parent(name: str, port: str = "") -> ParentReference:
    """Return a parent."""
    return ParentReference(ref=ref(name), port=port)


def backend(name: str, port: str = "") -> BackendReference:
    """Return a backend."""
    return BackendReference(ref=ref(name), port=port)


def http(*rules: HTTPRouteRule, parents: list[ParentReference] | None = None) -> HTTPRoute:
    """Return an HTTP route of the service ``api``, unless there are other parents."""
    return HTTPRoute(parent_refs=[parent("api")] if parents is None else parents, rules=list(rules))


def to_http(*names: str, weight: int = 1) -> HTTPRouteRule:
    """Return a rule with these services as backends."""
    return HTTPRouteRule(backend_refs=[HTTPBackendRef(backend_ref=backend(name), weight=weight) for name in names])


def grpc(*rules: GRPCRouteRule) -> GRPCRoute:
    """Return a gRPC route of the service ``api``."""
    return GRPCRoute(parent_refs=[parent("api")], rules=list(rules))


def to_grpc(*names: str) -> GRPCRouteRule:
    """Return a rule with these services as backends."""
    return GRPCRouteRule(backend_refs=[GRPCBackendRef(backend_ref=backend(name), weight=1) for name in names])


def tcp(*rules: TCPRouteRule) -> TCPRoute:
    """Return a TCP route of the service ``api``."""
    return TCPRoute(parent_refs=[parent("api")], rules=list(rules))


def to_tcp(*names: str, weight: int = 1) -> TCPRouteRule:
    """Return a rule with these services as backends."""
    return TCPRouteRule(backend_refs=[TCPBackendRef(backend_ref=backend(name), weight=weight) for name in names])

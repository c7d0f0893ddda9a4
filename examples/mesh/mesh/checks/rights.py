"""The rights that a caller needs because of what a resource refers to, in addition to those on the resource itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from catalog.checks.references import service_id
from catalog.checks.workloads import WORKLOAD_NAME
from headway import Need, Resource, ResourceId
from mesh.checks.routes import Route, backends
from mesh.messages import Destinations, ProxyConfiguration, ProxyStateTemplate

Verb = Literal["read", "write"]


def selecting(verb: Verb, resource: Resource[ProxyConfiguration] | Resource[Destinations]) -> Iterator[Need]:
    """Yield the rights to a resource that selects. Its writer must be able to read what it may ever select."""
    selector = resource.data.workloads
    if verb == "write" and selector is not None:
        for each in (*selector.names, *selector.prefixes):
            yield Need("read", _workload(resource, each))


def route(verb: Verb, resource: Resource[Any]) -> Iterator[Need]:
    """Yield the rights to a route. They are those to its parents; its writer must also be able to read its backends."""
    data: Route = resource.data
    for parent in data.parent_refs:
        if parent.ref is not None:
            yield Need(verb, service_id(parent.ref, resource.id))
    if verb == "write":
        for _, backend in backends(data):
            if backend is not None and backend.ref is not None:
                yield Need("read", service_id(backend.ref, resource.id))


def template(verb: Verb, resource: Resource[ProxyStateTemplate]) -> Iterator[Need]:
    """Yield the rights to a template. Its reader must also be able to read its workload."""
    if verb == "read":
        yield Need("read", _workload(resource, resource.id.name))


def _workload(resource: Resource[Any], name: str) -> ResourceId:
    return ResourceId(WORKLOAD_NAME, name, resource.id.partition, resource.id.namespace)

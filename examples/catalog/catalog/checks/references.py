"""References to services: their tenancies, and the rules for them."""

from __future__ import annotations

from catalog.checks.faults import Faults
from catalog.checks.services import SERVICE_NAME
from headway import Reference, ResourceId, Scope
from headway.resource import pb, quoted, tenancy_within, type_name


def complete(reference: Reference | None, beside: ResourceId) -> None:
    """Complete the tenancy of a reference to a namespaced resource by that of the resource that refers."""
    if reference is not None:
        given = reference.tenancy or pb.Tenancy()
        parent = (beside.partition, beside.namespace)
        partition, namespace = tenancy_within(Scope.NAMESPACE, (given.partition, given.namespace), parent)
        reference.tenancy = pb.Tenancy(partition=partition, namespace=namespace)


def service_id(reference: Reference, beside: ResourceId) -> ResourceId:
    """Return the id of the service that a reference of a resource means, also if no service can have the name."""
    given = reference.tenancy or pb.Tenancy()
    parent = (beside.partition, beside.namespace)
    partition, namespace = tenancy_within(Scope.NAMESPACE, (given.partition, given.namespace), parent)
    return ResourceId(SERVICE_NAME, reference.name, partition, namespace)


def service_reference(path: str, given: Reference | None, purpose: str) -> Faults:
    """Yield the faults of a complete reference to a service of this cluster, which serves a purpose."""
    if given is None:
        yield f"{path} is required: the service that {purpose}"
        return
    if type_name(given.type) != SERVICE_NAME:
        yield f"{path}.type {type_name(given.type)} must be {SERVICE_NAME}"
        return
    if given.section:
        yield f"{path}.section {quoted(given.section)} must be empty: the whole service {purpose}"
    if given.tenancy is None:
        yield f"{path}.tenancy is required"
    else:
        for unit in ("partition", "namespace"):
            if not getattr(given.tenancy, unit):
                yield f"{path}.tenancy.{unit} is empty: give its name, such as 'default'"
    if not given.name:
        yield f"{path}.name is required, such as 'api'"

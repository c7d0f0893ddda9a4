"""The controller of endpoints: those of each service with a selector, from the workloads that it selects."""

from __future__ import annotations

import trio

import headway
from catalog.application import app
from catalog.endpoint import endpoint_of, is_outdated
from catalog.messages import Endpoint, Service, ServiceEndpoints, Workload
from catalog.selecting import (
    SERVICES_BY_SELECTED,
    WORKLOADS_BY_PATH,
    selected_workloads,
    selecting_services,
    selects,
)
from catalog.service_status import managed, unmanaged
from catalog.statuses import ENDPOINT_MANAGER, WORKLOAD_HEALTH, content_or_status, write_status
from catalog.types import SERVICE, SERVICE_ENDPOINTS, WORKLOAD
from headway.protobuf import equal

MARK = {"managed-by-controller": ENDPOINT_MANAGER}
"""The metadata of the endpoints that this controller has written."""

_AT_ONCE = 100
"""The number of workloads that are looked at before other tasks have their turn."""


def is_not_made_here(
    old: headway.Resource[ServiceEndpoints] | None, new: headway.Resource[ServiceEndpoints] | None
) -> bool:
    """Pass everything but the creation of endpoints with the mark.

    This controller makes them, and nearly each of its reconciles at a start does. If another writer is faster for a
    service with a selector, the reconcile that would have made them is still due, or fails and is tried again.
    """
    return old is not None or new is None or not _is_marked(new)


def wrongly_marked(
    found: headway.Resource[ServiceEndpoints], cache: headway.CacheReader
) -> list[headway.Resource[ServiceEndpoints]]:
    """Return endpoints that another writer has marked, although their service has no selector."""
    service = cache.get(SERVICE, found.id._replace(type=SERVICE.name, uid=""))
    return [found] if service is not None and not selects(service.data.workloads) and _is_marked(found) else []


def endpoints_of(
    old: headway.Resource[Workload] | None, new: headway.Resource[Workload] | None, cache: headway.CacheReader
) -> list[headway.ResourceId]:
    """Return the endpoints of the services that select a workload, which depends on its name alone."""
    workload = new or old
    if workload is None:
        return []
    _, _, partition, namespace, _ = workload.id
    # Services are in the tenancy of the workloads that they select.
    services = selecting_services(workload, cache)
    return [headway.ResourceId(SERVICE_ENDPOINTS.name, each.name, partition, namespace) for each in services]


@app.controller(
    name="endpoint-manager",
    manages=SERVICE_ENDPOINTS,
    when=headway.predicates.all_of(headway.predicates.not_own_writes(), is_not_made_here),
    watches=[
        headway.watch(SERVICE_ENDPOINTS, wrongly_marked, when=headway.predicates.not_own_writes()),
        headway.watch(SERVICE, headway.mappers.same_name(), when=content_or_status(ENDPOINT_MANAGER)),
        headway.watch(
            WORKLOAD,
            headway.mappers.change(endpoints_of),
            # The status is written when the health or the generation changes. Comparing healths would take longer.
            when=headway.predicates.any_of(
                headway.predicates.status_changed(WORKLOAD_HEALTH),
                headway.predicates.data_changed(),
                headway.predicates.metadata_changed(),
            ),
        ),
    ],
    indexes=[SERVICES_BY_SELECTED, WORKLOADS_BY_PATH],
    queries=[selected_workloads],
    writes=[SERVICE, SERVICE_ENDPOINTS],
    concurrency=8,
)
async def endpoints(rt: headway.Runtime, request: headway.Request[ServiceEndpoints]) -> None:
    """Write the endpoints of a service with a selector, and remove them when the selector is removed.

    Endpoints that users have written for a service without a selector stay. The endpoints of a deleted service are
    deleted through their owner.
    """
    id = request.id
    service = rt.cache.get(SERVICE, SERVICE.id(id.name, partition=id.partition, namespace=id.namespace))
    if service is None:
        return
    present = rt.resource(request)
    if present is not None and (present.is_deleting or _is_of_earlier(present, service)):
        return  # when they are gone, that change reconciles this key again
    selector = service.data.workloads
    if not selects(selector):
        if present is not None and _is_marked(present):
            await rt.client.delete(present, version=present.version)
        await write_status(rt, service, ENDPOINT_MANAGER, unmanaged())
        return
    found: list[Endpoint] = []
    outdated: list[str] = []
    for number, workload in enumerate(rt.cache.query(selected_workloads, id, selector), 1):
        endpoint = endpoint_of(workload, service.data.ports)
        if endpoint is not None:
            found.append(endpoint)
            if is_outdated(workload):
                outdated.append(workload.name)
        if number % _AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    await _write(rt, service, present, ServiceEndpoints(endpoints=found))
    identities = {endpoint.identity for endpoint in found if endpoint.identity}
    await write_status(rt, service, ENDPOINT_MANAGER, managed(identities, outdated))


def _is_marked(endpoints: headway.Resource[ServiceEndpoints]) -> bool:
    return MARK.items() <= endpoints.metadata.items()


def _is_of_earlier(present: headway.Resource[ServiceEndpoints], service: headway.Resource[Service]) -> bool:
    """Return True if an earlier service of this name owns the endpoints. The owner of a resource cannot change."""
    return present.owner is not None and present.owner.uid != service.uid


async def _write(
    rt: headway.Runtime,
    service: headway.Resource[Service],
    present: headway.Resource[ServiceEndpoints] | None,
    wanted: ServiceEndpoints,
) -> None:
    """Write endpoints unless they are stored already. If they have changed since they were read, raise Conflict."""
    id = service.id
    made = SERVICE_ENDPOINTS.new(
        id.name, wanted, partition=id.partition, namespace=id.namespace, owner=id, metadata=MARK
    )
    if present is None:
        await rt.client.create(made)
        return
    made.finalizers = present.finalizers
    stored, message = present.message(), made.message()
    if stored.metadata == message.metadata and (stored.data == message.data or equal(present.data, wanted)):
        return
    # What is encoded already is not encoded again.
    stored.data, stored.metadata = message.data, message.metadata
    await rt.client.write(SERVICE_ENDPOINTS.view(stored))

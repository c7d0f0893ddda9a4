"""The controller of endpoints, one reconcile at a time: the facts EP-1 to EP-14, and W-11 to W-15."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import catalog
import headway.testing
from catalog.messages import Endpoint, ServiceEndpoints, Workload, WorkloadAddress, WorkloadPort
from catalog.types import SERVICE, SERVICE_ENDPOINTS
from tests.helpers.catalogs import CRITICAL, HTTP, PASSING, WARNING, conditions, service, workload

KEY = "consul.io/endpoint-manager"
MARK = {"managed-by-controller": KEY}
HEALTH = "consul.io/workload-health"

MANAGED = (
    "EndpointsManaged",
    "TRUE",
    "SelectorFound",
    "A valid workload selector is present within the service.",
)
UNMANAGED = (
    "EndpointsManaged",
    "FALSE",
    "SelectorNotFound",
    "Either the workload selector was not present or contained no selection criteria.",
)
UNBOUND = ("BoundIdentities", "FALSE", "NoWorkloadIdentitiesFound", "No associated workload identities found.")


def bound(names: str) -> tuple[str, str, str, str]:
    message = f'Found workload identities associated with this service: "{names}".'
    return ("BoundIdentities", "TRUE", "WorkloadIdentitiesFound", message)


def by_hand() -> ServiceEndpoints:
    """Return endpoints as a user writes them for an external service."""
    ports = {"http": WorkloadPort(port=9876, protocol=HTTP)}
    address = WorkloadAddress(host="198.18.0.1", ports=["http"])
    return ServiceEndpoints(endpoints=[Endpoint(addresses=[address], ports=ports, health_status=PASSING)])


@pytest.fixture
async def shot() -> AsyncIterator[headway.testing.OneShot]:
    async with headway.testing.one_shot(catalog.app, "endpoint-manager") as shot:
        yield shot


async def endpoints(shot: headway.testing.OneShot, name: str = "api") -> headway.Resource[ServiceEndpoints]:
    return await shot.client.read(SERVICE_ENDPOINTS, name)


async def status(shot: headway.testing.OneShot, name: str = "api") -> list[tuple[str, str, str, str]]:
    return conditions(await shot.client.read(SERVICE, name), KEY)


def hosts(found: headway.Resource[ServiceEndpoints]) -> list[str]:
    return [address.host for each in found.data.endpoints for address in each.addresses]


async def written(shot: headway.testing.OneShot, name: str = "api") -> list[tuple[str, str]]:
    """Reconcile, and return what was written: the kind of call and the kind of the resource."""
    return [(each.what, each.id.type.kind) for each in (await shot.reconcile(name)).written]


BOTH = [("write", "ServiceEndpoints"), ("status", "Service")]


async def set_health(shot: headway.testing.OneShot, resource: headway.Resource[Workload], reason: str) -> None:
    condition = headway.Condition(type="healthy", reason=reason)
    await shot.client.write_status(resource, HEALTH, [condition])


async def names(shot: headway.testing.OneShot) -> list[str]:
    return [request.id.name for request in await shot.requests()]


async def test_ep2_missing_service_is_left_alone(shot: headway.testing.OneShot) -> None:
    assert await written(shot, "nobody") == []


async def test_ep3_ep12_service_without_a_selector_is_unmanaged(shot: headway.testing.OneShot) -> None:
    await shot.given(service("api"))
    assert await written(shot) == [("status", "Service")]
    assert await status(shot) == [UNMANAGED]
    assert await shot.client.get(SERVICE_ENDPOINTS, "api") is None
    assert await written(shot) == []


async def test_ep4_selector_that_chooses_nothing_yields_empty_endpoints(shot: headway.testing.OneShot) -> None:
    await shot.given(service("api", names=["bar"]))
    assert await written(shot) == BOTH
    assert (await endpoints(shot)).data == ServiceEndpoints()
    assert await status(shot) == [MANAGED, UNBOUND]


async def test_ep4_ep11_endpoints_in_order_of_the_workloads_names(shot: headway.testing.OneShot) -> None:
    await shot.given(
        service("api", prefixes=["api-"], names=["web"]),
        workload("web", hosts=["10.0.0.4"], identity="foo"),
        workload("api-2", hosts=["10.0.0.3"], identity="bar"),
        workload("api-10", hosts=["10.0.0.2"]),
        workload("api-1", hosts=["10.0.0.1"], identity="bar"),
        workload("api-3", ports={"other": HTTP}, identity="unbound"),
        workload("db", hosts=["10.0.0.5"]),
    )
    assert await written(shot) == BOTH
    found = await endpoints(shot)
    assert hosts(found) == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]
    stored = await shot.client.read(SERVICE, "api")
    assert found.owner == stored.id
    assert found.metadata == MARK
    # EP-9, and W-11: the first status has the identities already.
    assert {each.health_status for each in found.data.endpoints} == {CRITICAL}
    assert await status(shot) == [MANAGED, bound("bar,foo")]
    assert await written(shot) == []


async def test_ep11_endpoints_are_written_when_they_differ(shot: headway.testing.OneShot) -> None:
    _, api = await shot.given(service("api", prefixes=["api"]), workload("api-1"))
    await shot.reconcile("api")
    await set_health(shot, api, "HEALTH_WARNING")
    assert await written(shot) == [("write", "ServiceEndpoints")]
    assert (await endpoints(shot)).data.endpoints[0].health_status is WARNING


async def test_ep11_what_a_user_wrote_is_overwritten(shot: headway.testing.OneShot) -> None:
    await shot.given(service("api", names=["bar"]))
    await shot.given(SERVICE_ENDPOINTS.new("api", by_hand(), metadata={"mine": "yes"}))
    assert await written(shot) == BOTH
    found = await endpoints(shot)
    assert (found.data, found.metadata) == (ServiceEndpoints(), MARK)


async def test_w14_each_write_carries_what_it_was_decided_by(shot: headway.testing.OneShot) -> None:
    await shot.given(service("api", names=["api-1"]))
    created = (await shot.reconcile("api")).written[0]
    assert created.request.create_only
    first = await endpoints(shot)
    await shot.given(workload("api-1"))
    changed = (await shot.reconcile("api")).written[0]
    assert changed.request.resource.version == first.version
    second = await endpoints(shot)
    await shot.given(service("api"))
    deleted = (await shot.reconcile("api")).written[0]
    assert (deleted.request.id.uid, deleted.request.version) == (second.uid, second.version)


async def test_w12_equal_endpoints_of_a_user_are_marked(shot: headway.testing.OneShot) -> None:
    await shot.given(service("api", names=["bar"]))
    await shot.given(SERVICE_ENDPOINTS.new("api", ServiceEndpoints()))
    assert await written(shot) == BOTH
    assert (await endpoints(shot)).metadata == MARK
    await shot.given(service("api"))
    await shot.reconcile("api")
    assert await shot.client.get(SERVICE_ENDPOINTS, "api") is None


async def test_ep12_endpoints_of_the_controller_go_with_the_selector(shot: headway.testing.OneShot) -> None:
    await shot.given(service("api", names=["bar"]))
    await shot.reconcile("api")
    await shot.given(service("api"))
    assert await written(shot) == [("delete", "ServiceEndpoints"), ("status", "Service")]
    assert await status(shot) == [UNMANAGED]


async def test_ep12_endpoints_of_a_user_stay(shot: headway.testing.OneShot) -> None:
    await shot.given(service("api"))
    await shot.given(SERVICE_ENDPOINTS.new("api", by_hand()))
    assert await written(shot) == [("status", "Service")]
    assert (await endpoints(shot)).data == by_hand()


async def test_ep12_endpoints_that_a_user_marks_are_the_controllers(shot: headway.testing.OneShot) -> None:
    await shot.given(service("api"))
    await shot.reconcile("api")
    await names(shot)
    await shot.given(SERVICE_ENDPOINTS.new("api", by_hand(), metadata=MARK))
    assert await names(shot) == ["api"]
    assert await written(shot) == [("delete", "ServiceEndpoints")]


async def test_ep14_new_generation_of_the_service_writes_the_status_alone(shot: headway.testing.OneShot) -> None:
    await shot.given(service("api", names=["api-1"]), workload("api-1", identity="foo"))
    await shot.reconcile("api")
    before = (await endpoints(shot)).version
    await shot.given(service("api", names=["api-1", "nobody"]))
    assert await written(shot) == [("status", "Service")]
    assert await status(shot) == [MANAGED, bound("foo")]
    assert (await endpoints(shot)).version == before
    await shot.given(workload("api-1", identity="bar"))
    assert await written(shot) == BOTH
    assert await status(shot) == [MANAGED, bound("bar")]


async def test_ep1_ep14_changes_that_concern_a_service(shot: headway.testing.OneShot) -> None:
    await shot.given(service("api", prefixes=["api"]), service("web", names=["web"]))
    assert sorted(set(await names(shot))) == ["api", "web"]
    (api,) = await shot.given(workload("api-1"))
    assert await names(shot) == ["api"]
    await set_health(shot, api, "HEALTH_PASSING")
    assert await names(shot) == ["api"]
    await shot.given(workload("api-1", metadata={"color": "red"}))
    assert await names(shot) == ["api"]
    await shot.reconcile("api")
    await names(shot)
    await shot.client.delete(await endpoints(shot))
    assert await names(shot) == ["api"]
    await shot.client.delete(api)
    assert await names(shot) == ["api"]


async def test_w15_status_changes_that_no_endpoint_shows_concern_no_service(shot: headway.testing.OneShot) -> None:
    _, api = await shot.given(service("api", prefixes=["api"]), workload("api-1"))
    await set_health(shot, api, "HEALTH_PASSING")
    await shot.reconcile("api")
    await names(shot)
    await shot.client.write_status(api, "another", [headway.Condition(type="Ready")])
    passing = headway.Condition(type="healthy", reason="HEALTH_PASSING", message="another message")
    await shot.client.write_status(api, HEALTH, [passing])
    await shot.client.write_status(await shot.client.read(SERVICE, "api"), "another", [passing])
    # Its own write of endpoints and of the status.
    await shot.given(service("api", prefixes=["api"], ports={"other": HTTP}))
    await names(shot)
    assert await written(shot) == BOTH
    assert await names(shot) == []


async def test_w13_endpoints_of_an_earlier_service_are_waited_for(shot: headway.testing.OneShot) -> None:
    (stored,) = await shot.given(service("api", names=["bar"]))
    await shot.reconcile("api")
    held = await endpoints(shot)
    held.finalizers |= {"held"}
    await shot.client.write(held)
    await shot.client.delete(stored)
    await shot.given(service("api", names=["bar"]))
    assert await written(shot) == []
    await names(shot)
    held = await endpoints(shot)
    held.finalizers -= {"held"}
    await shot.client.write(held)
    await shot.client.delete(held)
    assert await names(shot) == ["api", "api"]
    assert await written(shot) == BOTH
    assert (await endpoints(shot)).owner == (await shot.client.read(SERVICE, "api")).id


async def test_w26_outdated_health_is_kept_and_reported(shot: headway.testing.OneShot) -> None:
    _, api = await shot.given(service("api", prefixes=["api"]), workload("api-1"))
    await set_health(shot, api, "HEALTH_WARNING")
    await shot.reconcile("api")
    (moved,) = await shot.given(workload("api-1", node="elsewhere"))
    assert await written(shot) == [("status", "Service")]
    assert (await endpoints(shot)).data.endpoints[0].health_status is WARNING
    message = 'The health of these workloads was determined before they changed: "api-1".'
    assert await status(shot) == [MANAGED, UNBOUND, ("HealthCurrent", "FALSE", "WorkloadsChanged", message)]
    await names(shot)
    await set_health(shot, moved, "HEALTH_WARNING")
    assert await names(shot) == ["api"]
    assert await written(shot) == [("status", "Service")]
    assert await status(shot) == [MANAGED, UNBOUND]

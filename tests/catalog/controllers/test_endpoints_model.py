"""The end state of the controllers of health and endpoints, against a plain function of what users have stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

import headway
from catalog.messages import (
    DNSPolicy,
    Endpoint,
    Health,
    HealthStatus,
    NodeHealthStatus,
    Protocol,
    Service,
    ServiceEndpoints,
    ServicePort,
    Weights,
    Workload,
    WorkloadAddress,
    WorkloadPort,
    WorkloadSelector,
)
from catalog.types import HEALTH_STATUS, NODE, NODE_HEALTH_STATUS, SERVICE, SERVICE_ENDPOINTS, WORKLOAD
from headway.events import ignore
from headway.protobuf import equal
from tests.helpers.catalogs import node, with_controllers

APP = with_controllers("node-health", "workload-health", "endpoint-manager")
MARK = {"managed-by-controller": "consul.io/endpoint-manager"}

NODES = st.sampled_from(["n1", "n2"])
WORKLOADS = st.sampled_from(["api-1", "api-2", "api", "web"])
SERVICES = st.sampled_from(["api", "all"])
PORTS = st.dictionaries(
    st.sampled_from(["http", "grpc", "mesh"]),
    st.sampled_from([Protocol.PROTOCOL_UNSPECIFIED, Protocol.PROTOCOL_HTTP, Protocol.PROTOCOL_GRPC]),
    min_size=1,
)
HEALTHS = st.sampled_from([health for health in Health if health])

FILTERS: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "": lambda _: True,
    "metadata.color == red": lambda metadata: metadata.get("color") == "red",
    'metadata.color not matches "^r"': lambda metadata: not metadata.get("color", "").startswith("r"),
}

Change = Callable[[headway.Client], Awaitable[object]]


async def applied(client: headway.Client, resource: headway.Resource[Any]) -> None:
    """Apply a resource. Without its owner, or beside the one of an earlier owner, it is refused."""
    try:
        await client.apply(resource)
    except (headway.errors.InvalidArgument, headway.errors.FailedPrecondition):
        return


@st.composite
def workloads(draw: st.DrawFn) -> headway.Resource[Workload]:
    ports = draw(PORTS)
    named = st.lists(st.sampled_from(sorted(ports)), unique=True)
    hosts = draw(st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "host.example"]), min_size=1))
    data = Workload(
        addresses=[WorkloadAddress(host=host, ports=draw(named), external=draw(st.booleans())) for host in hosts],
        ports={name: WorkloadPort(port=80 + number, protocol=ports[name]) for number, name in enumerate(ports)},
        node_name=draw(st.sampled_from(["", "n1", "n2"])),
        identity=draw(st.sampled_from(["", "foo", "bar"])),
        dns=draw(st.sampled_from([None, DNSPolicy(weights=Weights(passing=3))])),
    )
    metadata = draw(st.sampled_from([{"color": "blue"}, {"color": "red"}, {}]))
    return WORKLOAD.new(draw(WORKLOADS), data, metadata=metadata)


@st.composite
def services(draw: st.DrawFn) -> headway.Resource[Service]:
    selector = WorkloadSelector(
        prefixes=draw(st.lists(st.sampled_from(["", "api", "api-"]), max_size=2)),
        names=draw(st.lists(st.sampled_from(["api-1", "web", "nobody"]), max_size=2)),
    )
    if selector.prefixes or selector.names:
        selector.filter = draw(st.sampled_from([*sorted(FILTERS), "metadata.color == red"]))
    ports = [ServicePort(target_port=name, protocol=protocol) for name, protocol in draw(PORTS).items()]
    return SERVICE.new(
        draw(SERVICES), Service(workloads=draw(st.sampled_from([selector, selector, selector, None])), ports=ports)
    )


def made(resources: st.SearchStrategy[headway.Resource[Any]]) -> st.SearchStrategy[Change]:
    return resources.map(lambda resource: lambda client: applied(client, resource))


def gone(type: headway.ResourceType[Any], names: st.SearchStrategy[str]) -> st.SearchStrategy[Change]:
    return names.map(lambda name: lambda client: client.delete(type.id(name)))


CHECKS = st.builds(
    lambda of, health: HEALTH_STATUS.new(f"check-{of}", HealthStatus(type="t", status=health), owner=WORKLOAD.id(of)),
    WORKLOADS,
    HEALTHS,
)
NODE_CHECKS = st.builds(
    lambda of, name, health: NODE_HEALTH_STATUS.new(
        f"{name}-{of}", NodeHealthStatus(type="t", status=health), owner=NODE.id(of)
    ),
    NODES,
    st.sampled_from(["disk", "load"]),
    HEALTHS,
)
BY_HAND = SERVICES.map(lambda name: SERVICE_ENDPOINTS.new(name, ServiceEndpoints(endpoints=[]), owner=SERVICE.id(name)))
CHANGES = st.one_of(
    made(workloads()),
    made(services()),
    made(CHECKS),
    made(NODE_CHECKS),
    made(NODES.map(node)),
    made(BY_HAND),
    gone(WORKLOAD, WORKLOADS),
    gone(SERVICE, SERVICES),
    gone(NODE, NODES),
    gone(HEALTH_STATUS, WORKLOADS.map("check-{}".format)),
    gone(NODE_HEALTH_STATUS, NODES.map("disk-{}".format)),
    gone(SERVICE_ENDPOINTS, SERVICES),
)


def worst(healths: Iterable[Health]) -> Health:
    return Health(max((int(health) for health in healths), default=1))


def served(workload: Workload, service: Service) -> dict[str, WorkloadPort]:
    """EP-5, where no service has two ports of one name."""
    found = {}
    for wanted in service.ports:
        port = workload.ports.get(wanted.target_port)
        if port is not None and port.protocol in (Protocol.PROTOCOL_UNSPECIFIED, wanted.protocol):
            found[wanted.target_port] = WorkloadPort(port=port.port, protocol=wanted.protocol)
    return found


class Expected:
    """What should be stored, computed from the stored nodes, workloads, checks and services."""

    def __init__(self, stored: Mapping[str, list[headway.Resource[Any]]]) -> None:
        self.workloads = {each.name: each for each in stored["Workload"]}
        self.nodes: dict[str, Health] = {
            each.name: worst(check.data.status for check in stored["NodeHealthStatus"] if check.owner == each.id)
            for each in stored["Node"]
        }
        self.own: dict[str, Health] = {
            each.name: worst(check.data.status for check in stored["HealthStatus"] if check.owner == each.id)
            for each in stored["Workload"]
        }

    def health(self, name: str) -> Health:
        of_node = self.workloads[name].data.node_name
        healths = [self.own[name]]
        if of_node:
            healths.append(self.nodes.get(of_node, Health.HEALTH_CRITICAL))
        return worst(healths)

    def selected(self, selector: WorkloadSelector) -> list[str]:
        return sorted(
            name
            for name, workload in self.workloads.items()
            if (name in selector.names or any(name.startswith(prefix) for prefix in selector.prefixes))
            and FILTERS[selector.filter](workload.metadata)
        )

    def endpoints(self, service: Service) -> list[Endpoint]:
        assert service.workloads is not None
        found = []
        for name in self.selected(service.workloads):
            workload = self.workloads[name]
            ports = served(workload.data, service)
            addresses = []
            for address in workload.data.addresses:
                names = sorted(set(address.ports or ports) & set(ports))
                if names:
                    addresses.append(WorkloadAddress(host=address.host, ports=names, external=address.external))
            if addresses:
                found.append(
                    Endpoint(
                        target_ref=workload.id.message(),
                        addresses=addresses,
                        ports=ports,
                        health_status=self.health(name),
                        identity=workload.data.identity,
                        dns=workload.data.dns,
                    )
                )
        return found


def reasons(resource: headway.Resource[Any], key: str) -> list[str]:
    status = resource.status[key]
    assert status.observed_generation == resource.generation
    return [each.reason for each in status.conditions]


async def compare(client: headway.Client) -> None:
    types = (NODE, NODE_HEALTH_STATUS, WORKLOAD, HEALTH_STATUS, SERVICE)
    stored = {type.name.kind: await client.list(type) for type in types}
    expected = Expected(stored)
    for of_node in stored["Node"]:
        assert reasons(of_node, "consul.io/node-health") == [expected.nodes[of_node.name].name]
    for workload in stored["Workload"]:
        assert reasons(workload, "consul.io/workload-health") == [expected.health(workload.name).name]
    present = {each.name: each for each in await client.list(SERVICE_ENDPOINTS)}
    assert present.keys() <= {service.name for service in stored["Service"]}
    for service in stored["Service"]:
        selector = service.data.workloads
        found_reasons = reasons(service, "consul.io/endpoint-manager")
        found = present.get(service.name)
        if selector is None or not (selector.names or selector.prefixes):
            assert found_reasons == ["SelectorNotFound"]
            assert found is None or found.metadata == {}
            continue
        wanted = expected.endpoints(service.data)
        bound = any(endpoint.identity for endpoint in wanted)
        assert found_reasons == ["SelectorFound", "WorkloadIdentitiesFound" if bound else "NoWorkloadIdentitiesFound"]
        assert found is not None
        assert (found.owner, found.metadata) == (service.id, MARK)
        assert equal(found.data, ServiceEndpoints(endpoints=wanted))


@given(
    st.lists(made(workloads()), min_size=2, max_size=4),
    st.lists(made(services()), min_size=1, max_size=2),
    st.lists(st.tuples(CHANGES, st.booleans()), max_size=8),
)
def test_end_state_is_a_function_of_the_inputs(
    first: list[Change], then: list[Change], changes: list[tuple[Change, bool]]
) -> None:
    async def main() -> None:
        async with headway.open_engine("memory:", APP, report=ignore) as engine:
            for change, waits in [(change, False) for change in (*first, *then)] + changes:
                await change(engine.client)
                if waits:
                    await engine.wait_idle()
                    await compare(engine.client)
            await engine.wait_idle()
            await compare(engine.client)

    trio.run(main, clock=MockClock(autojump_threshold=0))

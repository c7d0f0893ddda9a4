"""Failover policies: facts T-13 to T-16."""

from __future__ import annotations

import pytest

from catalog.messages import ComputedFailoverPolicy, FailoverConfig, FailoverDestination, FailoverMode, FailoverPolicy
from catalog.types import COMPUTED_FAILOVER_POLICY, FAILOVER_POLICY, SERVICE, WORKLOAD
from headway import Reference
from headway.resource import pb
from tests.catalog.checks.hooked import faults, stored


def to(name: str = "other", port: str = "", *, ref: Reference | None = None) -> FailoverDestination:
    """Return a destination in the default tenancy."""
    return FailoverDestination(ref=ref or SERVICE.id(name).reference(), port=port)


def config(*destinations: FailoverDestination) -> FailoverConfig:
    return FailoverConfig(destinations=list(destinations) or [to()])


def test_empty_configurations_are_removed() -> None:
    """T-13."""
    given = FailoverPolicy(config=FailoverConfig(), port_configs={"http": FailoverConfig(), "grpc": config()})
    kept = stored(FAILOVER_POLICY.new("api", given)).data
    assert kept.config is None
    assert list(kept.port_configs) == ["grpc"]


@pytest.mark.parametrize(
    ("given", "completed"),
    [
        (None, ("far", "lab")),
        (pb.Tenancy(), ("far", "lab")),
        (pb.Tenancy(namespace="own"), ("far", "own")),
        (pb.Tenancy(partition="far"), ("far", "lab")),
        (pb.Tenancy(partition="other"), ("other", "default")),
        (pb.Tenancy(partition="other", namespace="own"), ("other", "own")),
    ],
)
def test_destination_is_in_the_tenancy_of_the_policy_by_default(
    given: pb.Tenancy | None, completed: tuple[str, str]
) -> None:
    """T-13: a foreign partition has the namespace `default`."""
    reference = Reference(type=SERVICE.name.message(), name="other", tenancy=given)
    policy = FailoverPolicy(config=config(to(ref=reference)), port_configs={"http": config(to(ref=reference))})
    kept = stored(FAILOVER_POLICY.new("api", policy, partition="far", namespace="lab")).data
    for each in (kept.config, kept.port_configs["http"]):
        assert each is not None
        tenancy = each.destinations[0].ref.tenancy if each.destinations[0].ref else None
        assert tenancy == pb.Tenancy(partition=completed[0], namespace=completed[1])


def test_destination_without_a_reference_is_left_for_validation() -> None:
    """T-13 and T-15."""
    policy = FailoverPolicy(config=FailoverConfig(destinations=[FailoverDestination()]))
    assert faults(FAILOVER_POLICY.new("api", policy)) == ["data.config.destinations[0].ref"]


@pytest.mark.parametrize(
    ("policy", "paths"),
    [
        (FailoverPolicy(config=config()), []),
        (FailoverPolicy(port_configs={"http": config(to(port="8080")), "80": config(to(port="grpc"))}), []),
        (FailoverPolicy(), ["data.config"]),
        (FailoverPolicy(config=FailoverConfig()), ["data.config"]),
        (FailoverPolicy(port_configs={"a--b": config()}), ["data.port_configs"]),
        (FailoverPolicy(config=FailoverConfig(sameness_group="g")), []),
        (FailoverPolicy(config=FailoverConfig(sameness_group="g", destinations=[to()])), ["data.config.destinations"]),
        (
            FailoverPolicy(config=FailoverConfig(mode=FailoverMode.FAILOVER_MODE_SEQUENTIAL, regions=["eu"])),
            ["data.config.regions", "data.config.mode", "data.config.destinations"],
        ),
        (FailoverPolicy(config=config(to(port="http"))), ["data.config.destinations[0].port"]),
        (
            FailoverPolicy(port_configs={"http": config(to(), to(port="70000"))}),
            ["data.port_configs['http'].destinations[1].port"],
        ),
        (
            FailoverPolicy(config=config(FailoverDestination(ref=SERVICE.id("a").reference(), datacenter="!"))),
            [],
        ),
    ],
)
def test_faults_of_a_policy_have_the_paths_of_fields(policy: FailoverPolicy, paths: list[str]) -> None:
    """T-14 and T-15."""
    assert faults(FAILOVER_POLICY.new("api", policy)) == paths


@pytest.mark.parametrize(
    ("reference", "paths"),
    [
        (Reference(name="a"), ["type"]),
        (WORKLOAD.id("a").reference(), ["type"]),
        (Reference(type=pb.Type(group="catalog", group_version="v1", kind="Service"), name="a"), ["type"]),
        (SERVICE.id("a").reference("part"), ["section"]),
        (Reference(type=SERVICE.name.message()), ["name"]),
        (Reference(type=SERVICE.name.message(), section="s"), ["section", "name"]),
    ],
)
def test_destination_is_a_whole_service(reference: Reference, paths: list[str]) -> None:
    """T-15: a wrong type ends the check of the reference."""
    policy = FailoverPolicy(config=config(to(ref=reference)))
    assert faults(FAILOVER_POLICY.new("api", policy)) == [f"data.config.destinations[0].ref.{path}" for path in paths]


NO_TENANCY = Reference(type=SERVICE.name.message(), name="a")
NO_NAMESPACE = Reference(type=SERVICE.name.message(), name="a", tenancy=pb.Tenancy(partition="far"))


@pytest.mark.parametrize(
    ("computed", "paths"),
    [
        (ComputedFailoverPolicy(), []),
        (ComputedFailoverPolicy(port_configs={"http": config()}, bound_references=[SERVICE.id("a").reference()]), []),
        (ComputedFailoverPolicy(config=config(), port_configs={"--": config()}), ["data.config"]),
        (
            ComputedFailoverPolicy(port_configs={"--": config(), "http": FailoverConfig(sameness_group="g")}),
            ["data.port_configs['http'].sameness_group"],
        ),
        (
            ComputedFailoverPolicy(port_configs={"--": FailoverConfig(regions=["eu"])}),
            ["data.port_configs", "data.port_configs['--'].regions", "data.port_configs['--'].destinations"],
        ),
        (
            ComputedFailoverPolicy(port_configs={"http": config(to(ref=NO_TENANCY), to(ref=NO_NAMESPACE))}),
            [
                "data.port_configs['http'].destinations[0].ref.tenancy",
                "data.port_configs['http'].destinations[1].ref.tenancy.namespace",
            ],
        ),
    ],
)
def test_computed_policy_has_configurations_of_ports_alone(computed: ComputedFailoverPolicy, paths: list[str]) -> None:
    """T-16: nothing is filled in."""
    assert faults(COMPUTED_FAILOVER_POLICY.new("api", computed)) == paths

"""Exported services: facts T-24 to T-26."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.messages import (
    ComputedExportedService,
    ComputedExportedServiceConsumer,
    ComputedExportedServices,
    ExportedServices,
    ExportedServicesConsumer,
    NamespaceExportedServices,
    PartitionExportedServices,
)
from catalog.types import (
    COMPUTED_EXPORTED_SERVICES,
    EXPORTED_SERVICES,
    NAMESPACE_EXPORTED_SERVICES,
    PARTITION_EXPORTED_SERVICES,
    SERVICE,
)
from headway import Resource
from tests.catalog.checks.hooked import faults, stored


def exported(consumers: list[ExportedServicesConsumer]) -> list[Resource[Any]]:
    """Return the three kinds of exports with these consumers."""
    return [
        EXPORTED_SERVICES.new("x", ExportedServices(services=["api", "no such service!"], consumers=consumers)),
        NAMESPACE_EXPORTED_SERVICES.new("x", NamespaceExportedServices(consumers=consumers)),
        PARTITION_EXPORTED_SERVICES.new("x", PartitionExportedServices(consumers=consumers)),
    ]


def test_export_of_services_names_at_least_one() -> None:
    """T-24: the names are not checked."""
    assert faults(EXPORTED_SERVICES.new("x")) == ["data.services"]


@pytest.mark.parametrize(
    ("consumer", "paths"),
    [
        (ExportedServicesConsumer(peer="east"), []),
        (ExportedServicesConsumer(peer=""), ["peer"]),
        (ExportedServicesConsumer(peer="local"), ["peer"]),
        (ExportedServicesConsumer(partition="other"), ["partition"]),
        (ExportedServicesConsumer(partition=""), ["partition"]),
        (ExportedServicesConsumer(sameness_group="g"), ["sameness_group"]),
    ],
)
def test_consumers_are_peers(consumer: ExportedServicesConsumer, paths: list[str]) -> None:
    """T-25: nothing is filled in."""
    for export in exported([ExportedServicesConsumer(peer="west"), consumer]):
        assert faults(export) == [f"data.consumers[1].{path}" for path in paths]
        if not paths:
            assert stored(export) == export


def test_consumer_with_nothing_set_is_refused() -> None:
    """T-25, without the weakness W-17."""
    for export in exported([ExportedServicesConsumer()]):
        assert faults(export) == ["data.consumers[0]"]


def test_no_consumers_are_valid() -> None:
    """T-25."""
    assert [faults(export) for export in exported([])] == [[], [], []]


def computed(*consumers: ComputedExportedServiceConsumer) -> ComputedExportedServices:
    one = ComputedExportedService(target_ref=SERVICE.id("api").reference(), consumers=list(consumers))
    return ComputedExportedServices(services=[ComputedExportedService(), one])


def test_computed_exports_have_one_name() -> None:
    """T-26."""
    assert faults(COMPUTED_EXPORTED_SERVICES.new("global", computed())) == []
    assert faults(COMPUTED_EXPORTED_SERVICES.new("other", computed())) == ["name"]


@pytest.mark.parametrize(
    ("consumer", "path"),
    [
        (ComputedExportedServiceConsumer(peer=""), ".peer"),
        (ComputedExportedServiceConsumer(partition=""), ".partition"),
        (ComputedExportedServiceConsumer(partition="other"), ".partition"),
        (ComputedExportedServiceConsumer(), ""),
    ],
)
def test_computed_consumers_are_peers(consumer: ComputedExportedServiceConsumer, path: str) -> None:
    """T-26."""
    given = computed(ComputedExportedServiceConsumer(peer="east"), consumer)
    assert faults(COMPUTED_EXPORTED_SERVICES.new("global", given)) == [f"data.services[1].consumers[1]{path}"]

"""The methods of the services, compared with the schema."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from headway.engine import Host
from headway.events import ignore
from headway.peering import PeeringHost, PeeringService, PeerStreamService
from headway.quotas import QuotaService
from headway.resource import Registry
from headway.rpc import DescribedFiles, Health, Reflection, Services
from headway.service import (
    ConsulService,
    LeaseService,
    ResourceService,
    StoreService,
    TypesService,
)
from headway.storage import MemoryBackend
from headway.subscribing import SubscribeService
from headway.versions import MigrationService
from headway.why import ObserveHost, ObserveService


async def nothing(_: object) -> None:
    """Return what is stored: nothing."""


def peerings() -> PeeringHost:
    """Return the host of an engine without peerings."""
    return PeeringHost(Host(MemoryBackend(), Registry(), ignore))


SERVICES: dict[str, Callable[[], Any]] = {
    "headway.resource.v1.ResourceService": lambda: ResourceService(MemoryBackend(), Registry()),
    "hashicorp.consul.resource.ResourceService": lambda: ConsulService(MemoryBackend(), Registry()),
    "headway.lease.v1.LeaseService": lambda: LeaseService(MemoryBackend()),
    "headway.migration.v1.MigrationService": lambda: MigrationService(MemoryBackend(), Registry()),
    "headway.observe.v1.ObserveService": lambda: ObserveService(ObserveHost(nothing), Registry()),
    "headway.peering.v1.PeeringService": lambda: PeeringService(peerings()),
    "headway.peering.v1.PeerStreamService": lambda: PeerStreamService(peerings()),
    "headway.quota.v1.QuotaService": lambda: QuotaService(MemoryBackend(), Registry()),
    "headway.store.v1.StoreService": lambda: StoreService(MemoryBackend(), Registry()),
    "headway.subscribe.v1.SubscribeService": lambda: SubscribeService(MemoryBackend(), Registry(), {}),
    "headway.types.v1.TypesService": lambda: TypesService(Registry()),
    "grpc.health.v1.Health": Health,
    "grpc.reflection.v1.ServerReflection": lambda: Reflection(Services(), DescribedFiles(())),
    "grpc.reflection.v1alpha.ServerReflection": lambda: Reflection(Services(), DescribedFiles(())),
}


def described() -> dict[str, dict[str, tuple[tuple[bool, bool], str, str]]]:
    """Return the methods of each service in the schema by path, each with its streaming sides and its messages."""
    schema = FileDescriptorSet.FromString((files("headway._gen") / "descriptors.bin").read_bytes())
    return {
        f"{file.package}.{service.name}": {
            f"/{file.package}.{service.name}/{method.name}": (
                (method.client_streaming, method.server_streaming),
                method.input_type[1:],
                method.output_type[1:],
            )
            for method in service.method
        }
        for file in schema.file
        for service in file.service
    }


def test_every_service_of_the_schema_is_compared() -> None:
    assert described().keys() == SERVICES.keys()


@pytest.mark.parametrize("name", SERVICES)
def test_service_has_the_methods_of_its_schema(name: str) -> None:
    """The service has all methods of the schema and no others, with the same messages."""
    package = name.rpartition(".")[0]
    assert described()[name] == {
        path: (
            each.cardinality.value,
            f"{package}.{each.request_type.__name__}",
            f"{package}.{each.reply_type.__name__}",
        )
        for path, each in SERVICES[name]().__mapping__().items()
        if path.startswith(f"/{name}/")
    }

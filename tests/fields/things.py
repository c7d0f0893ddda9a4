"""A type whose fields have owners, its resources by the leaves of the model, and services that keep the owners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import headway
from headway import Resource, ResourceType, field
from headway.client import Client
from headway.fields import with_owners
from headway.resource import FIELD_OWNERS, Registry
from headway.rpc import InProcessChannel
from headway.service import Forms, ResourceService
from headway.storage import Backend
from tests.fields.model import LEAVES


@headway.message
class Spec:
    replicas: int = field(1)
    image: str = field(2)


@headway.message
class Thing:
    size: int = field(1)
    note: str = field(2)
    spec: Spec = field(3)
    labels: dict[str, str] = field(4)
    hosts: list[str] = field(5)
    address: str | None = field(6, oneof="endpoint")
    socket: int | None = field(7, oneof="endpoint")


def things(payload: type[Any] = Thing, **options: Any) -> tuple[Registry, ResourceType[Any]]:
    registry = Registry()
    options = {"owned_fields": True} | options
    type: ResourceType[Any] = ResourceType("shop", "v1", "Thing", payload, **options)
    registry.register(type)
    return registry, type


def thing(type: ResourceType[Thing], values: Mapping[str, Any], name: str = "one") -> Resource[Thing]:
    """Return a resource with values by the names of the model's leaves. The others are not set."""
    at = dict(LEAVES) | dict(values)
    labels = {leaf.removeprefix("labels."): at[leaf] for leaf in at if leaf.startswith("labels.")}
    data = Thing(
        size=at["size"],
        note=at["note"],
        spec=Spec(replicas=at["spec.replicas"], image=at["spec.image"]),
        labels={key: text for key, text in labels.items() if text is not None},
        hosts=list(at["hosts"]),
        address=at["address"],
        socket=at["socket"],
    )
    tier = at["metadata:tier"]
    return type.new(name, data, metadata={} if tier is None else {"tier": tier})


def values_of(resource: Resource[Thing]) -> dict[str, Any]:
    """Return the values of a resource by leaf."""
    data, metadata = resource.data, resource.metadata
    assert metadata.keys() <= {"tier", FIELD_OWNERS}
    return {
        "size": data.size,
        "note": data.note,
        "spec.replicas": data.spec.replicas,
        "spec.image": data.spec.image,
        "hosts": tuple(data.hosts),
        "labels.a": data.labels.get("a"),
        "labels.b.c": data.labels.get("b.c"),
        "address": data.address,
        "socket": data.socket,
        "metadata:tier": metadata.get("tier"),
    }


def owners_of(resource: Resource[Any]) -> dict[str, set[str]]:
    """Return the paths of each manager."""
    found: dict[str, set[str]] = {}
    for path, managers in resource.field_owners.items():
        for manager in managers:
            found.setdefault(manager, set()).add(path)
    return found


def client_of(backend: Backend, registry: Registry, forms: Forms | None = None) -> Client:
    service = ResourceService(backend, registry, forms=with_owners(forms or Forms(), registry))
    return Client(InProcessChannel(service), registry)

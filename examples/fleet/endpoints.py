"""From an app's Instances to its Endpoints."""

from __future__ import annotations

from collections.abc import Iterable

import headway
from examples.fleet.declared import APP, ENDPOINTS, INSTANCE, INSTANCES_BY_APP, Endpoints, Instance, app, is_healthy
from examples.fleet.ports import HOST


def endpoints_of(instance: headway.Resource[Instance], _cache: headway.CacheReader) -> Iterable[headway.ResourceId]:
    """An Instance concerns the Endpoints that bear its app's name."""
    return [ENDPOINTS.id(instance.data.app, partition=instance.id.partition, namespace=instance.id.namespace)]


@app.controller(
    manages=ENDPOINTS,
    watches=[headway.watch(APP, headway.mappers.same_name()), headway.watch(INSTANCE, endpoints_of)],
    indexes=[INSTANCES_BY_APP],
    concurrency=8,
)
async def endpoints(rt: headway.Runtime, request: headway.Request) -> None:
    """An app's Endpoints list its healthy Instances and no others; they go with the App."""
    owner = rt.cache.get(APP, request.id._replace(type=APP.name))
    present = rt.cache.get(ENDPOINTS, request.id)
    if owner is None or (present is not None and present.owner is not None and present.owner.uid != owner.uid):
        if present is not None:
            await rt.client.delete(present, version=present.version)
        return
    addresses = [
        f"{HOST}:{instance.data.port}"
        for instance in rt.cache.index(INSTANCES_BY_APP, request.id.name)
        if is_healthy(instance) and not instance.is_deleting
    ]
    wanted = ENDPOINTS.new(request.id.name, Endpoints(addresses=sorted(addresses)), owner=owner)
    await rt.client.apply_over(present, wanted)

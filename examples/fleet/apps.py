"""From an App to its Instances."""

from __future__ import annotations

import hashlib
import json

import headway
from examples.fleet.declared import APP, INSTANCE, INSTANCES_BY_APP, PROCESS_FINALIZER, App, Instance, app
from examples.fleet.ports import pick_port


@app.controller(
    manages=APP,
    watches=[headway.watch(INSTANCE, headway.mappers.owner())],
    indexes=[INSTANCES_BY_APP],
)
async def apps(rt: headway.Runtime, request: headway.Request) -> None:
    """An App has as many Instances as it wants replicas; an Instance without its App goes."""
    wanted = rt.cache.get(APP, request.id)
    for instance in rt.cache.index(INSTANCES_BY_APP, request.id.name):
        # Also those of a former App of this name: an owner is one incarnation.
        if (wanted is None or instance.owner is None or instance.owner.uid != wanted.uid) and not instance.is_deleting:
            await rt.client.delete(instance, version=instance.version)
    if wanted is None or wanted.is_deleting:
        return
    async with rt.outputs(INSTANCE, owner=wanted) as outputs:
        for number in range(wanted.data.replicas):
            name = f"{request.id.name}-{digest(wanted.data)}-{number}"
            await outputs.apply(name, _instance(rt, wanted, name), metadata={"finalizers": PROCESS_FINALIZER})


def _instance(rt: headway.Runtime, wanted: headway.Resource[App], name: str) -> Instance:
    known = rt.cache.get(INSTANCE, name)
    if known is not None:
        return known.data
    # One App is reconciled at a time, and the cache has every Instance that this controller has written: so no port
    # is given twice, without any table of ports.
    taken = {instance.data.port for instance in rt.cache.list(INSTANCE)}
    data = wanted.data
    return Instance(app=wanted.name, command=data.command, environment=data.environment, port=pick_port(name, taken))


def digest(wanted: App) -> str:
    """What tells Instances of one declaration from those of another; the number of replicas has no part in it."""
    content = json.dumps([wanted.command, sorted(wanted.environment.items())])
    return hashlib.sha256(content.encode()).hexdigest()[:6]

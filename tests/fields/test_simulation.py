"""Two controllers that apply different fields of one resource: right with owned fields, and refuted without."""

from __future__ import annotations

import pytest

import headway
from headway import field
from headway.testing import simulation


@headway.message
class Release:
    image: str = field(1)


@headway.message
class Load:
    requests: int = field(1)


@headway.message
class Deployment:
    image: str = field(1)
    replicas: int = field(2)
    note: str = field(3)


def program(*, owned: bool) -> tuple[headway.App, simulation.Scenario]:
    """Let one controller set the image of a deployment, and another one the number of replicas."""
    app = headway.App("shop")
    release = app.type("shop", "v1", "Release", Release)
    load = app.type("shop", "v1", "Load", Load)
    deployment = app.type("shop", "v1", "Deployment", Deployment, owned_fields=owned)

    async def apply(rt: headway.Runtime, name: str, data: Deployment, path: str) -> None:
        wanted = deployment.new(name, data)
        await rt.client.apply(wanted, fields=[path] if owned else None)

    by_name = headway.mappers.same_name()

    @app.controller(manages=release, watches=[headway.watch(deployment, by_name)])
    async def releaser(rt: headway.Runtime, request: headway.Request[Release]) -> None:
        found = rt.resource(request)
        if found is not None:
            await apply(rt, found.name, Deployment(image=found.data.image), "image")

    @app.controller(manages=load, watches=[headway.watch(deployment, by_name)])
    async def scaler(rt: headway.Runtime, request: headway.Request[Load]) -> None:
        found = rt.resource(request)
        if found is not None:
            await apply(rt, found.name, Deployment(replicas=found.data.requests // 100), "replicas")

    async def scenario(world: simulation.World) -> None:
        if owned:
            noted = deployment.new("web", Deployment(note="by a user"))
            await world.client.apply(noted, fields=["note"], manager="ada")
        await world.client.apply(release.new("web", Release(image="web:1")))
        await world.client.apply(load.new("web", Load(requests=300)))
        await world.wait_idle()

    return app, scenario


@pytest.mark.wide
def test_controllers_that_own_their_fields_are_accepted() -> None:
    simulation.explore(*program(owned=True), require_complete=True)


def test_controllers_that_overwrite_each_other_are_refuted() -> None:
    with pytest.raises(simulation.Refuted, match=r"\w+ and \w+ undo each other's changes of Deployment web"):
        simulation.explore(*program(owned=False), plan="none")


def test_users_own_their_fields_again_after_a_restore() -> None:
    """They ask again for their fields alone: a write of everything would undo what controllers have applied since."""
    app, begin = program(owned=True)
    load, deployment = (
        next(each for each in app.registry if each.name.kind == kind) for kind in ("Load", "Deployment")
    )

    async def scenario(world: simulation.World) -> None:
        await begin(world)
        noted = deployment.new("web", Deployment(note="again"))
        await world.client.apply(noted, fields=["note"], manager="ada")
        await world.client.apply(load.new("web", Load(requests=500)))
        await world.wait_idle()

    async def owned(world: simulation.World) -> None:
        found = await world.client.read(deployment, "web")
        assert found.field_owners == {"image": ("shop/releaser",), "note": ("ada",), "replicas": ("shop/scaler",)}

    simulation.explore(app, scenario, plan="restore(6, 4)", holds=[owned])

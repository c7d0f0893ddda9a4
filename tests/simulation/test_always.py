"""Invariants of `always` are checked after each commit."""

from __future__ import annotations

import pytest

import headway
from headway import field
from headway.testing import simulation


@headway.message
class Deployment:
    version: str = field(1)


@headway.message
class Instance:
    version: str = field(1)
    up: bool = field(2)


def rollout(*, at_once: bool) -> headway.App:
    """Return two instances that are down while they change their version, one after the other or both at once."""
    app = headway.App("rollout")
    deployment = app.type("rollout", "v1", "Deployment", Deployment)
    instance = app.type("rollout", "v1", "Instance", Instance)

    @app.controller(manages=deployment, watches=[headway.watch(instance, headway.mappers.owner())])
    async def roll(rt: headway.Runtime, request: headway.Request[Deployment]) -> None:
        found = rt.resource(request)
        if found is None:
            return
        owned = {each.name: each for each in rt.cache.owned(instance, found)}
        for name in ("a", "b"):
            if name not in owned:
                await rt.client.apply(instance.new(name, Instance(version=found.data.version, up=True), owner=found))
            elif owned[name].data.version != found.data.version and (
                at_once or all(each.data.up for each in owned.values())
            ):
                await rt.apply(instance.new(name, Instance(version=found.data.version, up=False)))
                return

    @app.controller(manages=instance)
    async def boot(rt: headway.Runtime, request: headway.Request[Instance]) -> headway.RequeueAfter | None:
        found = rt.resource(request)
        if found is not None and not found.data.up:
            if request.reasons[-1].what != "requeue":
                return headway.requeue_after(5)
            await rt.apply(instance.new(found.name, Instance(version=found.data.version, up=True)))
        return None

    return app


async def two_versions(world: simulation.World) -> None:
    for version in ("1", "2"):
        await world.client.apply(world.type("Deployment").new("web", Deployment(version=version)))
        await world.wait_idle()
        await world.sleep(30)  # the instances boot after a requeue
        await world.wait_idle()


def one_is_up(stored: simulation.Stored) -> None:
    instances = stored.list("Instance")
    assert not instances or any(each.data.up for each in instances), "none is up"


def test_temporary_violation_is_found() -> None:
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(rollout(at_once=True), two_versions, always=[one_is_up], plan="none")
    assert str(caught.value).startswith("one_is_up: when the store was at 13: none is up")


def test_invariant_that_always_holds_passes() -> None:
    simulation.explore(rollout(at_once=False), two_versions, always=[one_is_up], plan="crash_after(3)")


def test_changes_of_each_commit_are_shown_with_what_was_there_before() -> None:
    seen: list[tuple[str, str]] = []

    def upgrades_only(stored: simulation.Stored) -> None:
        for before, now in stored.changed("Deployment"):
            seen.append((before.data.version, now.data.version))
            assert now.data.version >= before.data.version, "an older version is back"

    simulation.explore(rollout(at_once=False), two_versions, always=[upgrades_only], plan="none")
    assert set(seen) == {("1", "2")}

    async def downgrade(world: simulation.World) -> None:
        await two_versions(world)
        await world.client.apply(world.type("Deployment").new("web", Deployment(version="1")))
        await world.wait_idle()

    with pytest.raises(simulation.Refuted, match=r"upgrades_only: .*: an older version is back"):
        simulation.explore(rollout(at_once=False), downgrade, always=[upgrades_only], plan="none")


def test_resource_that_is_made_again_is_not_changed() -> None:
    changed: list[str] = []

    def count(stored: simulation.Stored) -> None:
        changed.extend(now.data.version for _, now in stored.changed("Deployment"))

    async def again(world: simulation.World) -> None:
        for version in ("1", "2"):
            await world.client.apply(world.type("Deployment").new("web", Deployment(version=version)))
            await world.client.delete(world.type("Deployment").id("web"))

    simulation.run(simulation.Setting(app=rollout(at_once=False), scenario=again, always=(count,)), simulation.Plan())
    assert changed == []


def test_unknown_kind_is_an_error_and_not_an_empty_list() -> None:
    def misspelt(stored: simulation.Stored) -> None:
        stored.list("Instances")

    with pytest.raises(headway.errors.DeclarationError, match="no type 'Instances'; did you mean 'Instance'"):
        simulation.explore(rollout(at_once=False), two_versions, always=[misspelt], plan="none")

    async def misspells(world: simulation.World) -> None:
        world.type("Deploiment")

    with pytest.raises(headway.errors.DeclarationError, match="no type 'Deploiment'; did you mean 'Deployment'"):
        simulation.explore(rollout(at_once=False), misspells, plan="none")


@pytest.mark.wide
def test_timed_change_is_distinguished_from_endless_work() -> None:
    """A rollout that boots an instance after a requeue ends by itself. It may do so after the scenario."""

    async def hasty(world: simulation.World) -> None:
        await world.client.apply(world.type("Deployment").new("web", Deployment(version="1")))
        await world.wait_idle()
        await world.client.apply(world.type("Deployment").new("web", Deployment(version="2")))

    simulation.explore(rollout(at_once=False), hasty, plan="none")
    setting = simulation.Setting(app=rollout(at_once=False), scenario=hasty, quiet=120.0)
    hurried = simulation.run(setting, simulation.Plan())
    assert [each.oracle for each in hurried.findings] == ["quiet"]
    assert "let the scenario sleep until" in str(hurried.findings[0])
    assert hurried.waits > 0

"""A program for Kubernetes runs in the simulation on a modeled cluster, with the faults that only a cluster has."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headway
from headway import field, kubernetes
from headway.errors import DeclarationError, InvalidArgument
from headway.testing import simulation
from headway.testing.simulation.world import Setting
from tests.kubernetes.connected import Spec, Website
from tests.kubernetes.operators import Dns, Operator, created, deleted, labelled_by_others, site
from tests.test_docs import program_of

Make = Callable[[simulation.Process], headway.App]


def websites(process: simulation.Process) -> headway.App:
    """Return an operator that keeps a Deployment for each website, and says how many of its Pods are ready."""
    operator = Operator(process.outside)

    @operator.app.controller(manages=operator.website, watches=operator.owned)
    async def sites(rt: headway.Runtime, request: headway.Request[Website]) -> None:
        blog = rt.resource(request)
        if blog is None or blog.is_deleting:
            return
        deployment = await rt.client.apply(operator.deployment_of(blog, replicas=True), force=True)
        ready = deployment.data.get("status", {}).get("readyReplicas", 0)
        if ready != blog.data.status.ready:
            blog.data.status.ready = ready
            await kubernetes.update_status(rt, blog)

    return operator.app


def run(scenario: simulation.Scenario, plan: str = "none", make: Make = websites, **options: Any) -> simulation.Result:
    setting = Setting(app=make, scenario=scenario, outside=Dns, quiet=120.0, **options)
    return simulation.run(setting, simulation.Plan.parse(plan))


def told(result: simulation.Result) -> list[str]:
    return [f"{each.at} {each}" for each in result.trace.entries]


def text_of(result: simulation.Result, kind: str) -> str:
    return next((text for (of, _), text in result.end.items() if of[1] == kind), "")


async def scaled_and_ready(world: simulation.World) -> None:
    """Create a website, then do what an autoscaler and the cluster's own controllers do."""
    await site(world)
    deployment = await world.client.read(world.type("Deployment"), "blog")
    scaled = await kubernetes.scale(world.client, deployment, 4)
    scaled.data["status"] = {"replicas": 4, "readyReplicas": 4}
    await kubernetes.update_status(world.client, scaled)
    await world.wait_idle()


@pytest.mark.parametrize("plan", ["none", "fail_over(2); crash_after(3)", "pause(2, 40.0)", "restore(0, 6)"])
def test_same_plan_gives_the_same_trace(plan: str) -> None:
    assert told(run(deleted, plan)) == told(run(deleted, plan))


def test_same_uid_in_every_run() -> None:
    """A program may pass a uid on, so it must not differ from run to run."""
    uids = [
        {
            each.new.id.uid
            for each in run(created, plan).trace.commits
            if each.new is not None and each.new.id is not None
        }
        for plan in ("none", "slow(2, 10.0)")
    ]
    assert uids[0] == uids[1]
    assert len(uids[0]) == 2


@pytest.mark.parametrize("plan", ["none", pytest.param("", marks=[pytest.mark.wide, pytest.mark.timeout(600)])])
def test_program_of_the_guide_is_proved(plan: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if plan:
        monkeypatch.setenv("HEADWAY_PLAN", plan)
    (tmp_path / "proved_websites.py").write_text(program_of("docs/guides/kubernetes.md"))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("proved_websites").test_websites()


def test_owner_takes_its_dependents_with_it_a_moment_later() -> None:
    result = run(deleted)
    gone = [each for each in result.trace.commits if each.what == "deleted"]
    assert [each.kind[1] for each in gone] == ["Website", "Deployment"]
    assert gone[1].at - gone[0].at == 1.0
    assert gone[1].by == ""
    assert not result.findings
    assert not result.end


@pytest.mark.parametrize("right", [False, True])
def test_password_that_is_made_anew_after_a_crash_is_found(right: bool) -> None:
    """An object without a status is not new: the process may have been killed before it wrote the status."""

    def make(process: simulation.Process) -> headway.App:
        operator = Operator(process.outside)
        config_map = operator.config_map

        @operator.app.controller(
            manages=operator.website, watches=[headway.watch(config_map, headway.mappers.owner())], name="sites"
        )
        async def sites(rt: headway.Runtime, request: headway.Request[Website]) -> None:
            blog = rt.resource(request)
            if blog is None:
                return
            stored = rt.cache.get(config_map, config_map.id("blog", namespace=blog.id.namespace))
            keeps = stored is not None and (right or blog.data.status.ready)
            token = stored.data["data"]["token"] if stored is not None and keeps else uuid.uuid4().hex
            body = {"data": {"token": token, "url": "https://blog"}}
            await rt.apply(config_map.new("blog", body, namespace=blog.id.namespace, owner=blog))
            if not blog.data.status.ready:
                blog.data.status.ready = 1
                await kubernetes.update_status(rt, blog)

        return operator.app

    if right:
        simulation.explore(make, created, outside=Dns, plan="crash_after(2)")
        return
    with pytest.raises(simulation.Refuted, match=r"^replaced: ConfigMap blog.data: sites has replaced the random"):
        simulation.explore(make, created, outside=Dns)


@headway.message
class Sized:
    spec: Spec = field(1)
    size: int = field(2)


def versions(stored: str, managed: str = "v2") -> Make:
    """Return a program of two versions of a type, of which the cluster stores one and a controller manages one."""

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("sites")
        group, both = "versions.headway.dev", {"v1": Website, "v2": Sized}
        types: dict[str, Any] = {
            name: kubernetes.resource(app, group, name, "Site", payload, stored=name == stored)
            for name, payload in both.items()
        }
        app.converter(
            types["v1"], types["v2"], up=lambda old: Sized(spec=old.spec), down=lambda new: Website(spec=new.spec)
        )

        @app.controller(manages=types[managed])
        async def sites(rt: headway.Runtime, request: headway.Request[Any]) -> None:
            if (found := rt.resource(request)) is not None:
                async with rt.conditions(found) as conditions:
                    conditions.set("Ready", True)

        return app

    return make


def writes(version: str) -> simulation.Scenario:
    async def scenario(world: simulation.World) -> None:
        type = world.type("Site", version)
        await world.client.apply(type.new("blog", type.payload(spec=Spec(image="web:1"))))
        await world.wait_idle()

    return scenario


def test_version_that_the_cluster_would_convert_is_an_error_that_names_the_stored_one() -> None:
    text = "a simulation on Kubernetes converts no objects: use the stored versions.headway.dev.v2.Site"
    with pytest.raises(InvalidArgument, match=rf"versions\.headway\.dev\.v1\.Site: {text}"):
        simulation.explore(versions("v2"), writes("v1"), plan="none")
    with pytest.raises(DeclarationError, match=rf"versions\.headway\.dev\.v1\.Site: {text}"):
        simulation.explore(versions("v2", managed="v1"), writes("v2"), plan="none")
    simulation.explore(versions("v2"), writes("v2"), plan="none")

    async def upgraded(world: simulation.World) -> None:
        await writes("v1")(world)
        await world.upgrade(versions("v2"))

    with pytest.raises(DeclarationError, match=rf"Site blog is stored as versions.headway.dev/v1: {text}"):
        simulation.explore(versions("v1", managed="v1"), upgraded, plan="none")


def test_garbage_stays_for_as_long_as_the_fault_says() -> None:
    revision = next(each.revision for each in run(deleted).trace.commits if each.what == "deleted")
    result = run(deleted, f"garbage_late('{Operator(Dns()).website.name.group}.Website', {revision}, 30.0)")
    gone = [each.at for each in result.trace.commits if each.what == "deleted"]
    assert gone[1] - gone[0] == 30.0
    assert len(result.struck) == 1


@pytest.mark.parametrize(("seconds", "outcome"), [(5.0, "done"), (60.0, "canceled")])
def test_call_waits_for_a_throttled_server_until_its_lease_ends(seconds: float, outcome: str) -> None:
    result = run(created, f"throttled(1, {seconds})")
    struck = next(each for each in result.trace.steps if each.number == 1)
    assert struck.outcome == outcome
    made = next(each for each in result.trace.commits if each.kind[1] == "Deployment")
    assert seconds <= made.at < seconds + 30
    assert not result.findings


def test_watches_lag_after_a_failover_and_reads_do_not() -> None:
    async def twice(world: simulation.World) -> None:
        await site(world)
        await site(world, "web:2")

    late = run(twice, "fail_over(1, 50.0)")
    received = [each for each in late.trace.entries if isinstance(each, simulation.Delivered)]
    stored = next(each for each in late.trace.commits if each.kind[1] == "Deployment" and each.what == "created")
    assert next(each.at for each in received if each.what == "blog stored" and each.kind[1] == "Deployment") == 50.0
    assert stored.at == 0.0
    assert not late.findings


def test_users_ask_for_a_status_and_for_replicas_again_after_a_restore() -> None:
    last = max(each.number for each in run(scaled_and_ready).trace.steps if each.revision)
    result = run(scaled_and_ready, f"restore({last}, 6)")
    assert result.struck
    assert "State(ready=4)" in text_of(result, "Website")
    assert "'replicas': 4, 'revision" in text_of(result, "Deployment")
    assert not result.findings


def test_label_of_an_object_that_a_restore_has_lost_comes_back_with_it() -> None:
    result = run(labelled_by_others, f"restore(0, {run(labelled_by_others).trace.commits[-1].revision})")
    assert "'team': 'blue'" in text_of(result, "Deployment")


def test_creation_that_is_stored_after_the_object_was_deleted_again_is_not_counted() -> None:
    """It is the exception of C5 on Kubernetes. The object has its owner, so that it is garbage."""

    async def scenario(world: simulation.World) -> None:
        await world.client.apply(world.type("Website").new("blog", Website(spec=Spec(image="web:1"))))
        await world.sleep(5)
        await world.client.delete(world.type("Website").id("blog"))
        await world.sleep(40)
        await world.wait_idle()

    result = run(scenario, "commit_late(1, 30.0)")
    made = [each for each in result.trace.commits if each.kind[1] == "Deployment" and each.what == "created"]
    assert [(each.at, each.by) for each in made] == [(0.0, "sites"), (30.0, "")]
    assert not result.end


def test_two_processes_hand_over_by_a_lease() -> None:
    async def scenario(world: simulation.World) -> None:
        for leader, image in enumerate(("web:1", "web:2")):
            await world.lead(leader)
            await site(world, image)

    result = run(scenario, processes=2)
    assert {each.process for each in result.trace.reconciles} == {"p1", "p2"}
    assert not result.findings


def test_type_of_another_program_is_served_without_its_schema() -> None:
    def make(process: simulation.Process) -> headway.App:
        operator = Operator(process.outside)
        certificate = kubernetes.builtin(operator.app, "cert-manager.io/v1", "Certificate")

        @operator.app.controller(
            manages=operator.website, watches=[headway.watch(certificate, headway.mappers.owner())]
        )
        async def certificates(rt: headway.Runtime, request: headway.Request[Website]) -> None:
            blog = rt.resource(request)
            if blog is not None:
                await rt.client.apply(certificate.new(blog.name, {"spec": {"dnsNames": ["blog"]}}, owner=blog))

        return operator.app

    result = run(created, make=make)
    assert text_of(result, "Certificate") == "{'spec': {'dnsNames': ['blog']}}, owned by Website blog"
    assert not result.findings


def test_cluster_has_no_peers_and_a_store_no_api_server() -> None:
    with pytest.raises(DeclarationError, match="peers: an engine with peers has a store of Headway, and not a cluster"):
        run(created, peers={"west": simulation.Peer(app=headway.App("west"))})

    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Spec)

    @app.controller(manages=team)
    async def teams(rt: headway.Runtime, request: headway.Request[Spec]) -> None:
        found = rt.resource(request)
        if found is not None:
            async with rt.conditions(found) as conditions:
                conditions.set("Ready", True)

    async def scenario(world: simulation.World) -> None:
        await world.client.apply(team.new("core", Spec(image="x")))

    with pytest.raises(DeclarationError, match=r"throttled\(1, 60.0\) is for a program whose types are of Kubernetes"):
        simulation.explore(app, scenario, plan="throttled(1)")


@pytest.mark.parametrize(
    ("fault", "at", "what"),
    [
        ("stall('apps.Deployment', 9, 30.0)", 30.0, "blog stored"),
        ("drop('apps.Deployment', 9)", 0.0, "blog stored"),
        ("history_lost('apps.Deployment', 9)", 0.0, "the end of a snapshot"),
        ("missed('apps.Deployment', 9)", 1.0, "the end of a snapshot"),
        ("hide('apps.Deployment', 9, 10)", 0.0, "the end of a snapshot"),
    ],
)
def test_fault_of_a_stream_is_one_of_the_watch_cache(fault: str, at: float, what: str) -> None:
    result = run(created, fault)
    received = [each for each in result.trace.entries if isinstance(each, simulation.Delivered)]
    after = next(each for each in received if each.kind[1] == "Deployment" and each.revision >= 9)
    assert (after.what, int(after.at)) == (what, at)
    assert not result.findings

"""Bugs of operators from public issue trackers, rebuilt small, each with its corrected twin."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import headway
from headway import kubernetes
from headway.resource import Resource
from headway.testing import simulation
from tests.kubernetes.connected import Program, Spec, State, Website

FINALIZER = "example.org/dns"
Request = headway.Request[Website]
Declare = Callable[["Operator", bool], None]


class Dns:
    """The outside world: records by name."""

    def __init__(self) -> None:
        self.records: dict[str, str] = {}
        self._made = 0

    async def put(self, name: str) -> None:
        """Create a record, or change it."""
        self.records[name] = "up"

    async def make(self, name: str) -> str:
        """Create a record with a new number, and return the number."""
        self._made += 1
        self.records[f"{self._made}"] = name
        return f"{self._made}"

    async def find(self, name: str) -> str | None:
        """Return the number of a record."""
        return next((number for number, of in self.records.items() if of == name), None)

    async def remove(self, name: str) -> None:
        """Remove a record, if it exists."""
        self.records.pop(name, None)


class Operator(Program):
    """A program that is being declared, for one life of a process."""

    def __init__(self, dns: Dns) -> None:
        super().__init__()
        self.dns = dns
        self.owned = [headway.watch(self.deployment, headway.mappers.owner())]

    def deployment_of(self, site: Resource[Website], *, selected: str = "", **without: bool) -> Resource[Any]:
        """Return the Deployment of a website."""
        labels = {"app": selected or site.name}
        containers = [{"name": "web", "image": site.data.spec.image}]
        spec = {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        }
        if not without.get("replicas"):
            spec["replicas"] = site.data.spec.replicas
        owner = None if without.get("owner") else site
        return self.deployment.new(site.name, {"spec": spec}, namespace=site.id.namespace, owner=owner)


@dataclasses.dataclass(frozen=True)
class Case:
    """A wrong operator and its corrected twin, declared by one function.

    Attributes:
        source: reports of such a bug, and what is wrong.
        declare: declares the right controllers or the wrong ones.
    """

    source: str
    declare: Declare
    scenario: simulation.Scenario

    def explore(self, *, right: bool, **settings: Any) -> simulation.Explored:
        """Explore the right operator or the wrong one."""

        def make(process: simulation.Process) -> headway.App:
            operator = Operator(process.outside)
            self.declare(operator, right)
            return operator.app

        return simulation.explore(make, self.scenario, outside=Dns, **settings)


CASES: dict[str, Case] = {}


def case(source: str, scenario: simulation.Scenario) -> Callable[[Declare], Declare]:
    """Declare a case. The source says what is wrong."""

    def add(declare: Declare) -> Declare:
        CASES[declare.__name__] = Case(source, declare, scenario)
        return declare

    return add


# --- What users do ---


async def site(world: simulation.World, image: str = "web:1") -> None:
    await world.client.apply(world.type("Website").new("blog", Website(spec=Spec(image=image, replicas=2))))
    await world.wait_idle()


async def created(world: simulation.World) -> None:
    await site(world)


async def changed(world: simulation.World) -> None:
    await site(world)
    await site(world, "web:2")


async def deleted(world: simulation.World) -> None:
    await site(world)
    await world.client.delete(world.type("Website").id("blog"))
    await world.wait_idle()


async def deleted_in_the_foreground(world: simulation.World) -> None:
    await site(world)
    blog = await world.client.read(world.type("Website"), "blog")
    await kubernetes.delete(world.client, blog, propagation="Foreground")
    await world.wait_idle()


async def labelled_by_others(world: simulation.World) -> None:
    await site(world)
    labels = {"team": "blue"}
    await world.client.apply(world.type("Deployment").new("blog", {}, metadata=labels), manager="others")
    await world.wait_idle()


async def configured(world: simulation.World) -> None:
    for image in ("web:1", "web:2"):
        settings = world.type("ConfigMap").new("blog", {"data": {"image": image}})
        await world.client.apply(settings)
        await world.wait_idle()
        if image == "web:1":
            await site(world)


# --- The operators ---


@case("aws-controllers-k8s/community#2062: what was made outside is found again only by a status", created)
def made_outside_before_recorded(operator: Operator, right: bool) -> None:
    @operator.app.controller(manages=operator.website)
    async def records(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        if blog is None or blog.data.status.ready:
            return
        number = await operator.dns.find(blog.name) if right else None
        blog.data.status = State(ready=int(number or await operator.dns.make(blog.name)))
        await kubernetes.update_status(rt, blog)


@case("kubermatic/machine-controller#581: the finalizer comes after what it guards", deleted)
def finalizer_too_late(operator: Operator, right: bool) -> None:
    @operator.app.controller(manages=operator.website)
    async def records(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        if blog is None:
            return
        if not right and not blog.is_deleting:
            await operator.dns.put(blog.name)
        async with rt.finalizer(blog, FINALIZER) as guarded:
            if guarded.alive and right:
                await operator.dns.put(blog.name)
            elif guarded.cleaning_up:
                await operator.dns.remove(blog.name)


@case("pingcap/tidb-operator#6532, appvia/kore#818: the finalizer goes before what it guards", deleted)
def finalizer_too_early(operator: Operator, right: bool) -> None:
    @operator.app.controller(manages=operator.website)
    async def records(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        if blog is None:
            return
        async with rt.finalizer(blog, FINALIZER) as guarded:
            if guarded.alive:
                await operator.dns.put(blog.name)
            elif guarded.cleaning_up and right:
                await operator.dns.remove(blog.name)
        if guarded.cleaning_up and not right:
            await operator.dns.remove(blog.name)


@case("zalando/postgres-operator#498, halkyonio/operator#81: dependents without an owner are left over", deleted)
def no_owner(operator: Operator, right: bool) -> None:
    @operator.app.controller(manages=operator.website, watches=operator.owned)
    async def sites(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        if blog is not None and not blog.is_deleting:
            await rt.client.apply(operator.deployment_of(blog, owner=not right), force=True)
        elif not right:
            await rt.client.delete(operator.deployment.id(request.id.name, namespace=request.id.namespace))


@case(
    "prometheus-operator#2018, pingcap/tidb-operator#2946: a whole PUT drops the labels of others", labelled_by_others
)
def put_drops_labels(operator: Operator, right: bool) -> None:
    @operator.app.controller(manages=operator.website, watches=operator.owned if right else [])
    async def sites(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        if blog is None or blog.is_deleting:
            return
        wanted = operator.deployment_of(blog)
        await (rt.client.apply(wanted, force=True) if right else rt.client.write(wanted))


@case("keikoproj/instance-manager#235, multigres#185: each reconcile writes a status that starts the next one", created)
def status_each_time(operator: Operator, right: bool) -> None:
    @operator.app.controller(manages=operator.website)
    async def counts(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        if blog is None or (right and blog.data.status.ready):
            return
        blog.data.status.ready += 1
        await kubernetes.update_status(rt, blog)


@case(
    "VictoriaMetrics/operator#132, ClickHouse#309: dependents of what is being deleted are made again",
    deleted_in_the_foreground,
)
def deletion_ignored(operator: Operator, right: bool) -> None:
    @operator.app.controller(manages=operator.website, watches=operator.owned)
    async def sites(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        if blog is not None and not (right and blog.is_deleting):
            await rt.client.apply(operator.deployment_of(blog), force=True)


@case("service-catalog#1747: a generation counts as done before it is", changed)
def generation_first(operator: Operator, right: bool) -> None:
    @operator.app.controller(manages=operator.website, watches=operator.owned)
    async def sites(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        if blog is None or blog.is_deleting:
            return
        said = blog.status.get(rt.controller)
        if said is not None and said.observed_generation == blog.generation and not right:
            return
        if right:
            await rt.client.apply(operator.deployment_of(blog), force=True)
        async with rt.conditions(blog) as conditions:
            conditions.set("Deployed", True)
        if not right:
            await rt.client.apply(operator.deployment_of(blog), force=True)


@case("LLMKube#606, cryostat-operator#1301: the selector of a Deployment cannot be changed", changed)
def selector_in_place(operator: Operator, right: bool) -> None:
    @operator.app.controller(manages=operator.website, watches=operator.owned)
    async def sites(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        if blog is None or blog.is_deleting:
            return
        version = "" if right else blog.data.spec.image.replace(":", "-")
        await rt.client.apply(operator.deployment_of(blog, selected=version), force=True)


@case("apache/superset-kubernetes-operator#151, operator-sdk#3367: replicas are taken from an autoscaler", created)
def fights_autoscaler(operator: Operator, right: bool) -> None:
    @operator.app.controller(manages=operator.website, watches=operator.owned)
    async def sites(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        if blog is not None and not blog.is_deleting:
            await rt.client.apply(operator.deployment_of(blog, replicas=right), force=True)

    @operator.app.controller(manages=operator.deployment)
    async def autoscaler(rt: headway.Runtime, request: headway.Request[Any]) -> None:
        found = rt.resource(request)
        if found is not None and not found.is_deleting and found.data["spec"]["replicas"] != 5:
            await kubernetes.scale(rt, found, 5)


@case("operator-sdk#4251: an owner in another namespace counts as absent", created)
def owner_elsewhere(operator: Operator, right: bool) -> None:
    @operator.app.controller(manages=operator.website, watches=operator.owned)
    async def sites(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        if blog is None or blog.is_deleting:
            return
        wanted = operator.deployment_of(blog)
        if not right:
            wanted = operator.deployment.new(blog.name, wanted.data.body, namespace="sites", owner=blog)
        await rt.client.apply(wanted, force=True)


@case("minio/operator#2392: a change of what it reads, but does not watch, waits for a restart", configured)
def not_watched(operator: Operator, right: bool) -> None:
    watches = [headway.watch(operator.config_map, headway.mappers.same_name())] if right else []

    @operator.app.controller(manages=operator.website, watches=watches)
    async def sites(rt: headway.Runtime, request: Request) -> None:
        blog = rt.resource(request)
        settings = await rt.client.get(operator.config_map, request.id.name)
        if blog is not None and settings is not None and not blog.is_deleting:
            blog.data.spec.image = settings.data["data"]["image"]
            await rt.client.apply(operator.deployment_of(blog), force=True)

"""The operator of the Kubernetes example on a store in memory, where nothing has to be installed."""

from __future__ import annotations

import re
from typing import Any

import headway
from examples.kubernetes.dns import Order, Records
from examples.kubernetes.websites import CONFIG_MAP, DEPLOYMENT, INGRESS, OWNED, WEBSITE, Spec, Website, operator
from tests.examples.fleet_kit import ROOT
from tests.test_docs import program_of

FALSE = headway.ConditionState.FALSE


class Provider(Records):
    """A provider of DNS without a network, which a test can break."""

    broken = False

    async def put(self, key: str, order: Order, host: str) -> None:
        self._check()
        self.change(key, order, host)

    async def remove(self, key: str, order: Order) -> None:
        self._check()
        self.change(key, order, "")

    def _check(self) -> None:
        if self.broken:
            raise ConnectionError("the provider does not answer")


def site(**given: Any) -> headway.Resource[Website]:
    spec = {"image": "web:1", "replicas": 2, "pages": {"index.html": "Welcome"}, "host": "blog.example", **given}
    return WEBSITE.new("blog", Website(spec=Spec(**spec)))


def ready_of(resource: headway.Resource[Any]) -> tuple[str, str, str]:
    (condition,) = resource.status["websites"].conditions
    return condition.state.name, condition.reason, condition.message


async def test_a_website_becomes_its_objects_and_its_record() -> None:
    dns = Provider()
    async with headway.open_engine("memory:", operator(dns)) as engine:
        client = engine.client
        stored = await client.apply(site())
        await engine.wait_idle()
        found = {type.name.kind: await client.list(type) for type in OWNED}
        assert {kind: [each.name for each in objects] for kind, objects in found.items()} == {
            kind: ["blog"] for kind in ("Deployment", "Service", "ConfigMap", "Ingress")
        }
        assert all(each.owner == stored.id for objects in found.values() for each in objects)
        assert dns.hosts == {"default/blog": "blog.example"}
        stored = await client.read(WEBSITE, stored.id)
        assert ready_of(stored) == ("FALSE", "Progressing", "0 of 2 replicas are ready")


async def test_other_pages_make_other_pods() -> None:
    async with headway.open_engine("memory:", operator(Provider())) as engine:
        seen = []
        for text in ("Welcome", "Welcome", "Good bye"):
            await engine.client.apply(site(pages={"index.html": text}))
            await engine.wait_idle()
            pages = await engine.client.read(CONFIG_MAP, CONFIG_MAP.id("blog"))
            assert pages.data["data"] == {"index.html": text}
            deployment = await engine.client.read(DEPLOYMENT, DEPLOYMENT.id("blog"))
            seen.append(deployment.data["spec"]["template"]["metadata"]["annotations"])
        assert seen[0] == seen[1] != seen[2]


async def test_a_site_without_a_host_has_neither_ingress_nor_record() -> None:
    dns = Provider()
    async with headway.open_engine("memory:", operator(dns)) as engine:
        await engine.client.apply(site())
        await engine.wait_idle()
        await engine.client.apply(site(host=""))
        await engine.wait_idle()
        assert (await engine.client.list(INGRESS), dns.hosts) == ([], {})


async def test_a_site_stays_until_its_record_is_gone() -> None:
    dns = Provider()
    async with headway.open_engine("memory:", operator(dns)) as engine:
        stored = await engine.client.apply(site())
        await engine.wait_idle()
        dns.broken = True
        await engine.client.delete(stored)
        (left,) = await engine.client.list(WEBSITE)
        assert left.is_deleting
        dns.broken = False
        await headway.until_gone(engine.client, WEBSITE, left.id)
        assert dns.hosts == {}


async def test_a_failure_of_the_provider_is_a_condition() -> None:
    dns = Provider()
    dns.broken = True
    async with headway.open_engine("memory:", operator(dns)) as engine:
        await engine.client.apply(site())
        stored = await headway.until_condition(engine.client, WEBSITE, "blog", "Ready", state=FALSE)
        assert ready_of(stored) == ("FALSE", "ConnectionError", "the provider does not answer")


def test_guide_shows_the_operator_itself() -> None:
    shown = program_of("docs/guides/kubernetes-operator.md")
    program = (ROOT / "examples/kubernetes/websites.py").read_text()
    assert lines_of(shown) == lines_of(program.partition('"""\n\n')[2])
    page = (ROOT / "docs/guides/kubernetes-operator.md").read_text()
    (proof,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert proof in (ROOT / "examples/kubernetes/proof.py").read_text()


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


async def test_a_late_call_changes_nothing() -> None:
    dns = Provider()
    await dns.put("default/blog", (1, 5), "blog.example")
    await dns.remove("default/blog", (2, 7))
    await dns.put("default/blog", (1, 6), "blog.example")
    assert dns.hosts == {}

"""The live page of a process that works on a cluster: what it shows, and to whom, and what it may change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import headway
from headway import kubernetes
from headway.engine import Engine
from headway.errors import InvalidArgument
from headway.page import open_page
from headway.page._search import find
from tests.helpers.kube_server import ADMIN, BOB, KubeServer
from tests.kubernetes.connected import GROUP, Program, Spec, Website, install_crd, kubeconfig
from tests.page.kit import PATIENCE, Visitor, until

SITE = f"{GROUP}.v1.Website"
_READ = ["get", "list", "watch"]


class Shown(Program):
    """A program that keeps a ConfigMap for each site, in one namespace, and that may also read Secrets."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self.secret = kubernetes.builtin(self.app, "v1", "Secret")
        self.types = self.website, self.config_map, self.deployment, self.secret
        self.namespace = namespace
        scope = self.website.within(namespace=namespace)

        @self.app.controller(manages=scope, writes=[self.website, self.config_map])
        async def sites(rt: headway.Runtime, request: headway.Request[Website]) -> None:
            site = rt.resource(request)
            if site is None:
                return
            if not site.data.spec.image:
                raise ValueError(f"{site.name} has no image")
            data = {"data": {"image": site.data.spec.image}}
            await rt.client.apply(self.config_map.new(site.name, data, namespace=namespace, owner=site))
            async with rt.conditions(site) as conditions:
                conditions.set("Kept", True, site.data.spec.image, reason="Applied")

    def site(self, name: str, image: str = "web:1") -> headway.Resource[Website]:
        return self.website.new(name, Website(spec=Spec(image=image)), namespace=self.namespace)


@asynccontextmanager
async def shown(
    kube: KubeServer, namespace: str, folder: Path, token: str = ADMIN, **options: Any
) -> AsyncIterator[tuple[Shown, Engine, Visitor]]:
    """Run the program with its page, and open the page."""
    install_crd(kube)
    program = Shown(namespace)
    file = kubeconfig(kube, namespace, folder, token)
    async with (
        kubernetes.open_cluster(program.app, kubeconfig=file) as engine,
        open_page(engine, program.app, http="127.0.0.1:0", **options) as address,
        httpx.AsyncClient(
            base_url=f"http://{address}", headers={"origin": f"http://{address}"}, timeout=PATIENCE
        ) as http,
    ):
        visitor = Visitor(http, address)
        await visitor.learn()
        yield program, engine, visitor


def query(type: str, namespace: str, name: str) -> str:
    """Return the query that names a resource."""
    return f"?type={type}&partition=default&namespace={namespace}&name={name}"


async def test_page_shows_a_process_and_its_objects_as_they_change(
    kube: KubeServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pages of two objects, in which a list of three rows ends.
    monkeypatch.setattr("headway.page._service.find", partial(find, at_once=2))
    async with shown(kube, namespace, tmp_path) as (program, engine, visitor):
        lacks = ["events", "quotas", "core.v1.ConfigMap", "apps.v1.Deployment", "core.v1.Secret"]
        assert visitor.session["lacks"] == lacks
        for number in range(5):
            await engine.client.write(program.site(f"site-{number}"))
        async with visitor.events("/page/live") as live:
            boxes = {each["name"] for each in (await live.next("graph"))["boxes"]}
            assert {"sites/sites", SITE, "core.v1.ConfigMap"} <= boxes
            state = await live.next("state")
            assert [each["type"] for each in state["types"]] == [str(each.name) for each in program.types]
            await engine.client.write(program.site("broken", ""))
            failing = await live.until(lambda state: bool(state.get("failing")))
            assert failing["failing"][0]["error"] == "ValueError: broken has no image"

        async def search(**of: str | int) -> Any:
            return (await visitor.http.get("/page/search", params={"namespace": namespace, **of})).json()

        rows: list[str] = []
        cursor = ""
        while True:
            page = await search(type=SITE, q="site", rows=3, cursor=cursor)
            rows += [each["name"] for each in page["rows"]]
            if not (cursor := page.get("cursor", "")):
                break
        assert rows == [f"site-{number}" for number in range(5)]
        assert [each["name"] for each in (await search(type=SITE, failing="yes"))["rows"]] == ["broken"]
        (row,) = (await search(type=SITE, q="site-3"))["rows"]
        assert row["conditions"] == [{"type": "Kept", "state": "TRUE"}]

        async with visitor.events("/page/resource" + query(SITE, namespace, "site-1")) as events:
            about = await events.next("resource")
            assert about["resource"]["data"]["spec"] == {"image": "web:1"}
            said = ["".join(piece["text"] for piece in each) for each in about["why"]["sentences"]]
            assert any("Condition Kept is TRUE by sites" in each for each in said)
            assert any("Controller sites/sites manages it" in each for each in said)
            site = await engine.client.read(program.website, "site-1", namespace=namespace)
            site.data.spec.image = "web:2"
            await engine.client.write(site)
            await events.until(lambda now: now["resource"]["data"]["spec"] == {"image": "web:2"}, "resource")
        kept = "/page/resource" + query("core.v1.ConfigMap", namespace, "site-1")
        async with visitor.events(kept) as events:
            await events.until(lambda now: now["resource"]["data"] == {"data": {"image": "web:2"}}, "resource")
        relatives = (await visitor.http.get("/page/relatives" + query(SITE, namespace, "site-1"))).json()
        assert [(each["type"], each["name"]) for each in relatives["owned"]] == [("core.v1.ConfigMap", "site-1")]
        leases = (await visitor.http.get("/page/leases")).json()["leases"]
        assert "sites/sites" in [each["name"] for each in leases]


async def test_page_has_no_values_of_secrets(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    async with shown(kube, namespace, tmp_path) as (program, engine, visitor):
        applied = {"annotation:kubectl.kubernetes.io/last-applied-configuration": "canary-5b2", "tier": "one"}
        body = {"data": {"key": "Y2FuYXJ5LTViMg=="}, "type": "Opaque"}
        await engine.client.write(program.secret.new("login", body, namespace=namespace, metadata=applied))
        async with visitor.events("/page/resource" + query("core.v1.Secret", namespace, "login")) as events:
            resource = (await events.next("resource"))["resource"]
        assert resource["data"] == {"data": {"key": "(redacted)"}, "type": "Opaque"}
        assert resource["metadata"] == {"tier": "one"}
        found = await visitor.http.get("/page/search", params={"type": "core.v1.Secret", "namespace": namespace})
        assert [each["name"] for each in found.json()["rows"]] == ["login"]
        assert "Y2Fu" not in found.text


@contextmanager
def granted(kube: KubeServer, name: str, rules: list[dict[str, list[str]]]) -> Iterator[None]:
    """Let bob have rights for the length of the block, and no longer: other tests use the server after it."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    bob = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": BOB}
    with kube.client() as client, kube.client(BOB) as as_bob:
        for path, rights in (
            ("clusterroles", {"rules": rules}),
            ("clusterrolebindings", {"roleRef": role, "subjects": [bob]}),
        ):
            made = client.post(f"{rbac}/{path}", json={"metadata": {"name": name}, **rights})
            assert made.is_success, made.text
        try:
            yield
        finally:
            assert client.delete(f"{rbac}/clusterrolebindings/{name}").is_success
            while as_bob.get("/api/v1/configmaps").is_success:
                pass


async def test_page_shows_no_more_than_the_program_may_read(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    rules = [
        {"apiGroups": [GROUP], "resources": ["websites", "websites/status"], "verbs": [*_READ, "update", "patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": [*_READ, "create", "update"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": [*_READ, "create", "patch"]},
    ]
    with kube.client() as client:
        site = {"metadata": {"name": "blog"}, "spec": {"image": "web:1"}}
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Website", **site}
        install_crd(kube)
        path = f"/apis/{GROUP}/v1/namespaces/{namespace}/websites"
        while not (made := client.post(path, json=body)).is_success:
            assert made.status_code == 404
    with granted(kube, namespace, rules):
        async with shown(kube, namespace, tmp_path, token=BOB) as (_, engine, visitor):
            await engine.wait_idle()
            relatives = (await visitor.http.get("/page/relatives" + query(SITE, namespace, "blog"))).json()
            assert [(each["type"], each["name"]) for each in relatives["owned"]] == [("core.v1.ConfigMap", "blog")]
            refused = await visitor.http.get("/page/search", params={"type": "core.v1.Secret", "namespace": namespace})
            assert refused.status_code == 403
            assert "secrets" in refused.json()["message"]
            async with visitor.events("/page/resource" + query("core.v1.Secret", namespace, "login")) as events:
                assert events.code == 403


async def test_page_changes_nothing_unless_it_is_switched_on(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    path = f"/page/api/{GROUP}/v1/website/blog?namespace={namespace}"
    retry = {"controller": "sites/sites", "type": SITE, "partition": "default", "namespace": namespace, "name": "blog"}
    body = {"data": {"spec": {"image": "web:1"}}}
    async with shown(kube, namespace, tmp_path) as (program, engine, visitor):
        for refused in (
            await visitor.change("PUT", path, body),
            await visitor.change("DELETE", path),
            await visitor.change("POST", "/page/retry", retry),
        ):
            assert refused.status_code == 403
        # No JSON API, which would write without being switched on.
        api = path.removeprefix("/page")
        assert (await visitor.http.put(api, json=body)).status_code == 404
        assert (await visitor.http.get(api)).status_code == 404
        assert await engine.client.get(program.website, "blog", namespace=namespace) is None
    async with shown(kube, namespace, tmp_path, http_writes=True) as (program, engine, visitor):
        assert visitor.session["writes"]
        made = await visitor.change("PUT", path, body)
        assert made.status_code == 200, made.text
        changed = await visitor.change("PATCH", path, {"data": {"spec": {"replicas": 3}}})
        assert changed.json()["data"]["spec"] == {"image": "web:1", "replicas": 3}
        await engine.wait_idle()
        assert (await visitor.change("POST", "/page/retry", retry)).json() == {"running": False}
        pause = {"controller": "sites/sites", "reason": "disks"}
        assert (await visitor.change("POST", "/page/pause", pause)).status_code == 204
        await until(lambda: engine.controllers["sites"].status().paused == "disks")
        assert (await visitor.change("POST", "/page/resume", pause)).status_code == 204
        await until(lambda: engine.controllers["sites"].status().paused is None)
        assert (await visitor.change("DELETE", path)).status_code == 204
        await headway.until_gone(engine.client, program.website, program.site("blog").id)


async def test_only_this_machine_can_open_the_page(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    install_crd(kube)
    program = Shown(namespace)
    async with kubernetes.open_cluster(program.app, kubeconfig=kubeconfig(kube, namespace, tmp_path)) as engine:
        with pytest.raises(InvalidArgument, match="kubectl port-forward"):
            async with open_page(engine, program.app, http="0.0.0.0:0"):
                pass

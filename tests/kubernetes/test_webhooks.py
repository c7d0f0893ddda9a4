"""A real API server calls the converters and hooks of a program, over TLS with certificates that the program makes."""

from __future__ import annotations

import base64
import datetime
import itertools
import json
import socket
import ssl
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import trio
from cryptography.hazmat.primitives import serialization

import headway
from headway import events, field, kubernetes
from headway.base import Steps, utc_now
from headway.client import Client
from headway.errors import DeclarationError, InvalidArgument, NotFound
from headway.kubernetes import _certificates, _webhooks
from headway.kubernetes._certificates import SharedPairs
from headway.kubernetes._crd import Document
from headway.kubernetes._http import ApiServer
from headway.kubernetes._kubeconfig import load_config
from headway.kubernetes._open import open_channel
from headway.kubernetes._reviews import Reviews
from headway.kubernetes._unresolved import is_in_doubt
from headway.kubernetes._webhook_config import name_of, place_of
from tests.helpers.kube_server import ADMIN, KubeServer
from tests.kubernetes.connected import kubeconfig
from tests.kubernetes.test_crd import CRDS, establish
from tests.kubernetes.test_guide import apply as applied
from tests.kubernetes.test_guide import token_of

T = TypeVar("T")

SOON = 20.0
LIFE = 20.0
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MERGE = {"Content-Type": "application/merge-patch+json"}


@headway.message(name="tests.headway.dev.Port")
class Port:
    name: str = field(1)
    number: int = field(2)


@headway.message(name="tests.headway.dev.OldSpec")
class OldSpec:
    image: str = field(1)
    replicas: int = field(2)
    ports: list[Port] = field(3)
    env: dict[str, Port] = field(4)


@headway.message(name="tests.headway.dev.OldState")
class OldState:
    ready: int = field(1)


@headway.message(name="tests.headway.dev.OldSite")
class OldSite:
    spec: OldSpec = field(1)
    status: OldState = field(2)


@headway.message(name="tests.headway.dev.NewSpec")
class NewSpec:
    image: str = field(1)
    count: int = field(2)
    ports: list[Port] = field(3)
    slot: str = field(4)
    env: dict[str, Port] = field(5)


@headway.message(name="tests.headway.dev.NewSite")
class NewSite:
    spec: NewSpec = field(1)
    status: OldState = field(2)


def up(old: OldSite) -> NewSite:
    if old.spec.image == "broken":
        raise ValueError("this image cannot be converted")
    spec = NewSpec(image=old.spec.image, count=old.spec.replicas, ports=old.spec.ports, env=old.spec.env)
    return NewSite(spec=spec, status=OldState(ready=old.status.ready))


def down(new: NewSite) -> OldSite:
    if new.spec.slot == "at most 5" and new.spec.count > 5:
        raise ValueError("spec.count: must be at most 5")
    spec = OldSpec(image=new.spec.image, replicas=new.spec.count, ports=new.spec.ports, env=new.spec.env)
    return OldSite(spec=spec, status=OldState(ready=new.status.ready))


def fill_in(site: headway.Resource[NewSite]) -> None:
    if not site.data.spec.slot:
        site.data.spec.slot = "main"
        site.metadata["slot/of"] = "main"


def check(site: headway.Resource[NewSite]) -> None:
    if site.data.spec.image == "crash":
        raise KeyError("secret of the program")
    if site.data.spec.count > 9:
        raise ValueError("spec.count: must be at most 9")


CHECKED = headway.Hooks(mutate=fill_in, validate=check)


class Program:
    """An app with a kind of two versions."""

    def __init__(self, group: str, hooks: headway.Hooks[NewSite] | None = None, stored: str = "v2") -> None:
        self.group = group
        self.app = headway.App(self.group.partition(".")[0])
        self.old = kubernetes.resource(self.app, self.group, "v1", "Site", OldSite, stored=stored == "v1")
        self.new = kubernetes.resource(self.app, self.group, "v2", "Site", NewSite, hooks=hooks, stored=stored == "v2")
        self.app.converter(self.old, self.new, up=up, down=down)

    @property
    def crd(self) -> Document:
        (document,) = kubernetes.crds(self.app)
        return document


class Served:
    """A program whose webhooks are served, and a client of the API server."""

    def __init__(self, kube: KubeServer, program: Program, namespace: str, client: httpx.Client) -> None:
        self.kube, self.program, self.namespace, self.client = kube, program, namespace, client
        self.events: list[object] = []
        self.address: tuple[str, int] = ("", 0)

    def path(self, version: str, name: str = "") -> str:
        base = f"/apis/{self.program.group}/{version}/namespaces/{self.namespace}/sites"
        return f"{base}/{name}" if name else base

    def body(self, name: str, version: str = "v2", **spec: Any) -> dict[str, Any]:
        meta = {"name": name}
        return {"apiVersion": f"{self.program.group}/{version}", "kind": "Site", "metadata": meta, "spec": spec}

    async def send(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        """Make a call as a person does."""
        return await in_thread(lambda: self.client.request(method, path, json=body, **options))

    async def create(self, name: str, version: str = "v2", **spec: Any) -> httpx.Response:
        return await self.send("POST", self.path(version), self.body(name, version, **spec))

    async def read(self, name: str, version: str = "v2") -> dict[str, Any]:
        return dict((await self.send("GET", self.path(version, name))).raise_for_status().json())

    async def ready(self) -> None:
        """Wait until the API server has learned of the webhooks."""
        if self.program.new.hooks.validate is not None:
            await until(self.refused)
        await until(self.converted)

    async def refused(self) -> bool:
        return (await self.create("never", count=10)).status_code == 422

    async def converted(self) -> bool:
        name = f"first-{uuid.uuid4().hex[:8]}"
        made = await self.create(name, "v1", image="web:1", replicas=1)
        found = made.is_success and (await self.read(name))["spec"].get("count")
        await self.send("DELETE", self.path("v2", name))
        return bool(found)

    async def ask(self, path: str, content: bytes | str) -> httpx.Response:
        """Ask the program itself, as an API server does."""
        with httpx.Client(verify=False) as client:
            return await in_thread(
                lambda: client.post(f"https://{self.address[0]}:{self.address[1]}{path}", content=content)
            )

    async def certificate(self) -> bytes:
        """Return the certificate that the program shows."""
        pem = await in_thread(lambda: ssl.get_server_certificate(self.address))
        return pem.encode()

    async def configure(self, client: dict[str, Any], policy: str = "Fail") -> None:
        """Change how the validating webhook is called."""
        path = f"{CONFIGURATIONS}/{self.namespace}.{self.program.app.name}"
        found = (await self.send("GET", path)).json()
        found["webhooks"][0] |= {"failurePolicy": policy}
        found["webhooks"][0]["clientConfig"] |= client
        (await self.send("PUT", path, found)).raise_for_status()

    async def stored_certificate(self) -> bytes:
        path = f"/api/v1/namespaces/{self.namespace}/secrets/headway-webhooks-{self.program.app.name}"
        found = (await self.send("GET", path)).raise_for_status().json()
        return base64.b64decode(found["data"]["tls.crt"])


async def in_thread(function: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(function)


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until a condition holds."""
    with trio.fail_after(SOON):
        while not await condition():  # noqa: ASYNC110  # it asks an API server
            await trio.sleep(0.02)


@pytest.fixture(scope="module")
def groups(kube: KubeServer) -> list[str]:
    """Groups whose CRDs are in the cluster. An API server delays the first creations after each CRD by two seconds."""
    namespace = kube.new_namespace()
    made = [f"g{uuid.uuid4().hex[:8]}.example.org" for _ in range(20)]
    with kube.client() as client:
        for group in made:
            establish(client, Program(group).crd, namespace)
    return made


@pytest.fixture
def group(groups: list[str]) -> str:
    """A group for the test alone."""
    return groups.pop()


@pytest.fixture
def client(kube: KubeServer) -> Iterator[httpx.Client]:
    with kube.client() as client:
        yield client


@asynccontextmanager
async def serving(
    kube: KubeServer,
    program: Program,
    namespace: str,
    folder: Path,
    *,
    crd: Document | None = None,
    token: str = ADMIN,
    **options: Any,
) -> AsyncIterator[Served]:
    """Install the CRD of a program, and serve its webhooks."""
    with kube.client() as client:
        served = Served(kube, program, namespace, client)
        if crd is not None:
            await in_thread(lambda: establish(client, crd, namespace))
        options = {"address": "127.0.0.1:0", "report": served.events.append, **options}
        file = kubeconfig(kube, namespace, folder, token)
        async with kubernetes.open_webhooks(program.app, kubeconfig=file, **options) as address:
            host, _, port = address.rpartition(":")
            served.address = (host, int(port))
            await served.ready()
            yield served


@asynccontextmanager
async def connected(served: Served, folder: Path) -> AsyncIterator[Client]:
    """Open a client of Headway."""
    config = load_config(kubeconfig(served.kube, served.namespace, folder))
    registry = served.program.app.registry
    async with ApiServer(config) as server, open_channel(server, registry, served.namespace) as channel:
        yield Client(channel, registry)


def age_certificate(kube: KubeServer, program: Program, namespace: str) -> bytes:
    """Put a certificate into the Secret of a program that it is time to replace."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_certificates, "utc_now", lambda: utc_now() - datetime.timedelta(seconds=LIFE * 0.7))
        pair = _certificates.new_pair(["127.0.0.1"], datetime.timedelta(seconds=LIFE))
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    secret = {
        "metadata": {"name": f"headway-webhooks-{program.app.name}"},
        "type": "kubernetes.io/tls",
        "data": {file: base64.b64encode(content).decode() for file, content in data.items()},
    }
    with kube.client() as client:
        client.post(f"/api/v1/namespaces/{namespace}/secrets", json=secret).raise_for_status()
    return pair.certificate


LOAD = ssl.SSLContext.load_cert_chain


def asked_nobody(context: ssl.SSLContext, file: str, password: str | None = None) -> None:
    """Load a certificate. Fail if that could prompt for a password."""
    assert password == ""
    LOAD(context, file, password=password)


def with_field(crd: Document, name: str, *path: str) -> Document:
    """Add a field to the schemas of both versions, as a newer program has it."""
    for version in crd["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        for part in path:
            schema = schema[part] if part in schema else schema["properties"][part]
        schema["properties"][name] = {"type": "string"}
    return crd


async def test_object_is_the_same_in_both_versions(
    kube: KubeServer, namespace: str, group: str, tmp_path: Path
) -> None:
    program = Program(group)
    crd = with_field(with_field(with_field(program.crd, "later", "spec"), "later", "status"), "later")
    crd = with_field(with_field(crd, "later", "spec", "ports", "items"), "later", "spec", "env", "additionalProperties")
    async with serving(kube, program, namespace, tmp_path, crd=crd) as served:
        item = {"name": "web", "number": 80, "later": "d"}
        body = served.body(
            "a", "v1", image="web:1", replicas=3, later="a", ports=[{"name": "x"}, item], env={"k": item}
        )
        body["metadata"] |= {"labels": {"x": "y"}, "annotations": {"note": "1"}, "finalizers": ["example.org/f"]}
        body["later"] = "b"
        (await served.send("POST", served.path("v1"), body)).raise_for_status()
        condition = {"type": "Ready", "status": "True", "reason": "R", "message": ""}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        status = {"ready": 2, "later": "c", "conditions": [condition]}
        where = served.path("v1", "a") + "/status"
        (await served.send("PATCH", where, {"status": status}, headers=MERGE)).raise_for_status()
        old, new = await served.read("a", "v1"), await served.read("a", "v2")
        assert new["spec"] == {
            "image": "web:1",
            "count": 3,
            "later": "a",
            "ports": [{"name": "x"}, item],
            "env": {"k": item},
        }
        assert (new["status"], new["later"]) == (status, "b")
        new["spec"]["count"] = 4
        (await served.send("PUT", served.path("v2", "a"), new)).raise_for_status()
        again = await served.read("a", "v1")
        assert again["spec"] == {**old["spec"], "replicas": 4}
        assert (again["status"], again["later"]) == (status, "b")
        kept = ("labels", "annotations", "finalizers", "uid")
        assert [again["metadata"][name] for name in kept] == [old["metadata"][name] for name in kept]


@pytest.mark.parametrize("stored", ["v1", "v2"])
async def test_write_in_the_older_version_keeps_what_only_the_newer_one_has(
    kube: KubeServer, group: str, namespace: str, tmp_path: Path, stored: str
) -> None:
    program = Program(group)
    crd = program.crd
    for version in crd["spec"]["versions"]:
        version["storage"] = version["name"] == stored
    async with serving(kube, program, namespace, tmp_path, crd=crd) as served:
        (await served.create("a", image="web:1", count=1, slot="blue", ports=[{"name": "x"}])).raise_for_status()
        old = await served.read("a", "v1")
        assert old["spec"] == {"image": "web:1", "replicas": 1, "ports": [{"name": "x"}]}
        old["spec"] |= {"replicas": 2, "ports": [{"name": "y"}]}
        (await served.send("PUT", served.path("v1", "a"), old)).raise_for_status()
        new = await served.read("a")
        assert new["spec"] == {"image": "web:1", "count": 2, "slot": "blue", "ports": [{"name": "y"}]}
        assert "annotations" not in new["metadata"]
        # One that both versions hold has no annotation.
        (await served.create("b", image="web:1", count=1)).raise_for_status()
        assert "annotations" not in (await served.read("b", "v1"))["metadata"]


async def test_controller_reads_and_writes_both_versions(
    kube: KubeServer, namespace: str, group: str, tmp_path: Path
) -> None:
    program = Program(group, CHECKED)
    seen: list[tuple[int, int, str]] = []

    @program.app.controller(manages=program.old, watches=[headway.watch(program.new, headway.mappers.same_name())])
    async def sites(rt: headway.Runtime, request: headway.Request[OldSite]) -> None:
        old, new = rt.resource(request), rt.cache.get(program.new, request.id.name, namespace=namespace)
        if old is not None and new is not None:
            seen.append((old.data.spec.replicas, new.data.spec.count, new.data.spec.slot))

    async with serving(kube, program, namespace, tmp_path) as served:
        (await served.create("a", count=1)).raise_for_status()
        file = kubeconfig(kube, namespace, tmp_path)
        async with kubernetes.open_cluster(program.app, kubeconfig=file, report=events.ignore) as engine:
            await engine.wait_idle()
            wanted = program.old.new("a", OldSite(spec=OldSpec(image="web:2", replicas=7)), namespace=namespace)
            made = await engine.client.apply(wanted, force=True)
            same = await engine.client.apply(wanted, force=True)
            assert same.version == made.version
            await until(lambda: at_end(seen, (7, 7, "main")))


async def at_end(seen: list[T], wanted: T) -> bool:
    return seen[-1:] == [wanted]


async def test_failing_converter_is_told_to_the_caller_and_the_program(
    kube: KubeServer, group: str, namespace: str, tmp_path: Path
) -> None:
    program = Program(group)
    async with serving(kube, program, namespace, tmp_path) as served, connected(served, tmp_path) as client:
        refused = await served.create("a", "v1", image="broken", replicas=1)
        assert refused.status_code == 500
        assert "up= of" in refused.text
        assert "raised ValueError: this image cannot be converted" in refused.text
        with pytest.raises(headway.HeadwayError, match="this image cannot be converted"):
            await client.create(program.old.new("a", OldSite(spec=OldSpec(image="broken")), namespace=namespace))
        failed = [each for each in served.events if isinstance(each, events.ConversionFailed)]
        assert failed[0].id.name == "a"
        assert (await served.create("b", "v1", image="web:1")).is_success


async def test_refusal_of_a_hook_names_the_field(kube: KubeServer, namespace: str, group: str, tmp_path: Path) -> None:
    program = Program(group, CHECKED)
    async with serving(kube, program, namespace, tmp_path) as served, connected(served, tmp_path) as client:
        refused = await served.create("a", count=10)
        assert refused.status_code == 422
        cause = {"reason": "FieldValueInvalid", "field": "spec.count", "message": "must be at most 9"}
        details = {"group": group, "kind": "Site", "name": "a", "causes": [cause]}
        assert refused.json()["details"] == details
        with pytest.raises(InvalidArgument, match=r"denied the request: Site a: spec\.count: must be at most 9"):
            await client.create(program.new.new("a", NewSite(spec=NewSpec(count=10)), namespace=namespace))
        # A write in a version without hooks is converted for them.
        assert (await served.create("a", "v1", replicas=10)).status_code == 422
        (await served.create("a", count=9)).raise_for_status()
        dry = await served.send("PATCH", served.path("v2", "a") + "?dryRun=All", {"spec": {"count": 11}}, headers=MERGE)
        assert dry.status_code == 422


async def test_hook_fills_in_defaults(kube: KubeServer, namespace: str, group: str, tmp_path: Path) -> None:
    async with serving(kube, Program(group, CHECKED), namespace, tmp_path) as served:
        body = served.body("a", count=1, ports=[{"name": "x", "number": 0}])
        body["metadata"]["labels"] = {"of": "somebody"}
        (await served.send("POST", served.path("v2"), body)).raise_for_status()
        made = await served.read("a")
        assert made["spec"] == {"count": 1, "ports": [{"name": "x", "number": 0}], "slot": "main"}
        assert made["metadata"]["labels"] == {"of": "somebody", "slot/of": "main"}
        unnamed = served.body("", count=1)
        unnamed["metadata"] = {"generateName": "some-"}
        (await served.send("POST", served.path("v2"), unnamed)).raise_for_status()
        wrong = await served.send("POST", served.path("v2"), served.body("b", count="many"))
        assert wrong.status_code == 422
        assert "spec.count" in wrong.text


async def test_failing_hook_refuses_the_write_and_ends_nothing(
    kube: KubeServer, group: str, namespace: str, tmp_path: Path
) -> None:
    # Fail open is for a program that is down, and not for its faults.
    async with serving(kube, Program(group, CHECKED), namespace, tmp_path, failure_policy="Ignore") as served:
        refused = await served.create("a", image="crash")
        assert refused.status_code == 422
        assert "the validate hook of" in refused.text
        assert "secret of the program" not in refused.text
        failed = [each for each in served.events if isinstance(each, events.HandlerFailed)]
        assert isinstance(failed[0].error, KeyError)
        (await served.create("a", image="web:1")).raise_for_status()


async def test_object_that_a_hook_refuses_can_be_deleted(
    kube: KubeServer, namespace: str, group: str, tmp_path: Path
) -> None:
    program, allowed = Program(group), headway.Hooks(validate=check)
    async with serving(kube, program, namespace, tmp_path) as served:
        body = served.body("a", count=10)
        body["metadata"]["finalizers"] = ["example.org/f"]
        (await served.send("POST", served.path("v2"), body)).raise_for_status()
    later = headway.App(program.app.name)
    old = kubernetes.resource(later, program.group, "v1", "Site", OldSite, stored=False)
    program.new = kubernetes.resource(later, program.group, "v2", "Site", NewSite, hooks=allowed)
    later.converter(old, program.new, up=up, down=down)
    program.app = later
    async with serving(kube, program, namespace, tmp_path) as served:
        (await served.send("DELETE", served.path("v2", "a"))).raise_for_status()
        body = {"metadata": {"finalizers": []}}
        (await served.send("PATCH", served.path("v2", "a"), body, headers=MERGE)).raise_for_status()
        assert (await served.send("GET", served.path("v2", "a"))).status_code == 404


async def test_writes_without_an_answer_are_refused_or_pass(
    kube: KubeServer, group: str, namespace: str, tmp_path: Path
) -> None:
    config = load_config(kubeconfig(kube, namespace, tmp_path))
    async with serving(kube, Program(group, CHECKED), namespace, tmp_path) as served, ApiServer(config) as server:
        await served.configure({"url": "https://127.0.0.1:1/validate"})

        async def refused() -> bool:
            with pytest.raises(headway.HeadwayError) as raised:
                await server.call("POST", served.path("v2"), body=served.body("a", count=10))
            # It was certainly not stored, so that nothing has to be found out.
            return not is_in_doubt(raised.value) and "failed calling webhook" in str(raised.value)

        await until(refused)
        await served.configure({}, policy="Ignore")

        async def passed() -> bool:
            return (await served.create("a", count=10)).is_success

        await until(passed)


async def test_changed_configuration_is_mended(kube: KubeServer, group: str, namespace: str, tmp_path: Path) -> None:
    async with serving(kube, Program(group, CHECKED), namespace, tmp_path, certificate_life=8.0) as served:
        wrong = base64.b64encode(kube.authority_file.read_bytes()).decode()
        await served.configure({"caBundle": wrong})
        path, patch = f"{CRDS}/sites.{group}", {"webhook": {"clientConfig": {"caBundle": wrong}}}
        (await served.send("PATCH", path, {"spec": {"conversion": patch}}, headers=MERGE)).raise_for_status()
        await served.ready()
        found = (await served.send("GET", path)).json()["spec"]["conversion"]["webhook"]["clientConfig"]
        assert found["caBundle"] != wrong


async def test_processes_share_a_certificate_over_restarts(
    kube: KubeServer, namespace: str, group: str, tmp_path: Path
) -> None:
    program = Program(group, CHECKED)
    async with serving(kube, program, namespace, tmp_path) as one:
        first = await one.certificate()
        async with serving(kube, program, namespace, tmp_path) as other:
            assert await other.certificate() == first == await one.stored_certificate()
    async with serving(kube, program, namespace, tmp_path) as again:
        assert await again.certificate() == first


async def test_no_write_fails_while_certificates_change(
    kube: KubeServer, group: str, namespace: str, tmp_path: Path
) -> None:
    program, seen, answers = Program(group, CHECKED), set[bytes](), list[httpx.Response]()
    old = await in_thread(lambda: age_certificate(kube, program, namespace))
    async with (
        serving(kube, program, namespace, tmp_path, certificate_life=LIFE) as one,
        serving(kube, program, namespace, tmp_path, certificate_life=LIFE) as other,
        trio.open_nursery() as nursery,
    ):

        async def write() -> None:
            for number in itertools.count():
                answers.append(await one.create(f"a{number}", "v1", image="web:1", replicas=1))
                answers.append(await other.create(f"b{number}", count=20))

        async def changed() -> bool:
            shown = {await one.certificate(), await other.certificate()}
            seen.update(shown)
            return old not in shown and len(answers) > 20

        nursery.start_soon(write)
        await until(changed)
        assert seen == {old, await one.stored_certificate()}
        nursery.cancel_scope.cancel()
    assert [each.text for each in answers if each.status_code not in (201, 422)] == []
    assert events.CertificateRenewed in map(type, one.events)


async def test_certificate_is_made_anew_for_another_host_or_when_it_is_damaged(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    life = datetime.timedelta(days=1)
    async with ApiServer(load_config(kubeconfig(kube, namespace, tmp_path))) as server:
        (first,) = await SharedPairs(server, namespace, "hooks", "a.example.org", life).read()
        second, older = await SharedPairs(server, namespace, "hooks", "10.0.0.7", life).read()
        assert older.certificate == first.certificate
        assert second.names == {"a.example.org", "10.0.0.7"}
        assert len(await SharedPairs(server, namespace, "hooks", "a.example.org", life).read()) == 2
        path = f"/api/v1/namespaces/{namespace}/secrets/hooks"
        patch = {"data": {"tls.key": base64.b64encode(b"damaged").decode()}}
        await server.call("PATCH", path, body=patch, content_type=MERGE["Content-Type"])
        newest, _ = await SharedPairs(server, namespace, "hooks", "10.0.0.7", life).read()
        assert newest.certificate not in (first.certificate, second.certificate)
        aged = await in_thread(lambda: age_certificate(kube, Program("aged.example.org"), namespace))
        # What somebody has deleted or damaged stays beside its successor: another process uses it.
        patch = {"data": {"old.crt": "", "tls.crt": base64.b64encode(b"damaged").decode()}}
        await server.call("PATCH", path, body=patch, content_type=MERGE["Content-Type"])
        after, kept = await SharedPairs(server, namespace, "hooks", "10.0.0.7", life).read(newest)
        assert kept.certificate == newest.certificate != after.certificate
        await server.call("PATCH", path, body={"data": {"old.crt": ""}}, content_type=MERGE["Content-Type"])
        pairs = await SharedPairs(server, namespace, "hooks", "10.0.0.7", life).read(newest)
        assert [each.certificate for each in pairs] == [after.certificate, newest.certificate]
        await server.call("DELETE", path)
        _, kept = await SharedPairs(server, namespace, "hooks", "10.0.0.7", life).read(after)
        assert kept.certificate == after.certificate
        # Two thirds of its life are over.
        _, older = await SharedPairs(server, namespace, "headway-webhooks-aged", "127.0.0.1", life).read()
        assert older.certificate == aged


async def test_questions_that_are_none_are_refused(
    kube: KubeServer, namespace: str, group: str, tmp_path: Path
) -> None:
    program = Program(group, CHECKED)
    async with serving(kube, program, namespace, tmp_path) as served:
        review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
        object = served.body("a", "v1")
        asked = {"uid": "1", "desiredAPIVersion": f"{program.group}/v2", "objects": [object]}
        answer = await served.ask("/convert", json.dumps({**review, "request": asked}))
        assert answer.json()["response"]["result"] == {"status": "Success"}

        async def refused(path: str, content: bytes | str, code: int, text: str) -> None:
            answer = await served.ask(path, content)
            assert (answer.status_code, text in answer.text) == (code, True), answer.text

        await refused("/nothing", b"{}", 404, "use /convert, /mutate, /validate")
        await refused("/convert", b"\xff{", 400, "the body is not JSON")
        await refused("/convert", b"[" * 100_000, 400, "the body is not JSON")
        await refused("/convert", b"[]", 400, "answers ConversionReview")
        await refused("/validate", json.dumps(review), 400, "answers AdmissionReview")
        await refused("/convert", json.dumps({**review, "request": {}}), 400, "uid must be a str")
        await refused(
            "/convert", json.dumps({**review, "request": {**asked, "objects": [1]}}), 400, "expected an object"
        )
        later = {**asked, "desiredAPIVersion": f"{program.group}/v9"}
        await refused("/convert", json.dumps({**review, "request": later}), 400, f"no type Site of {program.group}/v9")
        await refused("/convert", b" " * (17 << 20), 413, "16,777,216 bytes at most")
        # The server still answers.
        assert (await served.ask("/convert", json.dumps({**review, "request": asked}))).is_success


async def test_client_that_stalls_is_answered_and_keeps_no_other_waiting(
    kube: KubeServer, group: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = _webhooks._LIMITS
    monkeypatch.setattr(_webhooks, "_LIMITS", type(limits)(body_size=limits.body_size, request_timeout=1.0))
    async with serving(kube, Program(group, CHECKED), namespace, tmp_path) as served:
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE

        def stall() -> bytes:
            with socket.create_connection(served.address) as plain, trust.wrap_socket(plain) as stalling:
                stalling.sendall(b"POST /convert HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
                return stalling.recv(1000)

        async with trio.open_nursery() as nursery:

            async def stalled() -> None:
                assert b" 408 " in await in_thread(stall)

            for _ in range(10):
                nursery.start_soon(stalled)
            (await served.create("a", count=1)).raise_for_status()


@pytest.mark.parametrize(("size", "most"), [(10, 4), (2_000_000, 1)])
async def test_large_questions_are_answered_one_after_the_other(size: int, most: int) -> None:
    now, seen = 0, list[int]()

    class Questions(Reviews):
        def answered(self, path: str, body: bytes) -> Steps[bytes]:  # noqa: ARG002
            nonlocal now
            now += 1
            seen.append(now)
            for _ in range(5):
                yield True
            now -= 1
            return b"{}"

    app = _webhooks._Answers(Questions(headway.App("a").registry, print, print), print)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b" " * size}

    async def send(message: MutableMapping[str, Any]) -> None:
        assert message.get("status", 200) == 200

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(app, {"type": "http", "method": "POST", "path": "/convert"}, receive, send)
    assert max(seen) == most


async def test_printed_rights_are_enough(kube: KubeServer, group: str, namespace: str, tmp_path: Path) -> None:
    program = Program(group, CHECKED)
    old = await in_thread(lambda: age_certificate(kube, program, namespace))
    rights = kubernetes.rights(program.app, program=namespace, namespace=namespace, webhooks=True)
    await in_thread(lambda: applied(kube, namespace, rights))
    token = await in_thread(lambda: token_of(kube, namespace, namespace))
    async with serving(kube, program, namespace, tmp_path, token=token, certificate_life=LIFE) as served:

        async def renewed() -> bool:
            return await served.certificate() != old

        await until(renewed)


async def test_hooks_that_are_gone_are_taken_back(kube: KubeServer, group: str, namespace: str, tmp_path: Path) -> None:
    async with serving(kube, Program(group, CHECKED), namespace, tmp_path) as served:
        assert (await served.create("a", count=10)).status_code == 422
    only = headway.Hooks(mutate=fill_in)
    async with serving(kube, Program(group, only), namespace, tmp_path) as served:
        (await served.create("a", count=10)).raise_for_status()


async def test_webhooks_without_a_crd_or_a_subject_are_errors(
    kube: KubeServer, namespace: str, group: str, tmp_path: Path
) -> None:
    file = kubeconfig(kube, namespace, tmp_path)
    with pytest.raises(NotFound, match="headway kubernetes crd"):
        async with kubernetes.open_webhooks(Program("no.example.org").app, kubeconfig=file, address="127.0.0.1:0"):
            pass
    with kube.client() as client:
        older = {"op": "replace", "path": "/spec/versions/1/served", "value": False}
        body, patch = json.dumps([older]), {"Content-Type": "application/json-patch+json"}
        url = f"{CRDS}/sites.{group}"
        (await in_thread(lambda: client.patch(url, content=body, headers=patch))).raise_for_status()
        with pytest.raises(
            NotFound, match=rf"does not serve v2 of sites\.{group}: apply what `headway kubernetes crd`"
        ):
            async with kubernetes.open_webhooks(Program(group).app, kubeconfig=file, address="127.0.0.1:0"):
                pass
        assert client.get(url).json()["spec"]["conversion"]["strategy"] == "None"
    app = headway.App("plain")
    kubernetes.resource(app, "plain.example.org", "v1", "Site", OldSite)
    with pytest.raises(DeclarationError, match=r"neither app\.converter"):
        async with kubernetes.open_webhooks(app, kubeconfig=file, address="127.0.0.1:0"):
            pass
    with pytest.raises(InvalidArgument, match="no address that an API server can call"):
        async with kubernetes.open_webhooks(Program(group).app, kubeconfig=file, address="0.0.0.0:0"):
            pass


def test_crd_names_the_service_of_its_converters() -> None:
    program = Program("crd.example.org")
    (found,) = kubernetes.crds(program.app, webhooks_at="shop/hooks:9443")
    service = {"namespace": "shop", "name": "hooks", "port": 9443, "path": "/convert"}
    assert found["spec"]["conversion"]["webhook"]["clientConfig"] == {"service": service}
    assert "conversion" not in program.crd["spec"]
    for wrong in ("shop", "http://a", "https://", "https://a/b", "shop/hooks:x", "shop/hooks:0", "shop/hooks:65536"):
        with pytest.raises(InvalidArgument, match="use a Service as NAMESPACE/NAME"):
            kubernetes.crds(program.app, webhooks_at=wrong)


@pytest.mark.parametrize("at", ["https://[::1", "https://a:99999", "https://a:x", "https://b\u00fccher.example"])
def test_address_that_no_certificate_or_call_can_have_is_refused(at: str) -> None:
    with pytest.raises(InvalidArgument, match="is no place of webhooks"):
        place_of(at)


def test_address_is_named_as_certificates_do() -> None:
    place = place_of("https://[FD00:0:0::1]:9443")
    assert place.host in _certificates.new_pair([place.host], datetime.timedelta(days=1)).names


@pytest.mark.parametrize("life", [0.0, -1.0, 1e12, float("inf"), float("nan")])
async def test_life_of_a_certificate_is_bounded(life: float) -> None:
    with pytest.raises(InvalidArgument, match="certificate_life must be between"):
        async with kubernetes.open_webhooks(headway.App("a"), address="127.0.0.1:0", certificate_life=life):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has files in memory")
def test_key_is_never_on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a Pod whose file system is read-only.
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    _certificates.new_pair(["a.example.org"], datetime.timedelta(days=1))


def test_key_with_a_password_is_damaged_and_asks_nobody() -> None:
    pair = _certificates.new_pair(["a.example.org"], datetime.timedelta(days=1))
    key = serialization.load_pem_private_key(pair.key, None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    data = {
        file: base64.b64encode(text).decode() for file, text in (("tls.crt", pair.certificate), ("tls.key", locked))
    }
    with pytest.MonkeyPatch.context() as patch:
        # A prompt would wait here.
        patch.setattr(ssl.SSLContext, "load_cert_chain", asked_nobody)
        assert _certificates._pairs_of({"data": data}) == []


def test_configurations_of_two_programs_have_two_names() -> None:
    names = {name_of([headway.App(app)], namespace) for namespace, app in (("a-b", "c"), ("a", "b-c"))}
    assert len(names) == 2


def test_hooks_of_needs_are_refused() -> None:
    hooks: headway.Hooks[OldSite] = headway.Hooks(needs=lambda _verb, _site: ())
    with pytest.raises(DeclarationError, match="RBAC"):
        kubernetes.resource(headway.App("a"), "a.example.org", "v1", "Site", OldSite, hooks=hooks)

"""The guide's program on a real API server, by the commands of the guide, with no other rights than they give it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import yaml

from headway import kubernetes
from headway.base import wall_time
from headway.errors import InvalidArgument
from tests.helpers.kube_server import KubeServer
from tests.kubernetes.connected import kubeconfig
from tests.test_docs import program_of

SOON = 40.0
_PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}


def printed(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Return the documents that a command prints."""
    command = [sys.executable, "-m", "headway.cli", "kubernetes", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def apply(kube: KubeServer, namespace: str, documents: list[dict[str, Any]]) -> None:
    """Apply documents as a person does."""
    with kube.client() as client:
        for each in documents:
            path = _PATHS[each["kind"]].format(namespace=namespace)
            url = f"{path}/{each['metadata']['name']}?fieldManager=person&force=true"
            headers = {"Content-Type": "application/apply-patch+yaml"}
            made = client.patch(url, content=yaml.safe_dump(each), headers=headers)
            assert made.is_success, made.text


def token_of(kube: KubeServer, namespace: str, account: str) -> str:
    """Return a token of a service account."""
    with kube.client() as client:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        made = client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", json=body)
        token: str = made.raise_for_status().json()["status"]["token"]
        return token


def asked(address: str, *question: str, code: int = 0) -> str:
    """Return what a command prints about the process at an address, when it exits with this code."""
    command = [sys.executable, "-m", "headway.cli", "--server", address, *question]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def listed(log: Path, type: str, namespace: str) -> list[str]:
    """Return the names that the live page of a program lists, which has said its address."""
    page = f"http://{log.read_text().partition('the live page at http://')[2].split()[0]}/page/search"
    found = httpx.get(page, params={"type": type, "namespace": namespace}).raise_for_status()
    return [each["name"] for each in found.json()["rows"]]


@contextmanager
def running_program(folder: Path, file: Path, *options: str, app: str = "websites:app") -> Iterator[Path]:
    """Run the program by its command until the end of the block, and yield its log."""
    log = folder / "log"
    running = ["run", app, "--kubernetes", "--kubeconfig", str(file), *options]
    command = [sys.executable, "-m", "headway.cli", *running]
    with log.open("wb") as into:
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=into, stderr=into)
    try:
        yield log
    finally:
        process.terminate()
        assert process.wait(30) == 0, log.read_text()


async def until(condition: Callable[[], object], log: Path) -> None:
    """Wait until a condition holds. Fail with the log of the program."""
    ends = wall_time() + SOON
    while not condition():
        assert wall_time() < ends, log.read_text()  # noqa: ASYNC240  # it fails
        await trio.sleep(0.05)


async def test_guides_program_runs_with_the_rights_that_the_command_prints(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    program = program_of("docs/guides/kubernetes.md")
    (tmp_path / "websites.py").write_text(program)
    (crd,) = printed(tmp_path, "crd", "websites:app")
    apply(kube, namespace, [crd])
    rights = printed(tmp_path, "rbac", "websites:app", "--namespace", namespace, "--name", namespace)
    apply(kube, namespace, rights)
    file = kubeconfig(kube, namespace, tmp_path, token_of(kube, namespace, namespace))
    at = f"unix:{tmp_path}/asked"
    options = ("--listen", at, "--http", "127.0.0.1:0")
    with kube.client() as client, running_program(tmp_path, file, *options) as log:
        sites = f"/apis/example.org/v1/namespaces/{namespace}/websites"
        site = {"apiVersion": "example.org/v1", "kind": "Website", "metadata": {"name": "blog"}}
        body = {**site, "spec": {"image": "web:1", "replicas": 2}}
        await until(lambda: client.post(sites, json=body).status_code in (201, 409), log)
        deployment = f"/apis/apps/v1/namespaces/{namespace}/deployments/blog"
        await until(lambda: client.get(deployment).is_success, log)
        made = client.get(deployment).json()
        assert made["spec"]["replicas"] == 2
        assert made["metadata"]["ownerReferences"][0]["name"] == "blog"
        client.patch(
            f"{deployment}/status",
            json={"status": {"readyReplicas": 1, "replicas": 2}},
            headers={"Content-Type": "application/merge-patch+json"},
        ).raise_for_status()

        def condition() -> str:
            found = client.get(f"{sites}/blog").json().get("status", {})
            messages = [each["message"] for each in found.get("conditions", ())]
            return messages[0] if found.get("ready") == 1 and messages else ""

        await until(lambda: condition() == "1 of 2 are ready", log)
        client.patch(
            f"{sites}/blog", json={"spec": {"replicas": 5}}, headers={"Content-Type": "application/merge-patch+json"}
        ).raise_for_status()
        await until(lambda: client.get(deployment).json()["spec"]["replicas"] == 5, log)
        about = asked(at, "why", "website", "blog", "--namespace", namespace)
        assert "Controller websites/websites manages it" in about
        assert "Condition Deployed is TRUE by websites" in about
        assert "It is not stored" in asked(at, "why", "website", "shop.example", "--namespace", namespace)
        assert asked(at, "why", "--stuck") == ""
        assert "blog" in asked(at, "retry", "website", "blog", "--namespace", namespace)
        assert asked(at, "pause", "websites/websites", "--reason", "disks") == "websites/websites is paused\n"
        # Its holder renews the Lease meanwhile, and the program has the rights to see the pause.
        await until(lambda: "It is paused (disks)" in asked(at, "why", "website", "blog", "-n", namespace), log)
        assert asked(at, "resume", "websites/websites") == "websites/websites is resumed\n"
        await until(lambda: "It is paused" not in asked(at, "why", "website", "blog", "-n", namespace), log)
        refused = asked(at, "get", "website", "blog", "-n", namespace, code=1)
        assert "this process answers about its controllers and their pauses alone" in refused
        assert listed(log, "example.org.v1.Website", namespace) == ["blog"]


async def test_a_program_works_with_rights_in_one_namespace_alone(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "websites.py").write_text(program_of("docs/guides/kubernetes.md"))
    other = kube.new_namespace()
    apply(kube, namespace, printed(tmp_path, "crd", "websites:app"))
    options = ("--namespace", namespace, "--name", namespace, "--only-namespace")
    rights = printed(tmp_path, "rbac", "websites:app", *options)
    apply(kube, namespace, rights)
    file = kubeconfig(kube, namespace, tmp_path, token_of(kube, namespace, namespace))
    with kube.client() as client, running_program(tmp_path, file, "--only-namespace") as log:
        site = {"apiVersion": "example.org/v1", "kind": "Website", "metadata": {"name": "blog"}}
        body = {**site, "spec": {"image": "web:1", "replicas": 2}}
        for each in (other, namespace):
            sites = f"/apis/example.org/v1/namespaces/{each}/websites"
            await until(lambda: client.post(sites, json=body).status_code in (201, 409), log)  # noqa: B023  # at once
        deployments = "/apis/apps/v1/namespaces/{}/deployments/blog"
        await until(lambda: client.get(deployments.format(namespace)).is_success, log)
        assert client.get(deployments.format(other)).status_code == 404
    sys.path.insert(0, str(tmp_path))
    try:
        import websites  # type: ignore[import-not-found]  # the guide's program
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("websites", None)
    opened = kubernetes.open_cluster(websites.app, kubeconfig=file, only_namespace=True)
    async with opened as engine:
        with pytest.raises(InvalidArgument, match=f"namespace '{other}' must be '{namespace}'"):
            await engine.client.write(websites.DEPLOYMENT.new("blog", namespace=other))


_SCOPED = """
import headway
from headway import kubernetes

app = headway.App("copies")
CONFIG_MAP = kubernetes.builtin(app, "v1", "ConfigMap")
SECRET = kubernetes.builtin(app, "v1", "Secret")
SOURCES = CONFIG_MAP.within(namespace={namespace!r}, metadata="copied=yes")
COPIES = SECRET.within(namespace={namespace!r})

@app.controller(manages=SOURCES, watches=[headway.watch(COPIES, headway.mappers.owner())], writes=[SECRET])
async def copies(rt, request):
    source = rt.resource(request)
    if source is not None:
        body = {{"stringData": source.data["data"]}}
        await rt.apply(SECRET.new(source.name, body, namespace=source.id.namespace, owner=source))
        rt.event(source, "Copied", "it is a Secret now")
"""


async def test_a_program_of_scopes_has_rights_in_their_namespace_alone(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """The scopes are in another namespace than the program."""
    other = kube.new_namespace()
    (tmp_path / "copies.py").write_text(_SCOPED.format(namespace=other))
    rights = printed(tmp_path, "rbac", "copies:app", "--namespace", namespace, "--name", namespace)
    for each in rights:
        apply(kube, each["metadata"].get("namespace", ""), [each])
    file = kubeconfig(kube, namespace, tmp_path, token_of(kube, namespace, namespace))
    with kube.client() as client, running_program(tmp_path, file, app="copies:app") as log:
        made = {"metadata": {"name": "a", "labels": {"copied": "yes"}}, "data": {"a": "b"}}
        client.post(f"/api/v1/namespaces/{other}/configmaps", json=made).raise_for_status()
        secret = f"/api/v1/namespaces/{other}/secrets/a"
        await until(lambda: client.get(secret).is_success, log)
        assert client.get(secret).json()["metadata"]["ownerReferences"][0]["name"] == "a"
        happened = f"/apis/events.k8s.io/v1/namespaces/{other}/events"
        await until(lambda: client.get(happened).json()["items"], log)
        client.delete(secret).raise_for_status()
        await until(lambda: client.get(secret).is_success, log)
        assert "PermissionDenied" not in log.read_text()
    with kube.client(token_of(kube, namespace, namespace)) as program:
        assert program.get(f"/api/v1/namespaces/{other}/configmaps").is_success
        assert program.get(f"/api/v1/namespaces/{namespace}/configmaps").status_code == 403


def test_run_needs_to_know_where() -> None:
    command = [sys.executable, "-m", "headway.cli", "run", "websites:app"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "give --kubernetes" in done.stderr
    assert "`headway serve websites:app`" in done.stderr


def test_only_this_machine_can_ask_a_process(tmp_path: Path) -> None:
    (tmp_path / "websites.py").write_text(program_of("docs/guides/kubernetes.md"))
    others, wrong = ("0.0.0.0:7070", "others can reach this address"), ("7070", "7070")
    for option, (address, why) in itertools.product(("--listen", "--http"), (others, wrong)):
        command = [sys.executable, "-m", "headway.cli", "run", "websites:app", "--kubernetes", option, address]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2
        assert f"Error: {option}" in done.stderr
        assert why in done.stderr


_CONTROLLER = """

@sites.controller(manages=SITE)
async def keep(rt, request):
    site = rt.resource(request)
    async with rt.conditions(site) as conditions, rt.finalizer(site, f"{SITE.name.group}/dns") as guarded:
        if guarded.alive:
            conditions.set("Seen", True, str(site.data.spec.size), reason="Seen")
"""


async def test_guides_hooks_and_converter_run_with_the_rights_that_the_command_prints(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    program = program_of("docs/guides/kubernetes.md") + _CONTROLLER
    (tmp_path / "websites.py").write_text(program.replace("example.org", f"{namespace}.example.org"))
    (crd,) = printed(tmp_path, "crd", "websites:sites", "--webhooks-at", "shop/sites")
    assert crd["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["name"] == "sites"
    apply(kube, namespace, [crd])
    apply(kube, namespace, printed(tmp_path, "rbac", "websites:sites", "--namespace", namespace, "--webhooks"))
    file = kubeconfig(kube, namespace, tmp_path, token_of(kube, namespace, "sites"))
    at = f"unix:{tmp_path}/asked"
    options = ("--webhooks", "127.0.0.1:0", "--listen", at)
    with kube.client() as client, running_program(tmp_path, file, *options, app="websites:sites") as log:
        group = f"{namespace}.example.org"

        def create(version: str, name: str, spec: dict[str, Any]) -> int:
            body = {"apiVersion": f"{group}/{version}", "kind": "Website", "metadata": {"name": name}, "spec": spec}
            path = f"/apis/{group}/{version}/namespaces/{namespace}/websites"
            return client.post(path, json=body).status_code

        await until(lambda: create("v2", "never", {"size": 10}) == 422, log)
        await until(lambda: create("v1", "blog", {"image": "web:1", "replicas": 2}) in (201, 409), log)
        path = f"/apis/{group}/v1/namespaces/{namespace}/websites/blog"

        def seen() -> bool:
            status = client.get(path).json().get("status", {})
            return [each["message"] for each in status.get("conditions", ())] == ["2"]

        await until(seen, log)
        # In whatever version, and with the finalizer's controller.
        about = asked(at, "why", "website", "blog", "-n", namespace)
        assert about.startswith(f"{group}.v2.Website {namespace}/blog\n")
        assert f"Its finalizer {group}/dns is removed by controller sites/keep." in about


@pytest.mark.wide
def test_a_diff_of_crds_says_what_would_be_lost(tmp_path: Path) -> None:
    (tmp_path / "websites.py").write_text(program_of("docs/guides/kubernetes.md"))
    (crd,) = printed(tmp_path, "crd", "websites:app")
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["host"] = {"type": "string"}
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(crd))
    command = [sys.executable, "-m", "headway.cli", "schema", "diff", "websites:app", "--kubernetes", "old.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "spec.host" in done.stdout) == (7, True), done.stdout + done.stderr
    present = yaml.safe_dump({"kind": "List", "items": printed(tmp_path, "crd", "websites:app")})
    done = subprocess.run(
        [*command[:-1], "-"],
        input=present,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "no differences\n"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("old", "error"),
    [
        ("{kind: Role, metadata: {name: a}}", "has no CustomResourceDefinition"),
        ("{kind: Role}\n---\nnot an object", "old.yaml, document 2: 'not an object' must be an object with a kind"),
        ("{kind: List, items: [{kind: Role}, 7]}", "old.yaml, document 1, items[1]: 7 must be an object with a kind"),
        ("{kind: CustomResourceDefinition}", "old.yaml, document 1: metadata.name is required"),
    ],
)
def test_a_file_without_crds_is_no_answer(tmp_path: Path, old: str, error: str) -> None:
    (tmp_path / "websites.py").write_text(program_of("docs/guides/kubernetes.md"))
    (tmp_path / "old.yaml").write_text(old)
    command = [sys.executable, "-m", "headway.cli", "schema", "diff", "websites:app", "--kubernetes", "old.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, error in done.stderr) == (2, True), done.stderr

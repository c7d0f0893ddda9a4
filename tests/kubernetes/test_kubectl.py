"""What a person does with stock kubectl on the objects of an operator: the one of the example, run by its command."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pytest

from examples.kubernetes.cluster import Process
from tests.examples.fleet_kit import ROOT
from tests.helpers.etcd_server import free_ports
from tests.helpers.kube_server import KUBECTL, KubeServer, need_kube, running_kube
from tests.kubernetes.connected import kubeconfig

APP = "examples.kubernetes.websites:app"
SITE = ROOT / "examples/kubernetes/websites.yaml"
SOON = 30


class Person:
    """A person with kubectl, in one namespace.

    Attributes:
        dns: the address of the provider of DNS.
    """

    def __init__(self, folder: Path, config: Path, dns: str) -> None:
        self._folder = folder
        self._config = config
        self.dns = dns

    def run(self, command: str, input: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of kubectl."""
        arguments = [need_kube(KUBECTL), "--kubeconfig", self._config, f"--cache-dir={self._folder / 'cache'}"]
        return subprocess.run(
            [*map(str, arguments), *shlex.split(command)],
            input=input,
            cwd=ROOT,
            env={**os.environ, "HOME": str(self._folder), **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def does(self, command: str, input: str = "", **environment: str) -> str:
        """Run a command, which must succeed without a warning, and return what it prints."""
        done = self.run(command, input, **environment)
        assert (done.returncode, done.stderr) == (0, ""), f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def gets(self, what: str) -> dict[str, Any]:
        """Return an object."""
        found: dict[str, Any] = json.loads(self.does(f"get {what} -o json --show-managed-fields"))
        return found

    def waits(self, what: str, condition: str) -> None:
        """Wait for what `kubectl wait` waits for."""
        self.does(f"wait --for={condition} {what} --timeout={SOON}s")

    def sees(self, command: str, *words: str) -> list[list[str]]:
        """Repeat a command until it prints a line with these words, and return the parts of such lines."""
        until = monotonic() + SOON
        while monotonic() < until:
            lines = self.does(command).splitlines()
            if found := [line.split() for line in lines if all(word in line for word in words)]:
                return found
            sleep(0.05)
        raise AssertionError(f"{command} does not print {words}: {lines}")

    def makes(self, name: str, **spec: object) -> None:
        """Apply a Website, and wait until its operator has seen it."""
        body = {"apiVersion": "example.org/v1", "kind": "Website", "metadata": {"name": name}}
        self.does("apply -f -", json.dumps({**body, "spec": {"image": "web:1", **spec}}))
        self.waits(f"website/{name}", "condition=Ready=false")

    def is_ready(self, name: str, replicas: int) -> None:
        """Say of a Deployment that so many replicas are ready, as its own controller does."""
        patch = json.dumps({"status": {"replicas": replicas, "readyReplicas": replicas}})
        self.does(f"patch deployment {name} --subresource=status --type=merge -p {shlex.quote(patch)}")

    def records(self) -> dict[str, str]:
        """Return what is at the provider of DNS."""
        records: dict[str, str] = httpx.get(f"{self.dns}/records").json()
        return records


def printed(document: str) -> str:
    """Return a document that a command prints."""
    command = [sys.executable, "-m", "headway.cli", "kubernetes", document, APP]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture(scope="module")
def own_kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """An API server of these tests alone: other tests have a custom resource of the same name."""
    need_kube(KUBECTL)
    with running_kube(tmp_path_factory.mktemp("kube")) as server:
        yield server


@pytest.fixture(scope="module")
def person(own_kube: KubeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """A person beside the running operator, whose documents the person has applied."""
    folder = tmp_path_factory.mktemp("person")
    (port,) = free_ports(1)
    person = Person(folder, kubeconfig(own_kube, "default", folder), f"http://127.0.0.1:{port}")
    person.does("apply -f -", printed("crd"))
    person.does("apply --server-side -f -", printed("rbac"))
    person.waits("crd/websites.example.org", "condition=Established")
    token = person.does("create token websites").strip()
    config = kubeconfig(own_kube, "default", folder, token)
    provider = Process(folder, "dns", sys.executable, "-m", "examples.kubernetes.dns", port)
    command = (sys.executable, "-m", "headway.cli", "run", APP, "--kubernetes", "--kubeconfig", config)
    operator = Process(folder, "operator", *command, env={"DNS_URL": person.dns})
    try:
        provider.start()
        operator.start()
        yield person
        operator.check()
    finally:
        operator.close()
        provider.close()


def test_documents_are_the_same_again(person: Person) -> None:
    assert person.does("apply -f -", printed("crd")).endswith("unchanged\n")
    said = person.does("explain website.spec.replicas")
    assert "<integer>" in said
    assert "how many of them run" in said


def test_apply_wait_get_and_describe(person: Person) -> None:
    person.does(f"apply -f {SITE}")
    person.waits("website/blog", "condition=Ready=false")
    columns, row = (line.split() for line in person.does("get site blog").splitlines())
    assert columns == ["NAME", "HOST", "WANTED", "READY", "STATUS", "AGE"]
    assert row[:5] == ["blog", "blog.example", "2", "0", "Progressing"]
    person.is_ready("blog", 2)
    person.waits("website/blog", "condition=Ready")
    person.waits("website/blog", "jsonpath={.status.ready}=2")
    assert person.does("get website blog --no-headers").split()[3:5] == ["2", "Available"]
    assert "Message:               2 of 2 replicas are ready" in person.does("describe website blog")
    # An Event is recorded soon, and not before the status.
    (event,) = person.sees("describe website blog", "websites/websites", "2 of 2 replicas are ready")
    assert (event[0], event[1], event[3]) == ("Normal", "Scaled", "websites/websites")
    assert "2 of 2 replicas are ready" in person.does("events --for website/blog")
    for ready in (1, 2):
        person.is_ready("blog", ready)
        person.waits("website/blog", f"jsonpath={{.status.ready}}={ready}")
    person.sees("events --for website/blog", "(x2 over", "2 of 2 replicas are ready")
    # What a person applies again is as it was: the operator writes no field of it.
    assert person.does(f"apply -f {SITE}") == "website.example.org/blog unchanged\n"
    assert person.does(f"diff -f {SITE}") == ""


def test_what_the_guide_shows(person: Person, own_kube: KubeServer, tmp_path: Path) -> None:
    """Each command prints what the guide says, except for the ages."""
    text = (ROOT / "docs/guides/kubernetes-operator.md").read_text().partition("<!-- as kubectl prints it -->")[2]
    shown = re.findall(r"^\$ kubectl (.*)\n((?:[^$`].*\n)+)", text.partition("```\n\n")[0], re.MULTILINE)
    assert len(shown) == 5
    # Events of an earlier Website of this name would be shown, too.
    namespace = own_kube.new_namespace()
    other = Person(tmp_path, kubeconfig(own_kube, namespace, tmp_path), person.dns)
    for command, output in shown:
        if command.startswith("wait"):
            other.waits("website/blog", "condition=Ready=false")
            other.is_ready("blog", 2)
        if command.startswith("events"):
            other.sees(command, "2 of 2")
        assert plain(other.does(command).replace(namespace, "default")) == plain(output)


def plain(text: str) -> list[list[str]]:
    return [re.sub(r"\b\d+s\b", "AGE", line).split() for line in text.splitlines()]


def test_a_condition_waits_for_the_newest_spec(person: Person) -> None:
    """After an edit, `kubectl wait` does not take the condition of the old spec for that of the new one."""
    person.makes("newest", replicas=1)
    person.is_ready("newest", 1)
    person.waits("website/newest", "condition=Ready")
    person.does("scale website newest --replicas=3")
    done = person.run("wait --for=condition=Ready website/newest --timeout=1s")
    assert "timed out waiting" in done.stderr, done.stdout
    person.is_ready("newest", 3)
    person.waits("website/newest", "condition=Ready")


def test_edit(person: Person, tmp_path: Path) -> None:
    person.makes("edited", host="old.example", pages={"index.html": "Welcome"})
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/old.example/new.example/ "$1"\n')
    editor.chmod(0o700)
    assert person.does("edit website edited", KUBE_EDITOR=str(editor)) == "website.example.org/edited edited\n"
    person.waits("ingress/edited", "jsonpath={.spec.rules[0].host}=new.example")
    person.waits("website/edited", "jsonpath={.status.conditions[0].observedGeneration}=2")
    assert person.records()["default/edited"] == "new.example"


def test_what_the_schema_refuses(person: Person) -> None:
    body = {"apiVersion": "example.org/v1", "kind": "Website", "metadata": {"name": "wrong"}}
    done = person.run(
        "apply -f -", json.dumps({**body, "spec": {"image": "web:1", "replicas": 0, "host": "a.example"}})
    )
    assert "spec: Invalid value: a site with a host needs at least 1 replica" in done.stderr
    done = person.run("apply -f -", json.dumps({**body, "spec": {"image": "web:1", "replica": 1}}))
    assert 'unknown field "spec.replica"' in done.stderr


def test_server_side_apply_of_a_site_and_of_what_the_operator_owns(person: Person) -> None:
    site = {"apiVersion": "example.org/v1", "kind": "Website", "metadata": {"name": "applied"}}
    for replicas in (1, 2):
        text = json.dumps({**site, "spec": {"image": "web:1", "replicas": replicas}})
        assert person.does("apply --server-side -f -", text) == "website.example.org/applied serverside-applied\n"
        person.waits("deployment/applied", "create")
        person.waits("deployment/applied", f"jsonpath={{.spec.replicas}}={replicas}")
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "applied"}}
    done = person.run("apply --server-side -f -", json.dumps({**deployment, "spec": {"replicas": 7}}))
    assert 'conflict with "websites/websites": .spec.replicas' in done.stderr
    # By force, it is the person's for a moment.
    person.does("apply --server-side --force-conflicts -f -", json.dumps({**deployment, "spec": {"replicas": 7}}))
    person.waits("deployment/applied", "jsonpath={.spec.replicas}=2")


def test_scale(person: Person) -> None:
    person.makes("scaled", replicas=1)
    assert (
        person.does("scale website scaled --current-replicas=1 --replicas=4") == "website.example.org/scaled scaled\n"
    )
    person.waits("deployment/scaled", "jsonpath={.spec.replicas}=4")
    person.is_ready("scaled", 4)
    person.waits("website/scaled", "condition=Ready")
    scale = person.gets("website scaled --subresource=scale")
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (4, 4)
    done = person.run("scale website scaled --replicas=11")
    assert "spec.replicas in body should be less than or equal to 10" in done.stderr


def test_patch_annotate_and_label(person: Person) -> None:
    """The operator leaves what others have written, also on what it owns."""
    person.makes("patched", replicas=1)
    person.does("annotate website patched example.org/note=mine")
    person.does("label website patched team=web")
    person.does("annotate deployment patched example.org/note=mine")
    person.does("rollout restart deployment/patched")
    person.does('patch website patched --type=merge -p \'{"spec": {"image": "web:2"}}\'')
    person.waits("deployment/patched", "jsonpath={.spec.template.spec.containers[0].image}=web:2")
    person.waits("website/patched", "jsonpath={.status.conditions[0].observedGeneration}=2")
    site, deployment = person.gets("website patched"), person.gets("deployment patched")
    assert site["metadata"]["annotations"]["example.org/note"] == "mine"
    assert site["metadata"]["labels"] == {"team": "web"}
    assert deployment["metadata"]["annotations"]["example.org/note"] == "mine"
    assert "kubectl.kubernetes.io/restartedAt" in deployment["spec"]["template"]["metadata"]["annotations"]
    managers = {each["manager"] for each in deployment["metadata"]["managedFields"]}
    assert "websites/websites" in managers


def test_delete_waits_for_the_finalizer(person: Person) -> None:
    person.makes("deleted", host="deleted.example")
    assert person.records()["default/deleted"] == "deleted.example"
    said = person.does(f"delete website deleted --timeout={SOON}s")
    assert said == 'website.example.org "deleted" deleted from default namespace\n'
    assert "default/deleted" not in person.records()
    person.waits("website/deleted", "delete")

"""The API server that all operators use in turn: its audit log, its Websites, and clones of them in etcd."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from benchmarks.kube_peers._operators import ROOT
from tests.helpers.kube_server import BOB, KubeServer, running_kube
from tests.kubernetes.connected import kubeconfig

NAMESPACE = "web"
SITES = f"/apis/example.org/v1/namespaces/{NAMESPACE}/websites"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
_OWNED = ("deployments", "services/specs", "services/endpoints", "configmaps", "ingress")
_PREFIXES = (f"example.org/websites/{NAMESPACE}/", *(f"{each}/{NAMESPACE}/" for each in _OWNED), "leases/default/")
# Only what the operators ask, who are the user BOB, and each call once.
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [BOB]}, {"level": "None"}],
}
# By which processes of kopf know each other. Its documentation has it as YAML to apply.
_PEERING = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusterkopfpeerings.kopf.dev"},
    "spec": {
        "group": "kopf.dev",
        "scope": "Cluster",
        "names": {"kind": "ClusterKopfPeering", "plural": "clusterkopfpeerings"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
_PEERINGS = "/apis/kopf.dev/v1/clusterkopfpeerings"
_MERGE = {"Content-Type": "application/merge-patch+json"}
_QUIET = 2.0
_SERVED = 300.0


class Call(NamedTuple):
    """A call of an operator: its verb, its resource with a subresource, the status, and when it was made."""

    verb: str
    resource: str
    status: int
    at: str

    @property
    def is_write(self) -> bool:
        """True for a call that may change an object."""
        return self.verb in ("create", "update", "patch", "delete", "deletecollection")


class Cluster:
    """The API server, and what the driver asks of it."""

    def __init__(self, kube: KubeServer, folder: Path, client: httpx.Client, audit: Path) -> None:
        self.kube, self.folder, self.http, self._audit = kube, folder, client, audit
        self.config = kubeconfig(kube, "default", folder, BOB)

    def create(self, name: str, **spec: Any) -> None:
        """Create a Website."""
        body = {"apiVersion": "example.org/v1", "kind": "Website", "metadata": {"name": name}}
        self.asked("POST", SITES, {**body, "spec": {"image": "web:1", "replicas": 1, **spec}})

    def change(self, name: str, **spec: Any) -> None:
        """Change fields of a Website."""
        self.asked("PATCH", f"{SITES}/{name}", {"spec": spec})

    def get(self, path: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None if there is none."""
        answer = self.http.get(f"{path}/{name}")
        if answer.status_code == 404:
            return None
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def replicas(self, name: str) -> int | None:
        """Return the replicas of a Website's Deployment, or None if there is none."""
        found = self.get(DEPLOYMENTS, name)
        return None if found is None else int(found["spec"]["replicas"])

    def all_replicas(self) -> dict[str, int]:
        """Return the replicas of each Deployment."""
        items = self.http.get(DEPLOYMENTS).raise_for_status().json()["items"]
        return {each["metadata"]["name"]: int(each["spec"]["replicas"]) for each in items}

    def count(self) -> int:
        """Return the number of Deployments."""
        found = self.http.get(DEPLOYMENTS, params={"limit": "1"}).raise_for_status().json()
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))

    def asked(self, method: str, path: str, body: Any = None) -> Any:
        """Make a call, also while the server has just started, and return the answer."""
        answer = self.http.request(method, path, json=body, headers=_MERGE if method == "PATCH" else None)
        return answer.raise_for_status().json()

    def calls(self, since: int = 0) -> list[Call]:
        """Return the calls of operators from this byte of the audit log on, without those of Leases."""
        with self._audit.open("rb") as log:
            log.seek(since)
            return list(read_audit(log.read()))

    def mark(self) -> int:
        """Return the end of the audit log."""
        return self._audit.stat().st_size

    def wait_quiet(self, limit: float = 600.0, quiet: float = _QUIET) -> None:
        """Wait until no operator has made a call for some seconds. Raise TimeoutError after the limit."""
        deadline, mark, last = time.monotonic() + limit, self.mark(), time.monotonic()
        while time.monotonic() - last < quiet:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the operator was never quiet for {quiet} s within {limit:.0f} s")
            time.sleep(0.1)
            if (now := self.mark()) != mark:
                if any(each.verb != "watch" for each in self.calls(mark)):
                    last = time.monotonic()
                mark = now

    def wait(self, what: str, done: Callable[[], bool], limit: float = 60.0) -> float:
        """Wait until something is so, and return after how many seconds. Raise TimeoutError after the limit."""
        began = time.monotonic()
        while True:
            with suppress(httpx.TransportError):
                if done():
                    return time.monotonic() - began
            if time.monotonic() - began > limit:
                raise TimeoutError(f"{what}: not within {limit:.0f} s")
            time.sleep(0.05)

    def wipe(self) -> None:
        """Delete all Websites, what they own, and the leases of operators, in etcd. No operator may run."""
        for prefix in _PREFIXES:
            first, end = f"/registry/{prefix}", f"/registry/{prefix[:-1]}0"
            self._etcd("kv/deleterange", {"key": _coded(first.encode()), "range_end": _coded(end.encode())})
        self.wait("the Deployments are deleted", lambda: self.count() == 0, _SERVED)

    def clone(self, name: str, count: int) -> None:
        """Make more Websites, as an operator has left this one with all that it owns, by writing them into etcd.

        Args:
            name: the Website's name, which ends with five digits.
            count: how many there are then.
        """
        patterns: list[tuple[bytes, bytes]] = []
        for prefix in _PREFIXES[:-1]:
            key = f"/registry/{prefix}{name}".encode()
            for pair in self._etcd("kv/range", {"key": _coded(key)}).get("kvs", ()):
                patterns.append((key, base64.b64decode(pair["value"])))
        puts = []
        for number in range(1, count):
            uids: dict[bytes, bytes] = {}
            for key, value in patterns:
                copied = copy_of(value, name.encode(), f"{name[:-5]}{number:05}".encode(), uids)
                new_key = key.replace(name.encode(), f"{name[:-5]}{number:05}".encode())
                puts.append({"requestPut": {"key": _coded(new_key), "value": _coded(copied)}})
        for at in range(0, len(puts), 100):
            self._etcd("kv/txn", {"success": puts[at : at + 100]})
        self.wait("the clones are served", lambda: self.count() == count, _SERVED)

    def _etcd(self, method: str, body: Any) -> Any:
        return self.kube._ask_etcd(method, body)


_LEASES = ("leases", "clusterkopfpeerings")


def read_audit(log: bytes) -> Iterator[Call]:
    """Yield the calls of an audit log that were not for Leases, or what kopf has instead."""
    for line in log.splitlines():
        with suppress(json.JSONDecodeError):  # its last line may not be whole yet
            event = json.loads(line)
            of = event.get("objectRef", {})
            began = event["stage"] == "ResponseStarted"
            if of.get("resource") in _LEASES or began != (event["verb"] == "watch"):
                continue
            resource = "/".join(filter(None, (of.get("resource", "(server)"), of.get("subresource"))))
            yield Call(event["verb"], resource, event["responseStatus"]["code"], event["requestReceivedTimestamp"])


def copy_of(value: bytes, name: bytes, new_name: bytes, uids: dict[bytes, bytes]) -> bytes:
    """Return a stored object under another name of the same length, with other uids. The same uid becomes the same."""
    value = value.replace(name, new_name)
    return re.sub(
        rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        lambda found: uids.setdefault(found[0], str(uuid.uuid4()).encode()),
        value,
    )


def by_verb(calls: Sequence[Call]) -> str:
    """Return the number of calls, and of each verb."""
    counted = Counter(each.verb for each in calls)
    return f"{len(calls)}: " + ", ".join(f"{number} {verb}" for verb, number in counted.most_common()) if calls else "0"


class Seen:
    """When the driver's own watch saw the replicas of each Deployment."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._at: dict[tuple[str, int], float] = {}
        self._changed = threading.Condition()
        self._ended = False

    def __enter__(self) -> Seen:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True

    def _read(self) -> None:
        # It lasts until the API server ends.
        with (
            suppress(httpx.HTTPError),
            self._cluster.kube.client() as client,
            client.stream("GET", DEPLOYMENTS, params={"watch": "true"}, timeout=None) as response,
        ):
            for line in response.iter_lines():
                if self._ended:
                    return
                object = json.loads(line)["object"]
                with self._changed:
                    self._at.setdefault((object["metadata"]["name"], object["spec"]["replicas"]), time.monotonic())
                    self._changed.notify_all()

    def wait(self, name: str, replicas: int, limit: float = 60.0) -> float:
        """Return when a Deployment had so many replicas for the first time. Raise TimeoutError after the limit."""
        with self._changed:
            if not self._changed.wait_for(lambda: (name, replicas) in self._at, limit):
                raise TimeoutError(f"{name} has not had {replicas} replicas within {limit:.0f} s")
            return self._at[name, replicas]


def _coded(text: bytes) -> str:
    return base64.b64encode(text).decode()


@contextmanager
def open_cluster(folder: Path) -> Iterator[Cluster]:
    """Run an API server with the type Website, until the block ends."""
    policy, audit = folder / "policy.yaml", folder / "audit.log"
    policy.write_text(yaml.safe_dump(_POLICY))
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={audit}", "--service-cluster-ip-range=10.0.0.0/16"]
    with running_kube(folder / "kube", flags) as kube, kube.client() as client:
        cluster = Cluster(kube, folder, client, audit)
        cluster.asked("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": BOB}
        bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        cluster.asked("POST", bindings, {"metadata": {"name": BOB}, "roleRef": role, "subjects": [subject]})
        printing = [sys.executable, "-m", "headway.cli", "kubernetes", "crd", "benchmarks.kube_peers.websites:app"]
        printed = subprocess.run(printing, check=True, capture_output=True, cwd=ROOT).stdout
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        cluster.asked("POST", crds, yaml.safe_load(printed))
        cluster.asked("POST", crds, _PEERING)
        for path in (SITES, _PEERINGS):
            cluster.wait("the type is served", lambda: client.get(path).status_code == 200)  # noqa: B023  # waits at once
        peering = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "websites"}}
        cluster.asked("POST", _PEERINGS, peering)
        yield cluster

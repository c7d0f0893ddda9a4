"""Clients and engines on a real API server, and what the tests make there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import yaml

import headway
from headway import field, kubernetes
from headway.client import Client
from headway.engine import Engine
from headway.kubernetes._http import ApiServer
from headway.kubernetes._kubeconfig import load_config
from headway.kubernetes._open import open_channel
from headway.rpc import Channel
from tests.helpers.kube_server import ADMIN, KubeServer

GROUP, PLURAL = "tests.headway.dev", "websites"


@headway.message
class Spec:
    image: str = field(1)
    replicas: int = field(2)


@headway.message
class State:
    ready: int = field(1)


@headway.message(name="tests.headway.dev.Website")
class Website:
    spec: Spec = field(1)
    status: State = field(2)


class Program:
    """An app with types of a cluster."""

    def __init__(self) -> None:
        self.app = headway.App("sites")
        self.website = kubernetes.resource(self.app, GROUP, "v1", "Website", Website)
        self.config_map = kubernetes.builtin(self.app, "v1", "ConfigMap")
        self.deployment = kubernetes.builtin(self.app, "apps/v1", "Deployment")


CONDITION = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        **{name: {"type": "string"} for name in ("type", "status", "reason", "message")},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "format": "int64"},
    },
}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"image": {"type": "string"}, "replicas": {"type": "integer"}, "other": {"type": "string"}},
        },
        "status": {
            "type": "object",
            "properties": {
                "ready": {"type": "integer"},
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": CONDITION,
                },
            },
        },
    },
}
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": "Website", "plural": PLURAL, "singular": "website"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.ready"},
                },
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}


def kubeconfig(kube: KubeServer, namespace: str, folder: Path, token: str = ADMIN) -> Path:
    """Write the kubeconfig of a user."""
    file = folder / f"kubeconfig-{token[:8]}-{namespace}"
    cluster = {"server": kube.url, "certificate-authority": str(kube.authority_file)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    file.write_text(yaml.safe_dump(content))
    return file


@asynccontextmanager
async def connected(
    kube: KubeServer, program: Program, namespace: str, folder: Path, token: str = ADMIN
) -> AsyncIterator[tuple[Client, ApiServer, Channel]]:
    """Open a client of the API server, without controllers."""
    config = load_config(kubeconfig(kube, namespace, folder, token))
    async with ApiServer(config) as server, open_channel(server, program.app.registry, namespace) as channel:
        yield Client(channel, program.app.registry), server, channel


def deployment(replicas: int = 1, image: str = "web:1", **spec: Any) -> dict[str, Any]:
    """Return the payload of a Deployment."""
    labels = {"app": "web"}
    container = {"name": "web", "image": image}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {"spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec}}


def install_crd(kube: KubeServer) -> None:
    """Install the custom resource of the tests, and wait until it is served."""
    with kube.client() as client:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        made = client.post(path, content=json.dumps(CRD), headers={"Content-Type": "application/json"})
        assert made.status_code in (201, 409), made.text


async def wait_served(server: ApiServer) -> None:
    """Wait until the custom resource of the tests is served."""
    with trio.fail_after(30):
        while True:
            try:
                await server.call("GET", f"/apis/{GROUP}/v1/{PLURAL}", params={"limit": "1"})
            except headway.HeadwayError:
                await trio.sleep(0.1)
            else:
                return


@asynccontextmanager
async def running(
    kube: KubeServer, program: Program, namespace: str, folder: Path, **options: Any
) -> AsyncIterator[Engine]:
    """Run the controllers of a program."""
    file = kubeconfig(kube, namespace, folder)
    async with kubernetes.open_cluster(program.app, kubeconfig=file, **options) as engine:
        yield engine

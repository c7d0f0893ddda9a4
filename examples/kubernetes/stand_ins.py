"""What a cluster's own controllers would do, as far as the operator needs it. A real cluster has these controllers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx
import trio

from examples.kubernetes.cluster import Cluster

OWNED = [
    "apis/apps/v1/{}deployments",
    "api/v1/{}services",
    "api/v1/{}configmaps",
    "apis/networking.k8s.io/v1/{}ingresses",
]
DEPLOYMENTS = OWNED[0]
WEBSITES = "apis/example.org/v1/{}websites"
_LOOK = 0.1


async def items_of(cluster: Cluster, path: str) -> list[dict[str, Any]]:
    """Return all objects of a type."""
    items: list[dict[str, Any]] = (await cluster.call("GET", path.format("")))["items"]
    return items


def path_of(path: str, object: dict[str, Any]) -> str:
    """Return the path of an object."""
    meta = object["metadata"]
    return "/".join([path.format("namespaces/" + meta["namespace"] + "/"), meta["name"]])


async def run_deployments(cluster: Cluster) -> None:
    """Say of each Deployment that all its replicas are ready."""
    for deployment in await items_of(cluster, DEPLOYMENTS):
        replicas, status = deployment["spec"]["replicas"], deployment.get("status", {})
        if status.get("readyReplicas", 0) != replicas:
            body = {"status": {"replicas": replicas, "readyReplicas": replicas}}
            await cluster.call("PATCH", f"{path_of(DEPLOYMENTS, deployment)}/status", body)


async def collect_garbage(cluster: Cluster) -> None:
    """Delete what belongs to a Website that is gone."""
    owned = [(path, each) for path in OWNED for each in await items_of(cluster, path)]
    # The Websites are read last: one that is not there now is gone for good.
    alive = {each["metadata"]["uid"] for each in await items_of(cluster, WEBSITES)}
    for path, each in owned:
        owners = {owner["uid"] for owner in each["metadata"].get("ownerReferences", ()) if owner["kind"] == "Website"}
        if owners and not owners & alive:
            await cluster.call("DELETE", path_of(path, each), {"preconditions": {"uid": each["metadata"]["uid"]}})


async def run_stand_ins(cluster: Cluster) -> None:
    """Do both, again and again, also over restarts of the API server."""
    while True:
        for stand_in in (run_deployments, collect_garbage):
            # The API server is away, or another writer was first.
            with suppress(httpx.HTTPError):
                await stand_in(cluster)
        await trio.sleep(_LOOK)

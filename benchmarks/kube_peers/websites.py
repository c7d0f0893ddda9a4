"""The operator of `make bench-kube-peers` by Headway: a Website becomes a Deployment, a Service, a ConfigMap and, if it
has a host, an Ingress.
"""

import hashlib
from typing import Any

import headway
from headway import field, kubernetes


@headway.message
class Spec:
    """What a Website should be."""

    image: str = field(1)
    replicas: int | None = field(2, kind="int32")
    pages: dict[str, str] = field(3)
    host: str = field(4)


@headway.message
class Status:
    """What has become of it."""

    ready: int | None = field(1, kind="int32")


@headway.message
class Website:
    """A website of static pages."""

    spec: Spec = field(1)
    status: Status = field(2)


app = headway.App("websites")
HINTS = kubernetes.Hints(required=["spec.image"], defaults={"spec.replicas": 1})
WEBSITE = kubernetes.resource(app, "example.org", "v1", "Website", Website, schema=HINTS)
DEPLOYMENT = kubernetes.builtin(app, "apps/v1", "Deployment")
SERVICE = kubernetes.builtin(app, "v1", "Service")
CONFIG_MAP = kubernetes.builtin(app, "v1", "ConfigMap")
INGRESS = kubernetes.builtin(app, "networking.k8s.io/v1", "Ingress")
OWNED = [CONFIG_MAP, DEPLOYMENT, SERVICE, INGRESS]


@app.controller(
    manages=WEBSITE,
    watches=[headway.watch(each, headway.mappers.owner()) for each in OWNED],
    writes=[WEBSITE, *OWNED],
    concurrency=4,
)
async def websites(rt: headway.Runtime, request: headway.Request[Website]) -> None:
    """Bring one Website to what it asks."""
    site = rt.resource(request)
    if site is None or site.is_deleting:
        return
    bodies = bodies_of(site)
    for type in OWNED:
        async with rt.outputs(type, owner=site) as wanted:
            if type in bodies:
                data = kubernetes.manifest(bodies[type])
                await wanted.apply(site.name, data, metadata=labels_of(site), force=True)
    deployment = rt.cache.get(DEPLOYMENT, DEPLOYMENT.id(site.name, namespace=site.id.namespace))
    ready = 0 if deployment is None else deployment.data.get("status", {}).get("readyReplicas", 0)
    if ready != (site.data.status.ready or 0):
        site.data.status.ready = ready
        site = await kubernetes.update_status(rt, site)
    wanted_replicas = site.data.spec.replicas or 0
    said, is_ready = f"{ready} of {wanted_replicas} replicas are ready", ready >= wanted_replicas
    async with rt.conditions(site) as conditions:
        conditions.set("Ready", is_ready, said, reason="Available" if is_ready else "Progressing")


def bodies_of(site: headway.Resource[Website]) -> dict[Any, dict[str, Any]]:
    """Return what a site owns, by type."""
    spec, labels = site.data.spec, labels_of(site)
    container = {
        "name": "web",
        "image": spec.image,
        "ports": [{"containerPort": 8080}],
        "volumeMounts": [{"name": "pages", "mountPath": "/srv"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "pages", "configMap": {"name": site.name}}]}
    # Other pages make other Pods.
    pages = hashlib.sha256(repr(sorted(spec.pages.items())).encode()).hexdigest()[:16]
    template = {"metadata": {"labels": labels, "annotations": {"example.org/pages": pages}}, "spec": pod}
    bodies: dict[Any, dict[str, Any]] = {
        CONFIG_MAP: {"data": spec.pages},
        DEPLOYMENT: {"spec": {"replicas": spec.replicas, "selector": {"matchLabels": labels}, "template": template}},
        SERVICE: {"spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}},
    }
    if spec.host:
        backend = {"service": {"name": site.name, "port": {"name": "http"}}}
        path = {"path": "/", "pathType": "Prefix", "backend": backend}
        bodies[INGRESS] = {"spec": {"rules": [{"host": spec.host, "http": {"paths": [path]}}]}}
    return bodies


def labels_of(site: headway.Resource[Website]) -> dict[str, str]:
    """Return the labels of all that a site owns."""
    return {"example.org/website": site.name}

"""The operator: a Website becomes a Deployment, a Service, a ConfigMap, an Ingress and a record in DNS.

Run it with `headway run examples.kubernetes.websites:app --kubernetes`.
"""

import hashlib
import os
from typing import Any

import headway
from examples.kubernetes.dns import Dns, HttpDns
from headway import field, kubernetes

FINALIZER = "example.org/dns"


@headway.message
class Spec:
    """What a Website should be.

    Attributes:
        image: the web server, which serves the pages in /srv.
        replicas: how many of them run.
        pages: the text of each file.
        host: the name of the site in the world. Without one, only the cluster can reach it.
    """

    image: str = field(1)
    replicas: int | None = field(2, kind="int32")
    pages: dict[str, str] = field(3)
    host: str = field(4)


@headway.message
class Status:
    """What has become of it.

    Attributes:
        ready: how many replicas are ready.
    """

    ready: int | None = field(1, kind="int32")


@headway.message
class Website:
    """A website of static pages."""

    spec: Spec = field(1)
    status: Status = field(2)


types = headway.App("websites")
WEBSITE = kubernetes.resource(
    types,
    "example.org",
    "v1",
    "Website",
    Website,
    short_names=["site"],
    columns={
        "HOST": ".spec.host",
        "WANTED": ".spec.replicas",
        "READY": ".status.ready",
        "STATUS": '.status.conditions[?(@.type=="Ready")].reason',
    },
    scale=kubernetes.Scale(".spec.replicas", ".status.ready"),
    schema=kubernetes.Hints(
        required=["spec.image"],
        defaults={"spec.replicas": 1},
        limits={"spec.replicas": {"minimum": 0, "maximum": 10}},
        rules={"spec": {"!has(self.host) || self.replicas > 0": "a site with a host needs at least 1 replica"}},
    ),
)
DEPLOYMENT = kubernetes.builtin(types, "apps/v1", "Deployment")
SERVICE = kubernetes.builtin(types, "v1", "Service")
CONFIG_MAP = kubernetes.builtin(types, "v1", "ConfigMap")
INGRESS = kubernetes.builtin(types, "networking.k8s.io/v1", "Ingress")
OWNED = [DEPLOYMENT, SERVICE, CONFIG_MAP, INGRESS]


def operator(dns: Dns) -> headway.App:
    """Return the operator, which calls this provider of DNS."""
    app = headway.App("websites")
    app.registry = types.registry

    @app.controller(
        manages=WEBSITE,
        watches=[headway.watch(each, headway.mappers.owner()) for each in OWNED],
        writes=[WEBSITE, *OWNED],
        concurrency=4,
    )
    async def websites(rt: headway.Runtime, request: headway.Request[Website]) -> None:
        site = rt.resource(request)
        if site is None:
            return
        async with rt.conditions(site, failure="Ready") as conditions, rt.finalizer(site, FINALIZER) as guarded:
            site = guarded.resource
            if guarded.alive:
                await apply_objects(rt, site)
                if site.data.spec.host:
                    await dns.put(*record_of(rt, site), site.data.spec.host)
                else:
                    await dns.remove(*record_of(rt, site))
                ready, wanted = ready_replicas(rt, site), site.data.spec.replicas or 0
                said = f"{ready} of {wanted} replicas are ready"
                conditions.set("Ready", ready >= wanted, said, reason="Available" if ready >= wanted else "Progressing")
                if ready != site.data.status.ready:
                    site.data.status.ready = ready
                    await kubernetes.update_status(rt, site)
                    rt.event(site, "Scaled", said)
            elif guarded.cleaning_up:
                await dns.remove(*record_of(rt, site))

    return app


async def apply_objects(rt: headway.Runtime, site: headway.Resource[Website]) -> None:
    """Let a site own the objects that it should have, and no others."""
    for type in OWNED:
        async with rt.outputs(type, owner=site) as outputs:
            body = body_of(type, site)
            if body is not None:
                await outputs.apply(site.name, kubernetes.manifest(body), metadata=labels_of(site), force=True)


def body_of(type: headway.ResourceType[Any], site: headway.Resource[Website]) -> dict[str, Any] | None:
    """Return what a site's object of this type should be, or None if it should have none."""
    spec, labels = site.data.spec, labels_of(site)
    if type is CONFIG_MAP:
        return {"data": dict(spec.pages)}
    if type is SERVICE:
        return {"spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}
    if type is INGRESS:
        backend = {"service": {"name": site.name, "port": {"name": "http"}}}
        path = {"path": "/", "pathType": "Prefix", "backend": backend}
        return {"spec": {"rules": [{"host": spec.host, "http": {"paths": [path]}}]}} if spec.host else None
    container = {
        "name": "web",
        "image": spec.image,
        "ports": [{"containerPort": 8080}],
        "volumeMounts": [{"name": "pages", "mountPath": "/srv"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "pages", "configMap": {"name": site.name}}]}
    # Other pages make other Pods, because a web server may read its pages only once.
    pages = hashlib.sha256(repr(sorted(spec.pages.items())).encode()).hexdigest()[:16]
    template = {"metadata": {"labels": labels, "annotations": {"example.org/pages": pages}}, "spec": pod}
    return {"spec": {"replicas": spec.replicas, "selector": {"matchLabels": labels}, "template": template}}


def labels_of(site: headway.Resource[Website]) -> dict[str, str]:
    """Return the labels of all that a site owns, by which its Service finds its Pods."""
    return {"example.org/website": site.name}


def ready_replicas(rt: headway.Runtime, site: headway.Resource[Website]) -> int:
    """Return how many of a site's replicas are ready, as its Deployment says."""
    deployment = rt.cache.get(DEPLOYMENT, DEPLOYMENT.id(site.name, namespace=site.id.namespace))
    return 0 if deployment is None else deployment.data.get("status", {}).get("readyReplicas", 0)


def record_of(rt: headway.Runtime, site: headway.Resource[Website]) -> tuple[str, tuple[int, int]]:
    """Return the key of a site's record, and the order of the call: a late one must not undo a newer one."""
    return f"{site.id.namespace}/{site.name}", (rt.term, int(site.version))


app = operator(HttpDns(os.environ.get("DNS_URL", "http://127.0.0.1:8053")))

"""The operator of `make bench-kube-peers` with kopf: a Website becomes a Deployment, a Service, a ConfigMap and, if it
has a host, an Ingress.

kopf has no client of its own: this one is the official one, by server-side apply, in threads of kopf.
"""

import datetime
import hashlib
import logging
from contextlib import suppress
from functools import cache

import kopf
import kubernetes
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError

GROUP = ("example.org", "v1", "websites")
LABEL = "example.org/website"
OWNED = {
    "ConfigMap": ("v1", "configmaps"),
    "Deployment": ("apps/v1", "deployments"),
    "Service": ("v1", "services"),
    "Ingress": ("networking.k8s.io/v1", "ingresses"),
}


@cache
def client():
    """Return the client of this process."""
    kubernetes.config.load_config()
    return DynamicClient(kubernetes.client.ApiClient())


@cache
def api(version, kind):
    """Return the calls of one type."""
    return client().resources.get(api_version=version, kind=kind)


@kopf.on.startup()
def configure(settings, **_):
    """Record no Event for each success, and let no watch go silent."""
    settings.posting.level = logging.WARNING
    settings.watching.server_timeout = 300
    client()


@kopf.index(*GROUP)
def websites(name, namespace, body, **_):
    """Index the Websites by their names."""
    return {(namespace, name): body}


@kopf.on.resume(*GROUP)
@kopf.on.create(*GROUP)
@kopf.on.update(*GROUP)
def apply_all(body, patch, **_):
    """Bring one Website to what it asks."""
    for kind in OWNED:
        made = apply(body, kind)
        if kind == "Deployment":
            patch.status.update(status_of(body, made))


def child_changed(event, body, namespace, websites, **_):
    """Put back what somebody has changed or deleted, and say in the Website's status what is ready."""
    for site in websites.get((namespace, body["metadata"]["labels"][LABEL]), ()):
        if event["type"] not in ("MODIFIED", "DELETED") or site["metadata"].get("deletionTimestamp"):
            continue
        made = apply(site, body["kind"])
        if body["kind"] == "Deployment" and (status := status_of(site, made)):
            meta, kind = site["metadata"], "application/merge-patch+json"
            here = api("example.org/v1", "Website").status
            here.patch({"status": status}, meta["name"], meta["namespace"], content_type=kind)


for version, plural in OWNED.values():
    kopf.on.event(version, plural, labels={LABEL: kopf.PRESENT})(child_changed)


def apply(site, kind):
    """Apply one of the objects that a Website owns, or delete it if the Website does not want it. Return it."""
    name, namespace = site["metadata"]["name"], site["metadata"]["namespace"]
    version, _ = OWNED[kind]
    content = content_of(site, kind)
    if content is None:
        with suppress(NotFoundError):
            api(version, kind).delete(name, namespace)
        return None
    labels = {LABEL: name}
    object = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}, **content}
    kopf.adopt(object, owner=site)
    who = {"field_manager": "websites", "force_conflicts": True}
    return api(version, kind).server_side_apply(object, name, namespace, **who)


def status_of(site, deployment):
    """Return the new status of a Website, or nothing if it has that already."""
    ready, replicas = (deployment.status or {}).get("readyReplicas") or 0, site["spec"]["replicas"]
    condition = {
        "type": "Ready",
        "status": "True" if ready >= replicas else "False",
        "reason": "Available" if ready >= replicas else "Progressing",
        "message": f"{ready} of {replicas} replicas are ready",
        "observedGeneration": site["metadata"]["generation"],
    }
    before = site.get("status", {})
    for each in before.get("conditions", ()):
        if before.get("ready") == ready and condition.items() <= dict(each).items():
            return {}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"ready": ready, "conditions": [{**condition, "lastTransitionTime": now}]}


def content_of(site, kind):
    """Return what an object that a Website owns consists of, or None if it should not be there."""
    name, spec = site["metadata"]["name"], site["spec"]
    labels, pages = {LABEL: name}, dict(spec.get("pages", {}))
    if kind == "ConfigMap":
        return {"data": pages}
    if kind == "Service":
        return {"spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}
    if kind == "Ingress":
        if not spec.get("host"):
            return None
        backend = {"service": {"name": name, "port": {"name": "http"}}}
        path = {"path": "/", "pathType": "Prefix", "backend": backend}
        return {"spec": {"rules": [{"host": spec["host"], "http": {"paths": [path]}}]}}
    container = {
        "name": "web",
        "image": spec["image"],
        "ports": [{"containerPort": 8080}],
        "volumeMounts": [{"name": "pages", "mountPath": "/srv"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "pages", "configMap": {"name": name}}]}
    # Other pages make other Pods.
    digest = hashlib.sha256(repr(sorted(pages.items())).encode()).hexdigest()[:16]
    template = {"metadata": {"labels": labels, "annotations": {"example.org/pages": digest}}, "spec": pod}
    return {"spec": {"replicas": spec["replicas"], "selector": {"matchLabels": labels}, "template": template}}

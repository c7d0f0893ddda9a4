"""What a cluster must know to call the webhooks of a program: the parts of documents, and the rights for them. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from headway.controller import App
from headway.errors import InvalidArgument
from headway.kubernetes._crd import Document, rule
from headway.kubernetes._types import KubernetesType
from headway.resource import Kind, Registry
from headway.versions import chain_of

FailurePolicy = Literal["Fail", "Ignore"]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
HOOKS = {"mutate": "MutatingWebhookConfiguration", "validate": "ValidatingWebhookConfiguration"}
"""The kinds of configurations, by the hooks that they are for."""

_SECONDS = 10
_SERVICE = re.compile(r"([a-z0-9-]{1,63})/([a-z0-9-]{1,63})(?::(\d{1,5}))?")
_FORM = "use a Service as NAMESPACE/NAME or NAMESPACE/NAME:PORT, or an address such as https://10.0.0.7:9443"


class Place(NamedTuple):
    """Where an API server reaches the webhooks.

    Attributes:
        host: the name that their certificate must have.
        url: the address; None for a Service.
        service: the fields of a Service.
    """

    host: str
    url: str | None = None
    service: Document | None = None

    def client_config(self, path: str, bundle: str | None) -> Document:
        """Return how to call a path. The bundle has the certificates to trust, in base64."""
        made: Document = (
            {"url": f"{self.url}{path}"} if self.service is None else {"service": {**self.service, "path": path}}
        )
        return made if bundle is None else {**made, "caBundle": bundle}


def place_of(text: str) -> Place:
    """Return the place that a text names. Raises InvalidArgument."""
    wrong = InvalidArgument(f"at={text!r} is no place of webhooks: {_FORM}")
    if found := _SERVICE.fullmatch(text):
        namespace, name, port = found[1], found[2], int(found[3] or 443)
        if not 0 < port < 1 << 16:
            raise wrong
        return Place(f"{name}.{namespace}.svc", service={"namespace": namespace, "name": name, "port": port})
    try:
        parts = urlsplit(text)
        host = parts.hostname if parts.scheme == "https" and text.isascii() and parts.port != 0 else None
    except ValueError:
        raise wrong from None
    if not host or parts.path.strip("/") or parts.query or "@" in parts.netloc:
        raise wrong
    with suppress(ValueError):
        # In the form that a certificate has it.
        host = str(ipaddress.ip_address(host))
    if host in ("0.0.0.0", "::"):
        raise InvalidArgument(f"{text!r} is no address that an API server can call: give at=; {_FORM}")
    return Place(host, url=f"https://{parts.netloc}")


def name_of(apps: Sequence[App], namespace: str) -> str:
    """Return the name of the configurations of a program, which belong to the cluster."""
    # No other namespace and app have it: neither has a dot.
    return f"{namespace}.{apps[0].name}"


def secret_name(apps: Sequence[App]) -> str:
    """Return the name of the Secret with the certificates of a program."""
    return f"headway-webhooks-{apps[0].name}"


def converted_kinds(registry: Registry) -> Iterator[tuple[Kind, str]]:
    """Iterate over the custom resources with converters, and the names of their CRDs."""
    kinds = {each.kind: each for each in registry if isinstance(each, KubernetesType) and each.crd is not None}
    for kind, type in sorted(kinds.items()):
        if chain_of(registry, kind) is not None:
            yield kind, f"{type.plural}.{type.name.group}"


def served_versions(registry: Registry, kind: Kind) -> set[str]:
    """Return the versions of a custom resource that the cluster must serve for a program."""
    types = [each for each in registry if each.kind == kind and isinstance(each, KubernetesType)]
    return {each.name.version for each in types if each.crd is not None and each.crd[1].served}


def conversion(place: Place, bundle: str | None = None) -> Document:
    """Return the part of a CRD that names the webhook of its conversions."""
    webhook = {"clientConfig": place.client_config("/convert", bundle), "conversionReviewVersions": ["v1"]}
    return {"strategy": "Webhook", "webhook": webhook}


def configuration(
    registry: Registry, hook: str, name: str, place: Place, policy: FailurePolicy, bundle: str
) -> Document:
    """Return the configuration for the hooks of one sort. A kind has one entry, for the versions that have such a hook.

    Writes of other versions are converted by the API server first.
    """
    kinds: dict[str, list[KubernetesType[Any]]] = {}
    for type in registry:
        if isinstance(type, KubernetesType) and type.has_hooks and getattr(type.hooks, hook) is not None:
            kinds.setdefault(f"{type.plural}.{type.name.group}", []).append(type)
    webhooks = [
        {
            "name": full_name,
            "clientConfig": place.client_config(f"/{hook}", bundle),
            "rules": [
                {
                    "apiGroups": [types[0].name.group],
                    "apiVersions": sorted(each.name.version for each in types),
                    "operations": ["CREATE", "UPDATE"],
                    "resources": [types[0].plural],
                    "scope": "*",
                }
            ],
            "failurePolicy": policy,
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": _SECONDS,
            "admissionReviewVersions": ["v1"],
        }
        for full_name, types in sorted(kinds.items())
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": HOOKS[hook],
        "metadata": {"name": name},
        "webhooks": webhooks,
    }


def path_of(configuration: Document) -> str:
    """Return the path of a configuration."""
    return f"{CONFIGURATIONS}/{configuration['kind'].lower()}s/{configuration['metadata']['name']}"


def rules(apps: Sequence[App], registry: Registry, namespace: str) -> tuple[list[Document], list[Document]]:
    """Return the rules of RBAC that the webhooks need: in the cluster, and in the namespace of the program."""
    configurations = [f"{each.lower()}s" for each in HOOKS.values()]
    name = name_of(apps, namespace)
    cluster = [rule("admissionregistration.k8s.io", configurations, ("create", "patch"), [name])]
    if crds := [crd for _, crd in converted_kinds(registry)]:
        cluster.append(rule("apiextensions.k8s.io", ["customresourcedefinitions"], ["get", "patch"], crds))
    return cluster, [rule("", ["secrets"], ["create"]), rule("", ["secrets"], ["get", "update"], [secret_name(apps)])]

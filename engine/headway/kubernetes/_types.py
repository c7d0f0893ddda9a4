"""Types of Kubernetes: their names and paths in the API, and their declarations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar, overload

from headway.controller import App
from headway.errors import DeclarationError, InvalidArgument
from headway.kubernetes._apply import own_apply
from headway.kubernetes._crd import Names, Scale, Version, crd_of
from headway.kubernetes._json import body_of, payload_of
from headway.kubernetes._manifest import Manifest, dumped, manifest
from headway.kubernetes._schema import Hints
from headway.protobuf import REDACTED, Payload, decode, encode, named_if_declared, redacted
from headway.resource import Hooks, Resource, ResourceType, Scope, ScopedType, quoted

T = TypeVar("T", bound=Payload)

CORE = "core"
"""The group of the types whose apiVersion has none, such as ``v1``."""

_CLUSTER_KINDS = frozenset(
    re.findall(
        r"\w+",
        """
        APIService CSIDriver CSINode CertificateSigningRequest ClusterRole ClusterRoleBinding ClusterTrustBundle
        ComponentStatus CustomResourceDefinition DeviceClass DeviceTaintRule FlowSchema IPAddress IngressClass
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration Namespace Node
        PersistentVolume PriorityClass PriorityLevelConfiguration ResourceSlice RuntimeClass ServiceCIDR StorageClass
        StorageVersionMigration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
        ValidatingWebhookConfiguration VolumeAttachment VolumeAttributesClass
        """,
    )
)
METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
"""The media type of an answer that has of each object only its metadata."""
_PLURALS = {"Endpoints": "endpoints"}

_LAST_APPLIED = "annotation:kubectl.kubernetes.io/last-applied-configuration"
"""What `kubectl apply` was given, with all values."""

MAX_NAME = 253
"""The maximum length of a name. Many kinds allow only 63 characters, which the API server checks."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9.:-]*[a-z0-9])?\Z")
_ANY_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._:-]+\Z")
"""Names of roles and their bindings, which Kubernetes checks less."""
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_GROUP = re.compile(rf"{_LABEL}(\.{_LABEL})*\Z")
_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?\Z")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*\Z")


class KubernetesType(ResourceType[T], Generic[T]):
    """A type of Kubernetes. `resource` and `builtin` declare one.

    Attributes:
        api_version: the apiVersion of its objects, such as ``apps/v1``.
        plural: its name in paths, such as ``deployments``.
        has_conditions: True if the statuses of its resources are the conditions in ``status.conditions``.
        crd: its names and its version in its CustomResourceDefinition; None for a type that the cluster has.
        metadata_only: True if only the metadata of its objects are read.
        has_hooks: True if the program has hooks for its writes.
    """

    __slots__ = ("api_version", "crd", "has_conditions", "has_hooks", "metadata_only", "plural")

    foreign = True
    own_apply = staticmethod(own_apply)

    def __init__(
        self,
        group: str,
        version: str,
        kind: str,
        payload: type[T],
        *,
        scope: Scope = Scope.NAMESPACE,
        plural: str = "",
        has_conditions: bool = False,
        crd: tuple[Names, Version] | None = None,
        metadata_only: bool = False,
        hooks: Hooks[T] | None = None,
    ) -> None:
        if scope not in (Scope.NAMESPACE, Scope.CLUSTER):
            raise DeclarationError(f"{kind}: scope must be headway.Scope.NAMESPACE or CLUSTER, not {scope}")
        super().__init__(group, version, kind, payload, scope=scope, hooks=hooks)
        self.api_version = version if group == CORE else f"{group}/{version}"
        self.plural = plural or plural_of(kind)
        self.has_conditions = has_conditions
        self.crd = crd
        self.metadata_only = metadata_only
        self.has_hooks = hooks is not None

    def type_problem(self, group: str, version: str, kind: str) -> str | None:
        """Return the problem with the apiVersion or the kind, or None."""
        if group != CORE and (len(group) > MAX_NAME or not _GROUP.match(group)):
            return f"group {quoted(group)} must be a DNS name in lower case, such as 'example.org'"
        if not _VERSION.match(version):
            return f"version {quoted(version)} must be as v1, v2beta1 or v1alpha3"
        if len(kind) > 63 or not _KIND.match(kind):
            return f"kind {quoted(kind)} must be PascalCase, such as 'Website'"
        return None

    def name_problem(self, name: object) -> str | None:
        """Return the problem with the name of an object, or None."""
        if not isinstance(name, str):
            return f"name must be a string, not {name!r}"
        if not name:
            return "name is required"
        rule = _ANY_NAME if self.name.group == "rbac.authorization.k8s.io" else _NAME
        if len(name) > MAX_NAME or not rule.match(name):
            return (
                f"name {quoted(name)} is not a valid name: use 1 to {MAX_NAME} lower-case letters, digits, hyphens and "
                "dots, with a letter or digit at both ends"
            )
        return None

    def is_created_with(self, token: str, stored: Resource[T]) -> bool:  # noqa: ARG002  # see the base class
        """Return True: an API server refuses a second creation of a name."""
        return True

    def new(self, name: str, data: Any = None, **options: Any) -> Resource[T]:
        """Return a new resource, as `ResourceType.new`. The payload of a `Manifest` may be a mapping."""
        if isinstance(data, Mapping) and issubclass(self.payload, Manifest):
            data = manifest(data)
        return super().new(name, data, **options)

    def within(self, **options: Any) -> ScopedType[T]:
        """Return a scope, as `ResourceType.within`. Its metadata are labels, by which an API server selects."""
        made = super().within(**options)
        for key, _ in made.range.metadata:
            if ":" in key:
                raise InvalidArgument(f"{self.name}.within: {key!r} is no label, and a cluster selects by labels alone")
        return made

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the objects of a namespace (all without one), or of one of them."""
        root = "/api" if "/" not in self.api_version else "/apis"
        parts = [root, self.api_version]
        if namespace:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])

    def accept(self, form: str = "") -> str:
        """Return the media type of an answer: an object, an event, or a list with the form ``List``."""
        return METADATA.format(form) if self.metadata_only else "application/json"

    def document(self, metadata: Mapping[str, str], data: T, *, redacts: bool) -> Mapping[str, Any]:
        """Return a manifest as the mapping that it is. What a Secret holds is left out if asked."""
        if not redacts or self.kind != (CORE, "Secret"):
            return {"data": data.body} if isinstance(data, Manifest) else {}
        # By the names in the object: a class may give its fields others.
        body = self.body_of(encode(redacted(data)))
        body |= {name: dict.fromkeys(body[name] or (), REDACTED) for name in body.keys() & {"data", "stringData"}}
        return {"data": body, "metadata": {key: value for key, value in metadata.items() if key != _LAST_APPLIED}}

    def payload_of(self, body: dict[str, Any]) -> bytes:
        """Return the encoded payload of an object's fields but apiVersion, kind and metadata."""
        if issubclass(self.payload, Manifest):
            return b"" if self.metadata_only else encode(Manifest(json=dumped(body)))
        return payload_of(self.payload, body)

    def body_of(self, payload: bytes) -> dict[str, Any]:
        """Return the fields of an encoded payload."""
        if issubclass(self.payload, Manifest):
            return decode(Manifest, payload).body
        return body_of(self.payload, payload)


def plural_of(kind: str) -> str:
    """Return the usual plural of a kind in paths."""
    name = kind.lower()
    if kind in _PLURALS:
        return _PLURALS[kind]
    if name.endswith("y") and name[-2:-1] not in "aeiou":
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith(("s", "x", "ch", "sh")) else f"{name}s"


def resource(
    app: App,
    group: str,
    version: str,
    kind: str,
    payload: type[T],
    *,
    scope: Scope = Scope.NAMESPACE,
    plural: str = "",
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    schema: Hints | None = None,
    scale: Scale | None = None,
    served: bool = True,
    stored: bool = True,
    hooks: Hooks[T] | None = None,
) -> KubernetesType[T]:
    """Declare a custom resource: ``WEBSITE = kubernetes.resource(app, "example.org", "v1", "Website", Website)``.

    `headway kubernetes crd` prints its CustomResourceDefinition. Each object has conditions in ``status.conditions``.

    Args:
        app: the app that uses it.
        group, version, kind: its names in the API.
        payload: the message class of its objects' fields, usually ``spec`` and ``status``. Fields that the class does
            not know are kept.
        scope: whether each object belongs to a namespace (the default) or to the cluster.
        plural: its name in paths. Default: the usual plural of the kind.
        short_names: shorter names for kubectl, such as ``ws``.
        categories: the groups of types in which kubectl lists it, such as ``all``.
        columns: what kubectl shows, as paths in the object: ``{"READY": ".status.ready"}``.
        schema: what the schema has beyond the class, such as rules, defaults and the keys of lists.
        scale: the paths of the subresource ``scale``: ``kubernetes.Scale(".spec.replicas", ".status.ready")``.
        served: False for a version that the cluster no longer serves.
        stored: False for all but one version of the kind: the one in which objects are stored.
        hooks: functions that fill in defaults and validate. `open_webhooks` lets the cluster call them.

    Raises DeclarationError, with the correct form.
    """
    if hooks is not None and hooks.needs is not None:
        raise DeclarationError(f"{kind}: a cluster cannot ask needs=: its rights are those of RBAC")
    names = Names(
        group,
        kind,
        plural or plural_of(kind),
        short_names=short_names,
        categories=categories,
        scope="Cluster" if scope is Scope.CLUSTER else "Namespaced",
    )
    made = Version(version, payload, schema or Hints(), columns or {}, scale=scale, served=served, stored=stored)
    with named_if_declared(payload):
        declared = KubernetesType(
            group,
            version,
            kind,
            payload,
            scope=scope,
            plural=plural,
            has_conditions=True,
            crd=(names, made),
            hooks=hooks,
        )
        # What is wrong with the schema is wrong with the declaration.
        crd_of(names, [replace(made, stored=True)])
        app.add_type(declared)
    return declared


@overload
def builtin(
    app: App,
    api_version: str,
    kind: str,
    *,
    scope: Scope | None = None,
    plural: str = "",
    metadata_only: bool = False,
) -> KubernetesType[Manifest]: ...
@overload
def builtin(
    app: App, api_version: str, kind: str, payload: type[T], *, scope: Scope | None = None, plural: str = ""
) -> KubernetesType[T]: ...
def builtin(
    app: App,
    api_version: str,
    kind: str,
    payload: type[Any] = Manifest,
    *,
    scope: Scope | None = None,
    plural: str = "",
    metadata_only: bool = False,
) -> KubernetesType[Any]:
    """Declare a type that the cluster has: ``DEPLOYMENT = kubernetes.builtin(app, "apps/v1", "Deployment")``.

    Args:
        app: the app that uses it.
        api_version, kind: as in its objects: ``v1`` and ``ConfigMap``.
        payload: the message class of its objects' fields. Default: `Manifest`, a mapping.
        scope: whether its objects belong to a namespace or to the cluster. Default: as Kubernetes' own kinds.
        plural: its name in paths. Default: the usual plural of the kind.
        metadata_only: read only the metadata of its objects. The payload is empty, an apply changes labels,
            annotations and owners of an object that exists, and ``write`` is refused.

    Raises DeclarationError, with the correct form.
    """
    if metadata_only and payload is not Manifest:
        raise DeclarationError(f"{kind}: metadata_only=True reads no other fields, so leave the message class out")
    group, _, version = str(api_version).rpartition("/")
    wanted = scope or (Scope.CLUSTER if kind in _CLUSTER_KINDS else Scope.NAMESPACE)
    with named_if_declared(payload):
        declared = KubernetesType(
            group or CORE, version, kind, payload, scope=wanted, plural=plural, metadata_only=metadata_only
        )
        app.add_type(declared)
    return declared

"""The types of an API server: the paths and habits of those that are built in, and of custom resources."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headway.testing.kubernetes._fields import Fields, Shape, copied
from headway.testing.kubernetes._values import Cause, plain, pruned, required, schema_causes, wrong

_STATUS: Fields = frozenset([("f:status",)])


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """A type as an API server has it.

    Attributes:
        group: the group; empty for ``v1``.
        status: it has the subresource status.
        scale: it has the subresource scale.
        generation: its objects have a generation.
        put_creates: a PUT of an absent object creates it.
        put_needs_version: a PUT needs a resourceVersion.
        schema: the schema of a custom resource; None for a built-in type.
        empty: the fields that even an empty object of a built-in type has.
        complete: adds the defaults of a built-in type.
        check: iterates over what is wrong with an object of a built-in type.
        unserved: why a call in this version is a mistake of the test, such as that nothing converts it.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = False
    scale: bool = False
    generation: bool = False
    put_creates: bool = False
    put_needs_version: bool = False
    schema: Mapping[str, Any] | None = None
    empty: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    complete: Callable[[dict[str, Any]], None] = lambda _: None
    check: Callable[[dict[str, Any], dict[str, Any] | None], Iterator[Cause]] = lambda _object, _old: iter(())
    unserved: str = ""

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def named(self) -> str:
        """Its name in messages, such as ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def shape(self) -> Shape:
        """The shape of its objects."""
        return Shape(self.schema, root=True)

    def skeleton(self) -> dict[str, Any]:
        """Return an object without fields, to which a new object is compared."""
        return {"apiVersion": self.api_version, "kind": self.kind, **self.empty}

    def reset(self, subresource: str) -> Fields:
        """Return the fields that a write does not change."""
        if subresource == "status":
            return frozenset([("f:metadata",) if self.schema is not None else ("f:metadata", "f:labels"), ("f:spec",)])
        return _STATUS if self.status and not subresource else frozenset()

    def stored(self, object: dict[str, Any], dropped: list[str]) -> dict[str, Any]:
        """Return an object with its defaults and without what the type does not have."""
        if self.schema is not None:
            made: dict[str, Any] = pruned(object, self.schema, dropped, root=True)
            return {**made, "metadata": plain(made["metadata"])}
        made = plain({**self.empty, **object})
        self.complete(made)
        return made

    def causes(self, object: dict[str, Any], old: dict[str, Any] | None = None) -> list[Cause]:
        """Return what is wrong with an object's fields, or with their change."""
        if self.schema is not None:
            return list(schema_causes(object, self.schema, root=True))
        return list(self.check(object, old))


_POD_DEFAULTS: dict[str, Any] = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER_DEFAULTS: dict[str, Any] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
_ROLLING = {"maxSurge": "25%", "maxUnavailable": "25%"}


def _default(object: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    object |= {key: copied(each) for key, each in defaults.items() if key not in object}


def _workload(object: dict[str, Any]) -> None:
    spec = object["spec"]
    _default(spec, {"revisionHistoryLimit": 10, **({} if object["kind"] == "DaemonSet" else {"replicas": 1})})
    if object["kind"] == "Deployment":
        _default(spec, {"progressDeadlineSeconds": 600, "strategy": {}})
        _default(spec["strategy"], {"type": "RollingUpdate"})
        if spec["strategy"]["type"] == "RollingUpdate":
            spec["strategy"]["rollingUpdate"] = _ROLLING | spec["strategy"].get("rollingUpdate", {})
    _default(spec, {"template": {}})
    _default(spec["template"], {"metadata": {}, "spec": {}})
    pod = spec["template"]["spec"]
    _default(pod, _POD_DEFAULTS)
    for each in pod.get("containers") or ():
        tag = each.get("image", "").rpartition("/")[2].partition(":")[2]
        policy = "Always" if tag in ("", "latest") else "IfNotPresent"
        _default(each, {**_CONTAINER_DEFAULTS, "imagePullPolicy": policy})
        for port in each.get("ports") or ():
            _default(port, {"protocol": "TCP"})


def _workload_causes(object: dict[str, Any], old: dict[str, Any] | None) -> Iterator[Cause]:
    spec, template = object["spec"], object["spec"]["template"]
    selector, labels = spec.get("selector"), template["metadata"].get("labels", {})
    if spec.get("replicas", 0) < 0:
        yield wrong("spec.replicas", spec["replicas"])
    if not selector:
        yield required("spec.selector")
    if not selector or not selector.get("matchLabels", {}).items() <= labels.items():
        yield wrong("spec.template.metadata.labels", labels)
    if old is not None and selector != old["spec"]["selector"]:
        yield wrong("spec.selector", selector)
    containers = template["spec"].get("containers") or []
    if not containers:
        yield required("spec.template.spec.containers")
    for index, each in enumerate(containers):
        at = f"spec.template.spec.containers[{index}]"
        if not each.get("image"):
            yield required(f"{at}.image")
        if any(each.get("name") == before.get("name") for before in containers[:index]):
            yield Cause("FieldValueDuplicate", f'Duplicate value: "{each.get("name")}"', f"{at}.name")


def _lease_causes(object: dict[str, Any], _: dict[str, Any] | None) -> Iterator[Cause]:
    for key, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        if object["spec"].get(key, least) < least:
            yield wrong(f"spec.{key}", object["spec"][key])


def _secret(object: dict[str, Any]) -> None:
    texts = object.pop("stringData", None) or {}
    if texts:
        object["data"] = object.get("data", {}) | {
            key: base64.b64encode(each.encode()).decode() for key, each in texts.items()
        }
    _default(object, {"type": "Opaque"})


def _namespace(object: dict[str, Any]) -> None:
    meta = object["metadata"]
    object["spec"] = {"finalizers": ["kubernetes"]} | object.get("spec", {})
    object["status"] = {"phase": "Terminating" if "deletionTimestamp" in meta else "Active"}
    meta["labels"] = {"kubernetes.io/metadata.name": meta["name"]} | meta.get("labels", {})


_BODY: dict[str, Any] = {"metadata": {}, "spec": {}, "status": {}}
_POD: dict[str, Any] = {"selector": None, "template": {"metadata": {}, "spec": {"containers": None}}}
# The options of some types that the flags in the table do not give.
_SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "Namespace": {"namespaced": False, "complete": _namespace},
    "Secret": {"complete": _secret},
    "ClusterRole": {"namespaced": False},
    "ClusterRoleBinding": {"namespaced": False},
    "CustomResourceDefinition": {"namespaced": False},
    "Node": {"namespaced": False},
    "Ingress": {"plural": "ingresses"},
    "NetworkPolicy": {"plural": "networkpolicies"},
    "Lease": {"check": _lease_causes, "empty": {"metadata": {}, "spec": {}}},
    "Deployment": {"empty": {**_BODY, "spec": {**_POD, "strategy": {}}}},
}
_TABLE = """
v1 ConfigMap
v1 Secret
v1 ServiceAccount
v1 Namespace status
v1 Node status
v1 Pod status generation
v1 Service status put_creates
v1 PersistentVolumeClaim status
apps/v1 Deployment status generation scale
apps/v1 StatefulSet status generation scale
apps/v1 ReplicaSet status generation scale
apps/v1 DaemonSet status generation
batch/v1 Job status generation
batch/v1 CronJob status generation
networking.k8s.io/v1 Ingress status generation
networking.k8s.io/v1 NetworkPolicy generation
coordination.k8s.io/v1 Lease put_creates put_needs_version
policy/v1 PodDisruptionBudget status generation put_needs_version
rbac.authorization.k8s.io/v1 Role put_creates
rbac.authorization.k8s.io/v1 RoleBinding put_creates
rbac.authorization.k8s.io/v1 ClusterRole put_creates
rbac.authorization.k8s.io/v1 ClusterRoleBinding put_creates
events.k8s.io/v1 Event put_creates
apiextensions.k8s.io/v1 CustomResourceDefinition status generation put_needs_version
"""


def _built_in(line: str) -> Kind:
    api_version, kind, *flags = line.split()
    group, _, version = api_version.rpartition("/")
    options: dict[str, Any] = {"plural": f"{kind.lower()}s", "empty": _BODY if "status" in flags else {"metadata": {}}}
    if group == "apps":
        options |= {"complete": _workload, "check": _workload_causes, "empty": {**_BODY, "spec": _POD}}
    return Kind(group, version, kind, **{**options, **_SPECIAL.get(kind, {}), **dict.fromkeys(flags, True)})


BUILT_IN = tuple(map(_built_in, _TABLE.strip().splitlines()))
"""The types that every model has."""


def custom_kinds(definition: Mapping[str, Any]) -> Iterator[Kind]:
    """Iterate over the types, one for each served version, that a CustomResourceDefinition defines."""
    spec = definition["spec"]
    for each in spec["versions"]:
        subresources = each.get("subresources") or {}
        if each.get("served", True):
            yield Kind(
                spec["group"],
                each["name"],
                spec["names"]["kind"],
                spec["names"]["plural"],
                namespaced=spec.get("scope", "Namespaced") == "Namespaced",
                status="status" in subresources,
                scale="scale" in subresources,
                generation=True,
                put_needs_version=True,
                schema=(each.get("schema") or {}).get("openAPIV3Schema") or {},
            )

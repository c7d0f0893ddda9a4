"""Make the documents that a person applies: the CRDs of declared types, and the rights of a program. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from headway.errors import DeclarationError
from headway.kubernetes._schema import Hints, Schema, schema_of

Document = dict[str, Any]

_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_STEPS = re.compile(r"\.([A-Za-z_]\w*)|(\[[^\]]*\])", re.ASCII)
_AMBIGUOUS = re.compile(r"[-+.]?\d|[ynYN]\Z|.*[^ -~\n]", re.DOTALL)
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "patch", "update")


@dataclass(frozen=True)
class Names:
    """The names of a type in the cluster, as `headway.kubernetes.resource` describes them."""

    group: str
    kind: str
    plural: str
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"


@dataclass(frozen=True)
class Scale:
    """The paths of the scale subresource, such as ``.spec.replicas`` and ``.status.replicas``."""

    replicas: str
    status_replicas: str
    selector: str = ""


@dataclass(frozen=True)
class Version:
    """One version of a type, as `headway.kubernetes.resource` describes it."""

    name: str
    payload: type[Any]
    hints: Hints = field(default_factory=Hints)
    columns: Mapping[str, str] = field(default_factory=dict)
    scale: Scale | None = None
    served: bool = True
    stored: bool = True


@dataclass(frozen=True)
class Use:
    """What a program does with a type.

    Attributes:
        group: its group, empty for the core types.
        manages: True if a controller reconciles it, which writes its status and its finalizers.
        writes: True if the program creates, changes or deletes objects of it.
        namespaces: the only namespaces where it does so; empty for all.
    """

    group: str
    plural: str
    manages: bool = False
    writes: bool = False
    cluster_scoped: bool = False
    namespaces: Sequence[str] = ()


def crd_of(names: Names, versions: Sequence[Version]) -> Document:
    """Return the CustomResourceDefinition of a type. Raises DeclarationError, with the correct form."""
    stored = [each.name for each in versions if each.stored]
    if len(stored) != 1:
        raise DeclarationError(
            f"{names.kind}: objects are stored in exactly one version, not {stored}; declare one with stored=True"
        )
    own: Document = {"kind": names.kind, "listKind": f"{names.kind}List", "plural": names.plural}
    own["singular"] = names.kind.lower()
    if names.short_names:
        own["shortNames"] = sorted(names.short_names)
    if names.categories:
        own["categories"] = sorted(names.categories)
    made = sorted((_version(names, each) for each in versions), key=lambda each: str(each["name"]))
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.plural}.{names.group}"},
        "spec": {"group": names.group, "names": own, "scope": names.scope, "versions": made},
    }


def _version(names: Names, version: Version) -> Document:
    schema, scale = schema_of(version.payload, version.hints), version.scale
    where = f"{names.kind} {version.name}: columns"
    columns = [
        {"name": title, "type": _column_type(f"{where}: {title!r}: {path!r}", path, schema), "jsonPath": path}
        for title, path in version.columns.items()
    ]
    if columns and "age" not in map(str.lower, version.columns):
        columns.append(_AGE)
    subresources: Document = {"status": {}}
    if scale is not None:
        subresources["scale"] = {"specReplicasPath": scale.replicas, "statusReplicasPath": scale.status_replicas}
        if scale.selector:
            subresources["scale"]["labelSelectorPath"] = scale.selector
    return {
        "name": version.name,
        "served": version.served,
        "storage": version.stored,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
    } | ({"additionalPrinterColumns": columns} if columns else {})


def _column_type(where: str, path: str, schema: Schema) -> str:
    if "".join(found[0] for found in _STEPS.finditer(path)) != path or not path:
        raise DeclarationError(f"{where} must be a path such as '.status.ready'")
    if path.startswith(".metadata."):
        return "date" if path.endswith("Timestamp") else "string"
    for name, items in _STEPS.findall(path):
        inner = schema.get("items") if items else schema.get("properties", {}).get(name)
        schema = inner or schema.get("additionalProperties") or {}
        if not schema:
            raise DeclarationError(f"{where}: no field {name or items}; use the names in JSON")
    if schema.get("format") == "date-time":
        return "date"
    return str(schema["type"]) if schema["type"] in ("integer", "number", "boolean") else "string"


def rbac_of(
    program: str,
    uses: Sequence[Use],
    in_cluster: Sequence[Document] = (),
    in_namespace: Sequence[Document] = (),
    *,
    namespace: str = "default",
    only_namespace: bool = False,
) -> list[Document]:
    """Return the service account of a program, its roles and their bindings.

    Args:
        program: the name of the program and of all the documents.
        in_cluster, in_namespace: further rules, in the cluster and in the namespace of the program.
        namespace: where it runs, and has its leases.
        only_namespace: True if it works on the objects of this namespace alone.

    Raises DeclarationError if a type has no namespaces, and the program works on one alone.
    """
    if only_namespace and (wrong := [each.plural for each in uses if each.cluster_scoped]):
        raise DeclarationError(f"{program}: {wrong[0]} belong to the cluster, so the rights cannot be of one namespace")
    # By the namespace, which is empty for the whole cluster.
    rights: dict[str, dict[tuple[str, str], set[str]]] = {"": {}, namespace: {}}

    def allow(place: str, group: str, plural: str, *verbs: str) -> None:
        rights.setdefault(place, {}).setdefault((group, plural), set()).update(verbs)

    for use in uses:
        for place in [namespace] if only_namespace else use.namespaces or [""]:
            allow(place, use.group, use.plural, *_READ, *(_WRITE if use.writes else ()))
            if use.manages:
                allow(place, use.group, use.plural, "patch", "update")
                allow(place, use.group, f"{use.plural}/status", "get", "patch", "update")
                # To be the owner of objects that block its deletion.
                allow(place, use.group, f"{use.plural}/finalizers", "update")
    for place in [""] if rights[""] else [each for each, found in rights.items() if found]:
        allow(place, "events.k8s.io", "events", "create", "get", "patch")
    # Its uid tells which cluster this is.
    cluster = rule("", ["namespaces"], ["get"], ["kube-system"])
    leases = rule("coordination.k8s.io", ["leases"], ("create", "get", "list", "patch", "update", "watch"))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": program, "namespace": namespace}}
    made = [account]
    for place, found in rights.items():
        # One rule for the types of a group with the same verbs.
        together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (group, plural), verbs in sorted(found.items()):
            together.setdefault((group, tuple(sorted(verbs))), []).append(plural)
        rules = [rule(group, plurals, verbs) for (group, verbs), plurals in together.items()]
        rules = [cluster, *rules, *in_cluster] if not place else rules
        made += _role(program, account, place, [*rules, leases, *in_namespace] if place == namespace else rules)
    return made


def rule(group: str, resources: list[str], verbs: Sequence[str], names: Sequence[str] = ()) -> Document:
    """Return a rule of RBAC. Without names, it is for all objects of these types."""
    made: Document = {"apiGroups": [group], "resources": resources, "verbs": sorted(verbs)}
    return made | ({"resourceNames": names} if names else {})


def _role(program: str, account: Document, place: str, rules: list[Document]) -> list[Document]:
    kind = "Role" if place else "ClusterRole"
    metadata = {"name": program, "namespace": place} if place else {"name": program}
    api = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    subject = {"kind": "ServiceAccount", **account["metadata"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": program}
    return [
        api | {"kind": kind, "metadata": metadata, "rules": rules},
        api | {"kind": f"{kind}Binding", "metadata": metadata, "roleRef": role, "subjects": [subject]},
    ]


class _Dumper(yaml.SafeDumper):
    """Writes texts as Kubernetes reads them."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # PyYAML leaves texts such as y, 1e3 and 0o7 without quotes, which Kubernetes reads as other values.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if _AMBIGUOUS.match(text) else None)


_Dumper.add_representer(str, _quoted)


def yaml_of(documents: Sequence[Document]) -> str:
    """Return documents as YAML that is the same for the same documents."""
    # A copy shares no parts, which YAML would write once and refer to.
    copies = [json.loads(json.dumps(each)) for each in documents]
    return "---\n".join(yaml.dump(each, Dumper=_Dumper, allow_unicode=True, width=120) for each in copies)

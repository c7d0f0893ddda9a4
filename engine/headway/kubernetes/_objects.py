"""Objects of Kubernetes as resources, and back. No I/O.

| of an object | of a resource |
|---|---|
| name, namespace, uid | the id; the partition is ``default`` |
| resourceVersion, generation | version, generation (20 digits; the version, where an object has no generation) |
| labels | metadata, by their keys |
| annotations | metadata, by ``annotation:KEY`` |
| finalizers, deletionTimestamp | metadata, as Headway has them |
| the owner that is its controller | owner |
| other owners, or flags that `owner_reference` does not set | metadata ``:owners``, as JSON |
| conditions of a custom resource | status, by the manager that wrote each |
| all other fields but apiVersion and kind | the payload |

The managers of fields are read and dropped: most of a small object consists of them.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headway.api import of_call
from headway.errors import FailedPrecondition, PayloadError
from headway.kubernetes._types import CORE, KubernetesType
from headway.resource import (
    DELETION_TIMESTAMP,
    FIELD_OWNERS,
    FINALIZERS,
    AnyMessage,
    Condition,
    ConditionState,
    TypeName,
    pb,
    type_name,
)

ANNOTATION = "annotation:"
LABEL = "label:"
OWNERS = ":owners"
GENERATE_NAME = ":generateName"
PARTITION = "default"

UNREADABLE = b"\x07"
"""A payload that is no message of any class, because no field has this wire type."""

UNKNOWN_WRITER = "kubernetes"
"""The name of the status whose writer is not known."""

_RESERVED = frozenset((FINALIZERS, DELETION_TIMESTAMP, FIELD_OWNERS))
_MOST = 2**63
_STATES = {"True": ConditionState.TRUE, "False": ConditionState.FALSE}
_TEXTS = {ConditionState.TRUE: "True", ConditionState.FALSE: "False"}

TypeOf = Callable[[str, str], "KubernetesType[Any] | None"]
"""A function that returns the type of an apiVersion and a kind, or None if the program does not have it."""


def revision_of(text: object) -> int:
    """Return a resourceVersion as a number. Raises FailedPrecondition for one that cannot be compared."""
    if isinstance(text, str) and text.isdecimal() and text.isascii() and text[0] != "0" and int(text) < _MOST:
        return int(text)
    raise of_call(
        FailedPrecondition(
            f"resourceVersion {text!r} is not a number that can be compared with others: an aggregated API server has "
            "the type. Headway cannot use it"
        )
    )


def resource_of(type: KubernetesType[Any], object: dict[str, Any], type_of: TypeOf) -> pb.Resource:
    """Return an object as a resource. The object must not be used afterwards."""
    meta = object.pop("metadata")
    object.pop("kind", None)
    object.pop("apiVersion", None)
    version = meta["resourceVersion"]
    revision_of(version)
    namespace = meta.get("namespace", "")
    tenancy = type.tenancy
    if namespace != tenancy.namespace:
        tenancy = pb.Tenancy(partition=PARTITION, namespace=namespace)
    metadata: dict[str, str] = {}
    if labels := meta.get("labels"):
        metadata = labels if _RESERVED.isdisjoint(labels) else {_label_key(key): labels[key] for key in labels}
    for key, value in (meta.get("annotations") or {}).items():
        metadata[ANNOTATION + key] = value
    if prefix := meta.get("generateName"):
        metadata[GENERATE_NAME] = prefix
    if names := meta.get("finalizers"):
        metadata[FINALIZERS] = " ".join(sorted(names))
    if (deleted := meta.get("deletionTimestamp")) is not None:
        metadata[DELETION_TIMESTAMP] = deleted
    owner = None
    if references := meta.get("ownerReferences"):
        owner = _owner_of(references, namespace, type_of)
        if owner is None or references != [owner_reference(owner)]:
            metadata[OWNERS] = json.dumps(references)
    status = _statuses(object, meta.get("managedFields") or ()) if type.has_conditions else {}
    return pb.Resource(
        id=pb.Id(uid=meta["uid"], name=meta["name"], type=type.message, tenancy=tenancy),
        owner=owner,
        version=version,
        generation=f"{meta.get('generation', version):0>20}",
        metadata=metadata,
        status=status,
        data=AnyMessage(type_url=type.type_url, value=_payload(type, object)),
    )


def _payload(type: KubernetesType[Any], object: dict[str, Any]) -> bytes:
    """Return the payload of an object. One that does not fit its class does not decode, and stops no other object."""
    try:
        return type.payload_of(object)
    except (PayloadError, RecursionError, TypeError):
        # A TypeError is for what is too deep, and so no JSON here.
        return UNREADABLE


def _label_key(key: str) -> str:
    return LABEL + key if key in _RESERVED else key


def _owner_of(references: Iterable[Mapping[str, Any]], namespace: str, type_of: TypeOf) -> pb.Id | None:
    for each in references:
        if each.get("controller"):
            known = type_of(each["apiVersion"], each["kind"])
            if known is not None:
                tenancy = pb.Tenancy(partition=PARTITION, namespace=namespace) if known.tenancy.namespace else None
                type = known.message
            else:
                group, _, version = each["apiVersion"].rpartition("/")
                type = TypeName(group or CORE, version, each["kind"]).message()
                tenancy = pb.Tenancy(partition=PARTITION, namespace=namespace)
            return pb.Id(uid=each["uid"], name=each["name"], type=type, tenancy=tenancy or pb.Tenancy())
    return None


def owner_reference(owner: pb.Id) -> dict[str, Any]:
    """Return the reference to the owner that is an object's controller."""
    name = type_name(owner.type)
    return {
        "apiVersion": name.version if name.group == CORE else f"{name.group}/{name.version}",
        "kind": name.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _statuses(object: dict[str, Any], managed: Iterable[Mapping[str, Any]]) -> dict[str, pb.Status]:
    """Take the conditions out of an object, and return them as statuses, by their writers."""
    status = object.get("status")
    if not isinstance(status, dict):
        return {}
    if not isinstance(status.get("conditions"), list | None):
        return {}
    conditions = status.pop("conditions", None) or ()
    if not status:
        del object["status"]
    writers = _writers(managed)
    found: dict[str, pb.Status] = {}
    for each in conditions:
        if not isinstance(each, dict):
            continue
        known = found.setdefault(writers.get(str(each.get("type")), UNKNOWN_WRITER), pb.Status())
        known.conditions.append(
            Condition(
                type=each.get("type", ""),
                state=_STATES.get(str(each.get("status")), ConditionState.UNKNOWN),
                reason=each.get("reason", ""),
                message=each.get("message", ""),
            )
        )
        observed = each.get("observedGeneration")
        if isinstance(observed, int):
            known.observed_generation = max(known.observed_generation, f"{observed:020}")
        changed = _time(each.get("lastTransitionTime"))
        if changed is not None and (known.updated_at is None or changed > known.updated_at):
            known.updated_at = changed
    return found


def _writers(managed: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the manager that owns each condition, by its type. The latest entry stands last."""
    found: dict[str, str] = {}
    for entry in managed:
        conditions = (entry.get("fieldsV1") or {}).get("f:status", {}).get("f:conditions")
        for key in conditions or ():
            if key.startswith("k:"):
                found[json.loads(key[2:]).get("type", "")] = entry.get("manager", UNKNOWN_WRITER)
    return found


def _time(text: object) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None
    return None if found is None or found.tzinfo is None else found


def merged_conditions(
    stored: Iterable[Mapping[str, Any]], before: pb.Status | None, status: pb.Status, now: str
) -> list[dict[str, Any]]:
    """Return the conditions of an object after a writer has replaced its own, which were ``before``."""
    mine = {each.type: each for each in status.conditions}
    gone = {each.type for each in ([] if before is None else before.conditions)} - mine.keys()
    made: list[dict[str, Any]] = []
    known = {each.get("type"): each for each in stored if isinstance(each, dict)}
    for type, each in known.items():
        if type not in mine and type not in gone:
            made.append(dict(each))
    for mine_now in status.conditions:
        old = known.get(mine_now.type, {})
        text = _TEXTS.get(mine_now.state, "Unknown")
        condition: dict[str, Any] = {
            "type": mine_now.type,
            "status": text,
            "reason": mine_now.reason or mine_now.type,
            "message": mine_now.message,
            "lastTransitionTime": old.get("lastTransitionTime", now) if old.get("status") == text else now,
        }
        if status.observed_generation.isdecimal():
            condition["observedGeneration"] = int(status.observed_generation)
        made.append(condition)
    return made


def object_of(type: KubernetesType[Any], resource: pb.Resource) -> dict[str, Any]:
    """Return a resource as an object to be written, without its version and uid."""
    assert resource.id is not None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    meta: dict[str, Any] = {"name": resource.id.name}
    if namespace := resource.id.tenancy.namespace if resource.id.tenancy is not None else "":
        meta["namespace"] = namespace
    references: list[dict[str, Any]] = []
    for key, value in resource.metadata.items():
        if key == FINALIZERS:
            meta["finalizers"] = value.split()
        elif key == OWNERS:
            references = json.loads(value)
        elif key == GENERATE_NAME:
            meta["generateName"] = value
        elif key.startswith(ANNOTATION):
            annotations[key.removeprefix(ANNOTATION)] = value
        elif key not in (DELETION_TIMESTAMP, FIELD_OWNERS):
            labels[key.removeprefix(LABEL)] = value
    if labels:
        meta["labels"] = labels
    if annotations:
        meta["annotations"] = annotations
    if (owner := resource.owner) is not None and not any(
        each.get("controller") and each.get("uid") == owner.uid for each in references
    ):
        references = [*(each for each in references if not each.get("controller")), owner_reference(owner)]
    if references:
        meta["ownerReferences"] = references
    body = type.body_of(resource.data.value) if resource.data is not None else {}
    return {"apiVersion": type.api_version, "kind": type.name.kind, "metadata": meta, **body}


def id_path(type: KubernetesType[Any], id: pb.Id, subresource: str = "") -> str:
    """Return the path of an object by its id in a request."""
    namespace = "" if id.tenancy is None else id.tenancy.namespace
    return type.path(namespace, id.name, subresource)

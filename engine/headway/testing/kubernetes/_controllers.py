"""The work of a cluster's own controllers, which is done only when a test calls for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from headway.testing.kubernetes._cluster import FOREGROUND, ORPHAN, ModelCluster, Name, Object, Options, Target

_GONE = {"propagationPolicy": "Background"}


def collect_garbage(cluster: ModelCluster, most: int | None = None) -> int:
    """Do the work of the garbage collector, in at most ``most`` writes, and return their number."""
    done = 0
    while (most is None or done < most) and (step := next(_garbage(cluster), None)) is not None:
        step()
        done += 1
    return done


def has_work(cluster: ModelCluster) -> bool:
    """Return True if `collect_garbage` or `end_namespaces` would write something."""
    ends = any(name.plural == "namespaces" and _is_marked(each) for name, each in cluster.objects.items())
    return ends or next(_garbage(cluster), None) is not None


def end_namespaces(cluster: ModelCluster) -> None:
    """Delete the objects of namespaces that are being deleted, and then the namespaces."""
    for name, each in list(cluster.objects.items()):
        if name.plural == "namespaces" and _is_marked(each):
            for inner in [inner for inner in cluster.objects if inner.namespace == name.name]:
                cluster.delete(_target(cluster, inner), {})
            if not any(inner.namespace == name.name for inner in cluster.objects):
                cluster.remove(name, each)


def _garbage(cluster: ModelCluster) -> Iterator[Callable[[], object]]:
    """Iterate over the writes that are due. The first one changes what the others are."""
    for name, each in cluster.objects.items():
        target, references = _target(cluster, name), _references(each)
        there = [reference for reference in references if _exists(cluster, name, reference)]
        if references and not there and not _is_marked(each):
            yield partial(cluster.delete, target, _GONE)
        elif there and len(there) < len(references):
            yield partial(_change, cluster, target, ownerReferences=there)
        own = each["metadata"].get("finalizers", ())
        if _is_marked(each) and (FOREGROUND in own or ORPHAN in own):
            yield from _dependents(cluster, target, each["metadata"]["uid"], own)


def _dependents(
    cluster: ModelCluster, owner: Target, uid: str, finalizers: list[str]
) -> Iterator[Callable[[], object]]:
    """Delete or release the dependents of an object that is being deleted, and then let it go."""
    waits = False
    for name, each in cluster.objects.items():
        target, references = _target(cluster, name), _references(each)
        mine = [reference for reference in references if reference["uid"] == uid]
        if mine and ORPHAN in finalizers:
            others = [reference for reference in references if reference["uid"] != uid]
            yield partial(_change, cluster, target, ownerReferences=others)
        elif mine:
            waits = waits or any(reference.get("blockOwnerDeletion") for reference in mine)
            if not _is_marked(each):
                yield partial(cluster.delete, target, _GONE)
    if not waits:
        rest = [each for each in finalizers if each not in (FOREGROUND, ORPHAN)]
        yield partial(_change, cluster, owner, finalizers=rest)


def _exists(cluster: ModelCluster, dependent: Name, reference: Mapping[str, Any]) -> bool:
    group = reference["apiVersion"].rpartition("/")[0]
    for kind in cluster.kinds.values():
        if (kind.group, kind.kind) == (group, reference["kind"]):
            namespace = dependent.namespace if kind.namespaced else ""
            found = cluster.objects.get(Target(kind, namespace, reference["name"]).stored)
            return found is not None and found["metadata"]["uid"] == reference["uid"]
    return False


def _references(object: Object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = object["metadata"].get("ownerReferences", [])
    return found


def _is_marked(object: Object) -> bool:
    return "deletionTimestamp" in object["metadata"]


def _target(cluster: ModelCluster, name: Name) -> Target:
    kind = next(each for each in cluster.kinds.values() if (each.group, each.plural) == name[:2])
    return Target(kind, name.namespace, name.name)


def _change(cluster: ModelCluster, target: Target, **fields: Any) -> Object:
    def make(object: Object) -> Object:
        return {**object, "metadata": {**object["metadata"], **fields}}

    return cluster.update(target, make, Options("kube-controller-manager"))

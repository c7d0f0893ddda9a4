"""The documents that a person applies before a program runs: its CRDs and its rights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headway.controller import App
from headway.engine import combine_apps
from headway.kubernetes._crd import Document, Names, Use, Version, crd_of, rbac_of
from headway.kubernetes._types import CORE, KubernetesType
from headway.kubernetes._webhook_config import conversion, converted_kinds, place_of, rules
from headway.resource import Scope, ScopedType


def crds(*apps: App, webhooks_at: str | None = None) -> list[Document]:
    """Return the CustomResourceDefinitions of the custom resources of some apps, in order of their names.

    Args:
        webhooks_at: where `open_webhooks` is reached. A kind with converters then names its webhook from the beginning.

    Raises DeclarationError if the versions of a kind do not fit together.
    """
    found: dict[tuple[str, str], tuple[Names, list[Version]]] = {}
    for type in _types(apps):
        if type.crd is not None:
            names, version = type.crd
            found.setdefault(type.kind, (names, []))[1].append(version)
    made = {kind: crd_of(*found[kind]) for kind in sorted(found)}
    if webhooks_at is not None:
        registry, _ = combine_apps(apps)
        for kind, _ in converted_kinds(registry):
            made[kind]["spec"]["conversion"] = conversion(place_of(webhooks_at))
    return list(made.values())


def rights(
    *apps: App, program: str, namespace: str, only_namespace: bool = False, webhooks: bool = False
) -> list[Document]:
    """Return the service account of a program, its roles and their bindings.

    A controller that does not declare what it ``writes`` may write every type that it watches. A type that is watched
    in some namespaces alone (``within(namespace=...)``) has its rights there, also for writes.

    Args:
        program: the name of the documents.
        namespace: where the program runs, and has its leases.
        only_namespace: True if it works on the objects of this namespace alone.
        webhooks: True if it serves webhooks.

    Raises DeclarationError if the apps do not fit together, or use a type without namespaces in one alone.
    """
    registry, definitions = combine_apps(apps)
    managed, written, places = set[Any](), set[Any](), dict[Any, set[str]]()
    for each in definitions.values():
        used = (*each.types, *(each.reads or ()))
        writes = each.types if each.writes is None else each.writes
        # What a controller writes and does not read may be anywhere.
        for type in (*used, *(type for type in writes if type.name not in {other.name for other in used})):
            namespace_of = type.range.namespace if isinstance(type, ScopedType) else "*"
            places.setdefault(type.name, set()).add(namespace_of)
        managed.add(each.manages.name)
        written.update(type.name for type in writes)
    uses = [
        Use(
            "" if type.name.group == CORE else type.name.group,
            type.plural,
            manages=type.name in managed,
            writes=type.name in written,
            cluster_scoped=type.scope is Scope.CLUSTER,
            namespaces=() if "*" in (found := places.get(type.name, {"*"})) else sorted(found),
        )
        for type in _types(apps)
    ]
    further = rules(apps, registry, namespace) if webhooks else ()
    return rbac_of(program, uses, *further, namespace=namespace, only_namespace=only_namespace)


def _types(apps: Sequence[App]) -> Iterator[KubernetesType[Any]]:
    registry, _ = combine_apps(apps)
    return (each for each in registry if isinstance(each, KubernetesType))

"""Computed exports: the exported services of a partition, and the peers that may use them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import headway
from catalog.application import app
from catalog.checks.exports import GLOBAL
from catalog.computed import RETRIED, condition, delete_computed, id_text, write_computed
from catalog.messages import (
    ComputedExportedService,
    ComputedExportedServiceConsumer,
    ComputedExportedServices,
    ExportedServicesConsumer,
)
from catalog.statuses import content_or_status, write_status
from catalog.types import (
    COMPUTED_EXPORTED_SERVICES,
    EXPORTED_SERVICES,
    NAMESPACE_EXPORTED_SERVICES,
    PARTITION_EXPORTED_SERVICES,
    SERVICE,
)
from headway import mappers, predicates

KEY = "consul.io/exported-services"
"""The key of the status on computed exports, and on exports with consumers that do not exist."""
COMPUTED = "ExportedServicesComputed"
EXPORTS: tuple[headway.ResourceType[Any], ...] = (
    EXPORTED_SERVICES,
    NAMESPACE_EXPORTED_SERVICES,
    PARTITION_EXPORTED_SERVICES,
)


def _appears(old: headway.Resource[Any] | None, new: headway.Resource[Any] | None) -> bool:
    """Return True unless a resource existed before and exists now. Nothing else of a service matters here."""
    return old is None or new is None


def _partition(resource: headway.Resource[Any]) -> str:
    return resource.id.partition


SERVICES = headway.indexes.by(SERVICE, "path", lambda service: service.id.key)
"""The services by partition, namespace and name, which are prefixes of each other."""
BY_PARTITION = [headway.indexes.by(each, "partition", _partition) for each in EXPORTS]
to_global = mappers.reference(lambda _: GLOBAL)


@app.controller(
    name="exported-services",
    manages=COMPUTED_EXPORTED_SERVICES,
    when=predicates.not_own_writes(),
    watches=[
        *(headway.watch(each, to_global, when=content_or_status(KEY)) for each in EXPORTS),
        headway.watch(SERVICE, to_global, when=_appears),
    ],
    indexes=[SERVICES, *BY_PARTITION],
    writes=[COMPUTED_EXPORTED_SERVICES, *EXPORTS],
)
async def compute_exports(rt: headway.Runtime, request: headway.Request[ComputedExportedServices]) -> None:
    """Compute the exports of one partition. Without exported services, the partition has none."""
    stored = rt.resource(request)
    exports: list[headway.Resource[Any]] = [
        each for index in BY_PARTITION for each in rt.cache.index(index, request.id.partition)
    ]
    groups: set[str] = set()
    peers: dict[headway.ResourceId, set[str]] = {}
    for export in exports:
        conditions = unresolved(export.data.consumers)
        groups.update(each.sameness_group for each in export.data.consumers if each.sameness_group)
        if conditions or KEY in export.status:
            await write_status(rt, export, KEY, conditions)
        for id in exported(rt.cache, export):
            peers.setdefault(id, set()).update(each.peer for each in export.data.consumers if each.peer)
    try:
        if not peers:
            await delete_computed(rt, stored)
            return
        wanted = COMPUTED_EXPORTED_SERVICES.new(GLOBAL, listed(peers), partition=request.id.partition)
        computed = await write_computed(rt, wanted)
    except RETRIED:
        raise
    except headway.errors.CallerError as error:
        if stored is not None:
            await write_status(rt, stored, KEY, [condition(COMPUTED, False, str(error))])
        raise
    if computed is not None:
        done = condition(COMPUTED, True, "Exported services have been computed")
        await write_status(rt, computed, KEY, [done, *missing_groups(groups)])


def exported(cache: headway.CacheReader, export: headway.Resource[Any]) -> Iterable[headway.ResourceId]:
    """Return the ids of the services that an export selects. Names of services that do not exist are skipped."""
    partition, namespace, _ = export.id.key
    if export.type is EXPORTED_SERVICES:
        found = [each for name in export.data.services for each in cache.index(SERVICES, (partition, namespace, name))]
    elif export.type is NAMESPACE_EXPORTED_SERVICES:
        found = cache.index_prefix(SERVICES, (partition, namespace))
    else:
        found = cache.index_prefix(SERVICES, (partition,))
    return [each.id.without_uid() for each in found]


def listed(peers: dict[headway.ResourceId, set[str]]) -> ComputedExportedServices:
    """Return the computed exports, in the order of the services' texts and of the peers' names."""
    return ComputedExportedServices(
        services=[
            ComputedExportedService(
                target_ref=id.reference(),
                consumers=[ComputedExportedServiceConsumer(peer=peer) for peer in sorted(peers[id])],
            )
            for id in sorted(peers, key=id_text)
        ]
    )


def unresolved(consumers: Sequence[ExportedServicesConsumer]) -> list[headway.Condition]:
    """Return the conditions of an export with consumers that nothing can be exported to.

    Validation refuses them, but a resource that was stored before the rule may have them. They are skipped.
    """
    conditions = missing_groups({each.sameness_group for each in consumers if each.sameness_group})
    others = [str(index) for index, each in enumerate(consumers) if not (each.peer or each.sameness_group)]
    if others:
        text = f"Some consumers are not peers : {','.join(others)}"
        conditions.append(condition("UnsupportedConsumers", True, text, "UnsupportedConsumers"))
    return conditions


def missing_groups(groups: Iterable[str]) -> list[headway.Condition]:
    """Return the condition that names the sameness groups that do not exist. Without any, the list is empty."""
    names = ",".join(sorted(groups))
    text = f"Some SamenessGroups cannot be resolved : {names}"
    return [condition("MissingSamenessGroups", True, text, "MissingSamenessGroups")] if names else []

"""Computed traffic permissions: all permissions to send traffic to a workload identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import headway
from catalog.application import app
from catalog.computed import RETRIED, condition, write_computed
from catalog.messages import (
    Action,
    ComputedTrafficPermissions,
    NamespaceTrafficPermissions,
    PartitionTrafficPermissions,
    TrafficPermissions,
)
from catalog.statuses import content_or_status, write_status
from catalog.types import (
    COMPUTED_TRAFFIC_PERMISSIONS,
    NAMESPACE_TRAFFIC_PERMISSIONS,
    PARTITION_TRAFFIC_PERMISSIONS,
    TRAFFIC_PERMISSIONS,
    WORKLOAD_IDENTITY,
)
from headway import mappers, predicates

KEY = "consul.io/traffic-permissions"
"""The key of the status on permissions of all kinds, and on computed ones."""
COMPUTED, NOT_COMPUTED = "Traffic permissions have been computed", "Traffic permissions have not been computed"
PROCESSED = condition(COMPUTED, True, "Traffic Permission processed successfully")

Permissions = TrafficPermissions | NamespaceTrafficPermissions | PartitionTrafficPermissions


def _identity(permissions: headway.Resource[TrafficPermissions]) -> str:
    destination = permissions.data.destination
    return "" if destination is None else destination.identity_name


def _units(resource: headway.Resource[Any]) -> tuple[str, str]:
    return (resource.id.partition, resource.id.namespace)


def _partition(resource: headway.Resource[Any]) -> tuple[str]:
    return (resource.id.partition,)


# By names and not by ids: a name that no identity can have is refused as part of an id, and its index would stay wrong.
BY_IDENTITY = headway.indexes.by(TRAFFIC_PERMISSIONS, "identity", lambda each: (*_units(each), _identity(each)))
BY_NAMESPACE = headway.indexes.by(NAMESPACE_TRAFFIC_PERMISSIONS, "namespace", _units)
BY_PARTITION = headway.indexes.by(PARTITION_TRAFFIC_PERMISSIONS, "partition", _partition)
IDENTITIES = headway.indexes.by(WORKLOAD_IDENTITY, "tenancy", _units)


@app.controller(
    name="traffic-permissions",
    manages=COMPUTED_TRAFFIC_PERMISSIONS,
    when=predicates.not_own_writes(),
    watches=[
        headway.watch(WORKLOAD_IDENTITY, mappers.same_name(), when=content_or_status(KEY)),
        # Called with the old and the new state: if permissions move, both identities are reconciled.
        headway.watch(TRAFFIC_PERMISSIONS, mappers.reference(_identity), when=content_or_status(KEY)),
        headway.watch(
            NAMESPACE_TRAFFIC_PERMISSIONS,
            mappers.through(WORKLOAD_IDENTITY, mappers.index(IDENTITIES, value=_units), mappers.same_name()),
            when=content_or_status(KEY),
        ),
        headway.watch(
            PARTITION_TRAFFIC_PERMISSIONS,
            mappers.through(WORKLOAD_IDENTITY, mappers.index_prefix(IDENTITIES, _partition), mappers.same_name()),
            when=content_or_status(KEY),
        ),
    ],
    indexes=[BY_IDENTITY, BY_NAMESPACE, BY_PARTITION, IDENTITIES],
    writes=[
        COMPUTED_TRAFFIC_PERMISSIONS,
        TRAFFIC_PERMISSIONS,
        NAMESPACE_TRAFFIC_PERMISSIONS,
        PARTITION_TRAFFIC_PERMISSIONS,
    ],
    concurrency=8,
)
async def compute_permissions(rt: headway.Runtime, request: headway.Request[ComputedTrafficPermissions]) -> None:
    """Collect the permissions of one identity. The identity owns the result, and the result is deleted with it."""
    identity = rt.cache.get(WORKLOAD_IDENTITY, request.id._replace(type=WORKLOAD_IDENTITY.name))
    if identity is None:
        return
    units = _units(identity)
    found: list[headway.Resource[Any]] = [
        *rt.cache.index(BY_IDENTITY, (*units, identity.name)),
        *rt.cache.index(BY_PARTITION, units[:1]),
        *rt.cache.index(BY_NAMESPACE, units),
    ]
    wanted = COMPUTED_TRAFFIC_PERMISSIONS.new(
        identity.name, collect([each.data for each in found]), partition=units[0], namespace=units[1], owner=identity
    )
    try:
        computed = await write_computed(rt, wanted)
    except RETRIED:
        raise
    except headway.errors.CallerError as error:
        stored = rt.resource(request)
        if stored is not None:
            message = f"Unable to calculate new permission set for Workload identity {identity.name}"
            await write_status(rt, stored, KEY, [condition(NOT_COMPUTED, False, f"{message}, error details: {error}")])
        raise
    if computed is None:
        return
    for each in found:
        # Every identity of these permissions computes the same status, so only the first reconcile writes it.
        await write_status(rt, each, KEY, [PROCESSED])
    some = "no" if computed.data.is_default else "new"
    message = f"Workload identity {identity.name} has {some} permissions"
    await write_status(rt, computed, KEY, [condition(COMPUTED, True, message)])


def collect(found: Sequence[Permissions]) -> ComputedTrafficPermissions:
    """Return the permissions of an identity, in the order of those found. Without any, they are the default."""
    computed = ComputedTrafficPermissions(is_default=not found)
    for each in found:
        allows = each.action == Action.ACTION_ALLOW
        (computed.allow_permissions if allows else computed.deny_permissions).extend(each.permissions)
    return computed

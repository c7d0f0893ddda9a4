"""The type of quotas: limits of what a partition or a namespace may hold. Pure."""

from __future__ import annotations

from headway._gen.headway.tenancy.v1 import Quota
from headway.resource import NAMESPACE, Hooks, Resource, ResourceType, Scope, builtin, name_problem, type_problem

_OWN_GROUPS = ("internal", "tenancy", "peering", "pause", "event")

HIGHEST_LIMIT = 2**63 - 1
"""The highest limit of a quota."""


def quota_problem(quota: Quota) -> str | None:
    """Return what is wrong with a quota, or None."""
    for field, unit in (("partition", quota.partition), ("namespace", quota.namespace)):
        if unit and (problem := name_problem(field, unit)):
            return problem
    if bool(quota.group) != bool(quota.kind):
        given, missing = ("group", "kind") if quota.group else ("kind", "group")
        return f"{missing} is required with {given}, as in group: staff, kind: Team; omit both to count every type"
    if quota.kind and (problem := type_problem(quota.group, "v1", quota.kind)):
        return problem
    if quota.group in _OWN_GROUPS and (quota.group, quota.kind) != NAMESPACE.kind:
        return (
            f"kind {quota.group}.{quota.kind} is Headway's own, which no quota counts; tenancy.Namespace can be limited"
        )
    if quota.max_resources is None and quota.max_bytes is None:
        return "max_resources or max_bytes is required, as in max_resources: 1000"
    for field, limit in (("max_resources", quota.max_resources), ("max_bytes", quota.max_bytes)):
        if limit is not None and not 0 <= limit <= HIGHEST_LIMIT:
            return f"{field} must be from 0 to {HIGHEST_LIMIT}, got {limit}"
    return None


def _check(quota: Resource[Quota]) -> None:
    if problem := quota_problem(quota.data):
        raise ValueError(f"data.{problem}")


QUOTA = builtin(
    ResourceType(
        "tenancy",
        "v1",
        "Quota",
        Quota,
        scope=Scope.CLUSTER,
        hooks=Hooks(validate=_check),
        columns={
            "FOR PARTITION": "partition",
            "FOR NAMESPACE": "namespace",
            "KIND": "kind",
            "MAX RESOURCES": "max_resources",
            "MAX BYTES": "max_bytes",
        },
    )
)
"""The type of quotas. They have no tenancy, so that a right within a partition does not include its quotas."""

"""Computed failover policies: the policy of a service, for each of its ports and only with services that exist."""

import headway
from catalog import failover
from catalog.application import app
from catalog.computed import delete_computed, write_computed
from catalog.messages import ComputedFailoverPolicy, FailoverPolicy, Service
from catalog.ports import destinations
from catalog.statuses import content_or_status, write_status
from catalog.types import COMPUTED_FAILOVER_POLICY, FAILOVER_POLICY, SERVICE
from headway import mappers, predicates

KEY = "consul.io/failover-policy"
"""The key of the status on a policy and on its computed policy."""


def _destinations(policy: headway.Resource[FailoverPolicy]) -> list[tuple[str, str, str]]:
    named = destinations(policy.data.config, policy.data.port_configs)
    return [id.key for id in failover.service_ids(named)]


POLICIES_BY_DESTINATION = headway.indexes.by_many(FAILOVER_POLICY, "destination", _destinations)


@app.controller(
    name="failover-policy",
    manages=COMPUTED_FAILOVER_POLICY,
    when=predicates.not_own_writes(),
    watches=[
        headway.watch(FAILOVER_POLICY, mappers.same_name(), when=content_or_status(KEY)),
        # By the policies and not by the computed references: those are written only after the first reconcile.
        headway.watch(
            SERVICE,
            mappers.union(
                mappers.same_name(),
                mappers.through(
                    FAILOVER_POLICY,
                    mappers.index(POLICIES_BY_DESTINATION, value=lambda service: service.id.key),
                    mappers.same_name(),
                ),
            ),
            when=predicates.data_changed(),
        ),
    ],
    indexes=[POLICIES_BY_DESTINATION],
    writes=[COMPUTED_FAILOVER_POLICY, FAILOVER_POLICY],
    concurrency=8,
)
async def compute_failover(rt: headway.Runtime, request: headway.Request[ComputedFailoverPolicy]) -> None:
    """Compute the policy of one service. The policy owns the result, which exists only while the service does."""
    stored = rt.resource(request)
    policy = rt.cache.get(FAILOVER_POLICY, request.id._replace(type=FAILOVER_POLICY.name))
    if policy is None:
        await delete_computed(rt, stored)
        return
    service = rt.cache.get(SERVICE, request.id._replace(type=SERVICE.name))
    if service is None:
        await delete_computed(rt, stored)
        await write_status(rt, policy, KEY, [failover.MISSING_SERVICE])
        return

    def find(id: headway.ResourceId) -> Service | None:
        found = rt.cache.get(SERVICE, id)
        return None if found is None else found.data

    data, conditions = failover.compute(policy.data, service.id.without_uid(), service.data, find)
    wanted = COMPUTED_FAILOVER_POLICY.new(
        policy.name, data, partition=policy.id.partition, namespace=policy.id.namespace, owner=policy
    )
    computed = await write_computed(rt, wanted)
    if computed is not None:
        await write_status(rt, policy, KEY, conditions)
        await write_status(rt, computed, KEY, conditions)

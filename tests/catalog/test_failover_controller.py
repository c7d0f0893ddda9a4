"""The failover controller: FO-1 to FO-3 and FO-8 of Consul's, with W-1, W-14 and W-27 done better."""

from __future__ import annotations

import headway
from catalog.controllers.failover import KEY
from catalog.messages import Service
from catalog.types import COMPUTED_FAILOVER_POLICY, FAILOVER_POLICY, SERVICE
from headway.testing import one_shot
from tests.catalog.failovers import API, destinations, policy, to
from tests.catalog.policies import alone, conditions, settled

APP, NAME = alone("failover-policy"), "failover-policy"
COMPUTED = COMPUTED_FAILOVER_POLICY.id("api")
POLICY = FAILOVER_POLICY.new("api", policy(to("b", "a")))
SERVICES = [SERVICE.new(name, API) for name in ("api", "a", "b")]
OK = ("accepted", "TRUE", "Ok", "failover policy was accepted")
MISSING = ("accepted", "FALSE", "MissingService", "service for failover policy does not exist")


async def test_fo1_changes_of_services_and_policies_reconcile_the_computed_policy() -> None:
    """The service of the same name, each destination even before it exists, and the policy."""
    async with one_shot(APP, NAME) as shot:
        await shot.given(POLICY)
        assert await shot.mapped(FAILOVER_POLICY, new=POLICY) == [COMPUTED]
        assert await shot.mapped(SERVICE, new=SERVICES[0]) == [COMPUTED]
        assert await shot.mapped(SERVICE, new=SERVICES[1]) == [COMPUTED_FAILOVER_POLICY.id("a"), COMPUTED]
        assert await shot.mapped(SERVICE, new=SERVICE.new("c", API)) == [COMPUTED_FAILOVER_POLICY.id("c")]


async def test_fo1_status_of_a_service_reconciles_nothing() -> None:
    async with one_shot(APP, NAME) as shot:
        _, service, *_ = await shot.given(POLICY, *SERVICES)
        await shot.requests()
        await shot.client.write_status(service, "other", [headway.Condition(type="Seen")])
        assert await shot.requests() == []
        await shot.given(SERVICE.new("a", Service()))
        assert COMPUTED in [each.id for each in await shot.requests()]


async def test_fo2_w27_without_a_policy_there_is_no_computed_policy() -> None:
    """The policy owns it, so it goes even while no controller runs. One that a user has made is deleted as well."""
    async with one_shot(APP, NAME) as shot:
        stored, *_ = await shot.given(POLICY, *SERVICES)
        await settled(shot, COMPUTED)
        made = await shot.client.read(COMPUTED_FAILOVER_POLICY, "api")
        assert made.owner == stored.id
        await shot.client.delete(stored)
        await headway.until_gone(shot.client, COMPUTED_FAILOVER_POLICY, "api")

        await shot.given(COMPUTED_FAILOVER_POLICY.new("api"))
        assert [each.what for each in await settled(shot, COMPUTED)] == ["delete"]


async def test_fo3_policy_waits_for_its_service_and_says_so() -> None:
    """The status is on the policy alone. A service that is created later heals it, and one that goes breaks it."""
    async with one_shot(APP, NAME) as shot:
        await shot.given(POLICY, *SERVICES[1:])
        assert [each.what for each in await settled(shot, COMPUTED)] == ["status"]
        assert conditions(await shot.client.read(FAILOVER_POLICY, "api"), KEY) == [MISSING]
        await shot.given(SERVICES[0])
        await settled(shot, COMPUTED)
        assert conditions(await shot.client.read(FAILOVER_POLICY, "api"), KEY) == [OK]
        await shot.client.delete(SERVICES[0])
        assert [each.what for each in await settled(shot, COMPUTED)] == ["delete", "status"]
        assert await shot.client.get(COMPUTED_FAILOVER_POLICY, "api") is None


async def test_fo8_writes_the_computed_policy_then_the_statuses_of_both() -> None:
    """Each status has its own generation. An equal result is not written again, but the new generation is observed."""
    async with one_shot(APP, NAME) as shot:
        await shot.given(POLICY, *SERVICES)
        done = await settled(shot, COMPUTED)
        assert [(each.what, each.id.type.kind) for each in done] == [
            ("write", "ComputedFailoverPolicy"),
            ("status", "FailoverPolicy"),
            ("status", "ComputedFailoverPolicy"),
        ]
        made = await shot.client.read(COMPUTED_FAILOVER_POLICY, "api")
        assert destinations(made.data.port_configs["http"]) == [("b", "http"), ("a", "http")]
        assert [each.name for each in made.data.bound_references] == ["a", "api", "b"]
        assert conditions(made, KEY) == conditions(await shot.client.read(FAILOVER_POLICY, "api"), KEY) == [OK]

        await shot.given(FAILOVER_POLICY.new("api", POLICY.data, metadata={"team": "core"}))
        done = await settled(shot, COMPUTED)
        assert [(each.what, each.id.type.kind) for each in done] == [("status", "FailoverPolicy")]


async def test_fo8_computed_policy_that_a_user_changes_or_deletes_is_written_again() -> None:
    async with one_shot(APP, NAME) as shot:
        await shot.given(POLICY, *SERVICES)
        await settled(shot, COMPUTED)
        made = await shot.client.read(COMPUTED_FAILOVER_POLICY, "api")
        await shot.requests()
        await shot.given(COMPUTED_FAILOVER_POLICY.new("api"))
        assert [each.id for each in await shot.requests()] == [COMPUTED]
        await settled(shot, COMPUTED)
        assert (await shot.client.read(COMPUTED_FAILOVER_POLICY, "api")).data == made.data
        await shot.requests()
        await shot.client.delete(made)
        assert [each.id for each in await shot.requests()] == [COMPUTED]
        await settled(shot, COMPUTED)
        assert (await shot.client.read(COMPUTED_FAILOVER_POLICY, "api")).data == made.data


async def test_policy_that_is_created_again_waits_until_the_computed_one_of_the_earlier_is_gone() -> None:
    """Its deletion reconciles the key again. The finalizer stands for a deletion that takes its time."""
    async with one_shot(APP, NAME) as shot:
        first, *_ = await shot.given(POLICY, *SERVICES)
        await settled(shot, COMPUTED)
        await shot.given(COMPUTED_FAILOVER_POLICY.new("api", metadata={"finalizers": "slow"}))
        await shot.client.delete(first)
        second, *_ = await shot.given(POLICY)
        assert await settled(shot, COMPUTED) == ()
        await shot.requests()
        held = await shot.client.read(COMPUTED_FAILOVER_POLICY, "api")
        held.finalizers = frozenset()
        await shot.client.write(held)
        await shot.client.delete(held)
        assert {each.id for each in await shot.requests()} == {COMPUTED}
        await settled(shot, COMPUTED)
        assert (await shot.client.read(COMPUTED_FAILOVER_POLICY, "api")).owner == second.id != first.id


async def test_w14_each_write_has_the_version_that_was_read() -> None:
    """A user's change of the computed policy is therefore never overwritten unseen. The first write only creates."""
    async with one_shot(APP, NAME) as shot:
        await shot.given(POLICY, *SERVICES)
        created = (await settled(shot, COMPUTED))[0].request
        made = await shot.client.read(COMPUTED_FAILOVER_POLICY, "api")
        await shot.given(SERVICE.new("api", Service(ports=API.ports[:1])))
        updated = (await settled(shot, COMPUTED))[0].request
        await shot.client.delete(SERVICES[0])
        last = await shot.client.read(COMPUTED_FAILOVER_POLICY, "api")
        deleted = (await settled(shot, COMPUTED))[0].request
        assert created.create_only
        assert [updated.resource.version, deleted.version] == [made.version, last.version]

"""The rules that a worker needs, as its errors report them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
import yaml

import headway
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.observe import unready
from tests.helpers.plain_types import Team

app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
OTHER = app.type("staff", "v1", "Other", Team)
server = headway.App("types")
for each in (TEAM, OTHER):
    server.registry.register(each)

HINT = re.compile(r"ask for one such as (\{.*?\})")


@app.controller(manages=TEAM)
async def teams(rt: headway.Runtime, request: headway.Request) -> None:
    """Record that the team was reconciled."""
    if (team := rt.cache.get(TEAM, request.id)) is not None and not team.data.note:
        await rt.client.apply(TEAM.new("core", Team(note="seen")))


def rule(*verbs: str, partition: str, namespace: str, type: str = "staff.v1.Team") -> Rule:
    return Rule(verbs=verbs, type=type, partition=partition, namespace=namespace)


async def missing_rule(engine: headway.Engine, token: str) -> Rule | None:
    """Run a worker until an error names a missing rule, and return that rule, or None after a reconcile."""
    found: list[Rule] = []
    told = trio.Event()

    def report(event: object) -> None:
        hint = HINT.search(f"{getattr(event, 'error', '')} {getattr(event, 'why', '')}")
        if hint is not None and not found:
            found.append(Rule(**yaml.safe_load(hint[1])))
        if hint is not None or (isinstance(event, headway.events.Reconciled)):
            told.set()

    async with headway.open_workers(engine.addresses, app, process="web-1", token=token, report=report):
        with trio.fail_after(20):
            await told.wait()
    return found[0] if found else None


async def test_reported_rules_are_all_that_a_worker_lacks() -> None:
    """A worker watches all tenancies and needs its lease, so rights in one tenancy are not enough.

    With the reported rules, the worker works.
    """
    text, token = new_token(["workers"])
    rules = [rule("*", partition="default", namespace="default")]
    access = Authorizer(Access([Policy("workers", rules)], [token]))
    async with headway.open_engine(
        "memory:", server, network=headway.Network(["127.0.0.1:0"], access=access)
    ) as engine:
        await engine.client.apply(TEAM.new("core", Team()))
        while (missing := await missing_rule(engine, text)) is not None:
            assert missing not in rules
            rules.append(missing)
            access.replace(Access([Policy("workers", rules)], [token]))
        assert (await engine.client.read(TEAM, "core")).data.note == "seen"
    assert rules[1:] == [
        Rule(verbs=["write"], type="internal.v1.Lease", partition="", namespace="", name_prefix="staff/teams"),
        rule("watch", partition="*", namespace="*"),
    ]


LEASES = Rule(verbs=["write"], type="internal.v1.Lease", partition="", namespace="", name_prefix="staff/")


async def test_worker_without_read_permission_waits_and_names_the_rule() -> None:
    """The worker does not start with an empty cache. As soon as it has the rule, it works."""
    text, token = new_token(["workers"])
    rules = [rule("watch", "write", partition="*", namespace="*"), LEASES]
    access = Authorizer(Access([Policy("workers", rules)], [token]))
    ended: list[headway.events.RunEnded] = []
    resting, done = trio.Event(), trio.Event()

    def report(event: object) -> None:
        assert done.is_set() or ended or not isinstance(event, headway.events.RunStarted)
        if isinstance(event, headway.events.RunEnded):
            ended.append(event)
            resting.set()
        elif isinstance(event, headway.events.Reconciled):
            done.set()

    async with headway.open_engine(
        "memory:", server, network=headway.Network(["127.0.0.1:0"], access=access)
    ) as engine:
        await engine.client.apply(TEAM.new("core", Team(note="seen")))
        async with headway.open_workers(engine.addresses, app, process="web-1", token=text, report=report) as workers:
            with trio.fail_after(20):
                await resting.wait()
                (why,) = unready(workers.status)
                assert (ended[0].controller, type(ended[0].error)) == ("staff/teams", headway.errors.PermissionDenied)
                for told in (str(ended[0].error), why):
                    assert (
                        "permission denied: you may not watch staff.v1.Team there: none of your rules lets you read any"
                        in told
                    )
                    hint = HINT.search(told)
                    assert hint is not None
                    assert Rule(**yaml.safe_load(hint[1])) == rule("read", partition="*", namespace="*")
                access.replace(
                    Access([Policy("workers", [*rules, rule("read", partition="*", namespace="*")])], [token])
                )
                await done.wait()
                assert unready(workers.status) == []


async def test_standby_without_read_permission_is_not_ready() -> None:
    """The standby could not take over from the leader."""
    able, token = new_token(["able"])
    unable, other = new_token(["unable"])
    everything = rule("*", partition="*", namespace="*")
    blind = rule("watch", "write", partition="*", namespace="*")
    policies = [Policy("able", [everything, LEASES]), Policy("unable", [blind, LEASES])]
    access = Authorizer(Access(policies, [token, other]))
    denied = trio.Event()

    def report(event: object) -> None:
        if isinstance(event, headway.events.StreamEnded):
            denied.set()

    with trio.fail_after(20):
        async with (
            headway.open_engine("memory:", server, network=headway.Network(["127.0.0.1:0"], access=access)) as engine,
            headway.open_workers(engine.addresses, app, process="web-1", token=able) as leader,
        ):
            await leader.wait_idle()
            async with headway.open_workers(
                engine.addresses, app, process="web-2", token=unable, report=report
            ) as standby:
                await denied.wait()
                await trio.testing.wait_all_tasks_blocked()
                (why,) = unready(standby.status)
    assert HINT.search(why) is not None


async def test_sharded_worker_without_permission_to_read_leases_waits_and_names_the_rule() -> None:
    """The worker would not see the other members, and would wait for all shards."""
    sharded = headway.App("staff")
    sharded.registry.register(TEAM)

    @sharded.controller(manages=TEAM, placement=headway.sharded(shards=2))
    async def teams(rt: headway.Runtime, request: headway.Request) -> None:
        """Do nothing."""

    text, token = new_token(["workers"])
    lists = Rule(verbs=["list"], type="internal.v1.Lease", partition="", namespace="", name_prefix="staff/")
    rules = [rule("*", partition="*", namespace="*"), LEASES, lists]
    access = Authorizer(Access([Policy("workers", rules)], [token]))
    ended: list[BaseException | None] = []
    resting = trio.Event()

    def report(event: object) -> None:
        if isinstance(event, headway.events.RunEnded):
            ended.append(event.error)
            resting.set()

    with trio.fail_after(20):
        async with (
            headway.open_engine("memory:", server, network=headway.Network(["127.0.0.1:0"], access=access)) as engine,
            headway.open_workers(engine.addresses, sharded, process="web-1", token=text, report=report),
        ):
            await resting.wait()
    assert isinstance(ended[0], headway.errors.PermissionDenied)
    hint = HINT.search(str(ended[0]))
    assert hint is not None
    assert Rule(**yaml.safe_load(hint[1])) == Rule(
        verbs=["read"], type="internal.v1.Lease", partition="", namespace="", name_prefix="staff/teams/members/"
    )


async def test_errors_name_no_type_without_a_rule_for_the_caller() -> None:
    """The type may be registered or not. To an anonymous caller, the error names no lease."""
    text, token = new_token(["others"])
    access = Authorizer(
        Access([Policy("others", [rule("*", partition="*", namespace="*", type="staff.v1.Other")])], [token])
    )
    async with (
        headway.open_engine("memory:", server, network=headway.Network(["127.0.0.1:0"], access=access)) as engine,
        headway.connect(engine.addresses, server, token=text) as other,
        headway.connect(engine.addresses, server) as nobody,
    ):
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: other.read(TEAM, "core"),
            lambda: other.list(TEAM),
            lambda: nobody.list(OTHER),
            lambda: nobody.leases.acquire("staff/teams", "me", 5.0),
        ]
        for call in calls:
            with pytest.raises(headway.errors.PermissionDenied) as refused:
                await call()
            assert "ask for one such as" not in str(refused.value)
        with pytest.raises(
            headway.errors.PermissionDenied, match=r"none of your rules covers all of it.*internal.v1.Lease"
        ):
            await other.leases.acquire("staff/teams", "me", 5.0)


async def test_worker_with_a_narrow_rule_for_reading_knows_the_position_of_the_store() -> None:
    """Any right to the type is enough to read the position, which wait_idle needs."""
    text, token = new_token(["workers"])
    lease = Rule(verbs=["write"], type="internal.v1.Lease", partition="", namespace="", name_prefix="staff/")
    narrow = Rule(verbs=["read"], type="staff.v1.Team", partition="default", namespace="default", name_prefix="core")
    rules = [rule("watch", "write", partition="*", namespace="*"), narrow, lease]
    access = Authorizer(Access([Policy("workers", rules)], [token]))
    async with headway.open_engine(
        "memory:", server, network=headway.Network(["127.0.0.1:0"], access=access)
    ) as engine:
        await engine.client.apply(TEAM.new("core", Team()))
        async with headway.open_workers(engine.addresses, app, process="web-1", token=text) as workers:
            with trio.fail_after(20):
                await workers.wait_idle()
        assert (await engine.client.read(TEAM, "core")).data.note == "seen"

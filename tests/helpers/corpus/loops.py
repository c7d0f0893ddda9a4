"""Reconcilers that never become idle, or become idle too early."""

from __future__ import annotations

import random
import time

import headway
from tests.helpers.corpus.staff import (
    Account,
    Staff,
    Team,
    cached,
    case,
    come_and_go,
    members_change,
    one_team,
    owned,
)

Request = headway.Request[Team]


@case("falcosecurity/falco-operator#356: every reconcile makes a write that triggers it again", one_team)
def wakes_itself(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def counts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None or (right and team.data.note.isdigit()):
            return
        team.data.note = str(int(team.data.note) + 1) if team.data.note.isdigit() else "1"
        await rt.client.write(team)


@case("nolar/kopf#686: every check writes the current time", one_team)
def writes_the_time(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def checks(rt: headway.Runtime, request: Request) -> headway.RequeueAfter | None:
        team = rt.resource(request)
        if team is None:
            return None
        # It looks at its status, so that each status that it writes calls it again.
        again = "again " if team.status else ""
        async with rt.conditions(team) as conditions:
            conditions.set("Checked", True, "" if right else f"{again}at {time.perf_counter()}")
        return headway.requeue_after(30)


@case("konflux-ci PR#5874: a set is written as a list in random order", one_team)
def any_order(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=owned(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        names = [f"n{at}" for at in range(9)]
        if not right:
            random.shuffle(names)
        await rt.apply(staff.account.new("all", Account(login=" ".join(names)), owner=team))


@case("kubernetes/ingress-gce PR#3235: two controllers overwrite each other's changes", one_team)
def two_of_different_minds(staff: Staff, right: bool) -> None:
    def declare(name: str) -> None:
        @staff.app.controller(manages=staff.team, name=name)
        async def notes(rt: headway.Runtime, request: Request) -> None:
            team = rt.resource(request)
            if team is None:
                return
            wanted = "agreed" if right else f"by {name}"
            if team.data.note != wanted:
                team.data.note = wanted
                await rt.client.write(team)

    declare("one")
    declare("other")


@case("posit-dev/team-operator PR#128: a reconciler that waits requeues itself without a delay", one_team)
def asks_at_once(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=owned(staff))
    async def waits(rt: headway.Runtime, request: Request) -> headway.RequeueAfter | None:
        team = rt.resource(request)
        if team is None or rt.cache.get(staff.account, "ada") is not None:
            return None
        async with rt.conditions(team) as conditions:
            conditions.set("Waiting", True)
        return headway.requeue_after(600) if right else headway.requeue_after(0)


@case(
    "messaging-topology-operator#864: a dependency is not watched, but read every ten hours",
    members_change,
)
def not_watched(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=owned(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is not None:
            async with rt.outputs(staff.account, owner=team) as wanted:
                for login in team.data.members:
                    await wanted.apply(login, Account(login=login))

    @staff.app.controller(manages=staff.team, watches=owned(staff) if right else cached(staff))
    async def counter(rt: headway.Runtime, request: Request) -> headway.RequeueAfter | None:
        team = rt.resource(request)
        if team is None:
            return None
        count = len(rt.cache.owned(staff.account, team))
        async with rt.conditions(team) as conditions:
            conditions.set("Counted", True, str(count))
        return headway.requeue_after(36_000)


@case("elastic/cloud-on-k8s#1984: a deleted resource is requeued forever", come_and_go)
def looks_after_the_gone(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=owned(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> headway.RequeueAfter | None:
        team = rt.resource(request)
        if team is None:
            return None if right else headway.requeue_after(600)
        async with rt.outputs(staff.account, owner=team) as wanted:
            for login in team.data.members:
                await wanted.apply(login, Account(login=login))
        return headway.requeue_after(600)


@case("kubernetes/cloud-provider-aws PR#1091: every event has a key of its own in the queue, so none merge", one_team)
def a_key_for_each_event(staff: Staff, right: bool) -> None:
    def everything(*_: object) -> list[headway.ResourceId]:
        return [staff.team.id("everything" if right else f"event-{random.getrandbits(40):x}")]

    @staff.app.controller(
        manages=staff.team, watches=[headway.watch(staff.team, everything), headway.watch(staff.account, everything)]
    )
    async def accounts(rt: headway.Runtime, _: Request) -> None:
        for team in rt.cache.list(staff.team):
            async with rt.outputs(staff.account, owner=team) as wanted:
                for login in team.data.members:
                    await wanted.apply(login, Account(login=login))

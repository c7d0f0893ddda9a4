"""Reconcilers that keep lasting state in a process's memory, or act on old information."""

from __future__ import annotations

import headway
from tests.helpers.corpus.staff import (
    Account,
    Staff,
    Team,
    another_comes_soon,
    cached,
    case,
    come_again,
    come_and_go,
    members_change,
    note_changes_soon,
    one_team,
    owned,
    two_changes_at_once,
)

Request = headway.Request[Team]


@case("k0sproject/k0smotron#1534: completed work is recorded only in memory", members_change)
def remembered_done(staff: Staff, right: bool) -> None:
    done: set[str] = set()

    @staff.app.controller(manages=staff.team, watches=owned(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        for login in team.data.members:
            if right or login not in done:
                done.add(login)
                await rt.apply(staff.account.new(login, Account(login=login), owner=team))


@case("nolar/kopf#698: the reconciler acts only on the difference to what this process saw last", members_change)
def remembered_difference(staff: Staff, right: bool) -> None:
    before: dict[str, set[str]] = {}

    @staff.app.controller(manages=staff.team, watches=owned(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        now = set(team.data.members)
        there = {account.data.login for account in rt.cache.owned(staff.account, team)}
        for login in sorted(now - there):
            await rt.client.apply(staff.account.new(login, Account(login=login), owner=team))
        gone = there - now if right else before.get(request.id.name, set()) - now
        for login in sorted(gone):
            found = rt.cache.get(staff.account, login)
            if found is not None:
                await rt.client.delete(found)
        before[request.id.name] = now


@case("operator-framework/java-operator-sdk#3013: a new resource is taken for an old one of the same name", come_again)
def remembered_by_name(staff: Staff, right: bool) -> None:
    known: dict[str, str] = {}

    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team, name = rt.resource(request), request.id.name
        if team is None:
            known.pop(name, None)
        elif right or name not in known:
            # Calls may arrive in another order than they were made in. The version shows which is newer.
            await staff.outside.put_newer(name, team.data.note, int(team.version))
            known[name] = team.data.note


@case("ManageIQ/kubeclient#599: there is no cleanup after a missed deletion", come_and_go)
def deletion_unheard(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team, name = rt.resource(request), request.id.name
        if not right:
            if team is not None:
                await staff.outside.put(name)
            elif name in staff.outside.disks:
                await staff.outside.remove(name)
            return
        if team is not None:
            async with rt.finalizer(team) as guarded:
                if guarded.alive:
                    await staff.outside.put_for(team.id.uid, name)
                elif guarded.cleaning_up:
                    await staff.outside.remove_for_good(team.id.uid, name)


@case("cilium/cilium PR#24870: created resources have no owner", come_and_go)
def no_owner(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=cached(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is not None:
            await rt.apply(staff.account.new("ada", Account(login="ada"), owner=team if right else None))
            return
        found = rt.cache.get(staff.account, "ada")
        if found is not None and found.owner is None:
            await rt.client.delete(found)


@case("ray-project/kuberay#715: a resource that an outdated list lacks is created again", one_team)
def stale_list_outside(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team, name = rt.resource(request), request.id.name
        if team is None or rt.controller in team.status:
            return
        if right:
            await staff.outside.put(name)
        elif not any(each.startswith(name) for each in await staff.outside.listed()):
            await staff.outside.make(name)
        async with rt.conditions(team) as conditions:
            conditions.set("Ready", True)


@case(
    "instaclustr/cassandra-operator#398: two lists of different times are compared, and resources are deleted",
    another_comes_soon,
)
def two_lists(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=owned(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is not None:
            await rt.apply(staff.account.new(f"of-{request.id.name}", Account(), owner=team))

    @staff.app.controller(manages=staff.team, watches=cached(staff))
    async def sweeper(rt: headway.Runtime, _: Request) -> None:
        if right:
            names = {team.name for team in rt.cache.list(staff.team)}
            there = rt.cache.list(staff.account)
        else:
            names = {team.name for team in await rt.client.list(staff.team)}
            there = await rt.client.list(staff.account)
        for account in there:
            if account.name.removeprefix("of-") not in names:
                await rt.client.delete(account)


@case(
    "kubernetes/kubernetes#130767: a state read before a wait overwrites later writes",
    two_changes_at_once,
)
def write_of_the_past(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def notes(rt: headway.Runtime, request: Request) -> None:
        team, name = rt.resource(request), request.id.name
        if team is None or team.data.note == "noted":
            return
        await staff.outside.put(name)
        if right:
            team.data.note = "noted"
            await rt.client.write(team)
        else:
            await rt.client.apply(staff.team.new(name, Team(members=team.data.members, note="noted")))


@case(
    "cilium/cilium PR#42920: a process without its lease still writes elsewhere, after its successor",
    one_team,
    processes=2,
)
def leader_of_the_past(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team, name = rt.resource(request), request.id.name
        if team is None or rt.controller in team.status:
            return
        if right:
            await staff.outside.put_newer(name, "", rt.term)
        else:
            await staff.outside.make(name)
        async with rt.conditions(team) as conditions:
            conditions.set("Ready", True)


@case(
    "HBASE-2312: a process resumes after its lease expired, and undoes its successor's work",
    note_changes_soon,
    processes=2,
)
def leader_asleep(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team, name = rt.resource(request), request.id.name
        if team is not None:
            await staff.outside.put_newer(name, team.data.note, int(team.version) if right else 0)

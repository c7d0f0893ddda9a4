"""Reconcilers that take the right steps in the wrong order, so that a crash between two steps is never repaired."""

from __future__ import annotations

import random
from typing import Any

import headway
from tests.helpers.corpus.staff import (
    Account,
    Staff,
    Team,
    cached,
    case,
    come_and_go,
    come_and_go_at_once,
    members_change,
    note_changes,
    one_team,
    owned,
)

Request = headway.Request[Team]


def _is_ready(rt: headway.Runtime, team: headway.Resource[Team]) -> bool:
    said = team.status.get(rt.controller)
    return said is not None and said.observed_generation == team.generation


async def _set_ready(rt: headway.Runtime, team: headway.Resource[Team], text: str = "") -> None:
    async with rt.conditions(team) as conditions:
        conditions.set("Ready", True, text)


async def _accounts(staff: Staff, rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    async with rt.outputs(staff.account, owner=team) as wanted:
        for login in team.data.members:
            await wanted.apply(login, Account(login=login))


@case("pravega/zookeeper-operator#312: progress is recorded before the work is done", members_change)
def status_before_work(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=owned(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None or _is_ready(rt, team):
            return
        if right:
            await _accounts(staff, rt, team)
            await _set_ready(rt, team)
        else:
            await _set_ready(rt, team)
            await _accounts(staff, rt, team)


@case("instaclustr/cassandra-operator#402: the finalizer is removed before the cleanup", come_and_go)
def finalizer_before_cleanup(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        if right:
            async with rt.finalizer(team) as guarded:
                if guarded.alive:
                    await staff.outside.put_for(team.id.uid, request.id.name)
                elif guarded.cleaning_up:
                    await staff.outside.remove_for_good(team.id.uid, request.id.name)
            return
        async with rt.finalizer(team) as guarded:
            if guarded.alive:
                await staff.outside.put(request.id.name)
            clean = guarded.cleaning_up
        if clean:
            await staff.outside.remove(request.id.name)


@case("pravega/zookeeper-operator#314: the work begins before its finalizer is added", come_and_go_at_once)
def finalizer_too_late(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        # A call of the outside world has no fence and may arrive after the cleanup. The cleanup makes its key invalid.
        uid, name = team.id.uid, request.id.name
        if not right and not team.is_deleting:
            await staff.outside.put_for(uid, name)
        async with rt.finalizer(team) as guarded:
            if guarded.alive:
                await staff.outside.put_for(uid, name)
            elif guarded.cleaning_up:
                await staff.outside.remove_for_good(uid, name)


@case(
    "Orange-OpenSource/casskop#316: the list of resources to delete is replaced before they are deleted", members_change
)
def list_before_deletion(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=cached(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        said = team.status.get(rt.controller)
        before = said.conditions[0].message.split() if said is not None and said.conditions else []
        # Before they exist: the next attempt may be for other members.
        noted = [*before, *team.data.members] if right else team.data.members
        await _set_ready(rt, team, " ".join(dict.fromkeys(noted)))
        for login in team.data.members:
            await rt.apply(staff.account.new(login, Account(login=login), owner=team))
        for login in before:
            found = rt.cache.get(staff.account, login)
            if login not in team.data.members and found is not None:
                await rt.client.delete(found)
        if right:
            await _set_ready(rt, team, " ".join(team.data.members))


@case("rabbitmq/cluster-operator#653: a creation has no id chosen by the caller, and is recorded afterwards", one_team)
def created_then_recorded(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None or _is_ready(rt, team):
            return
        if right:
            await staff.outside.put(request.id.name)
        else:
            await staff.outside.make(request.id.name)
        await _set_ready(rt, team)


@case("scylladb/scylla-operator PR#2493: a generated name is recorded after the resource was created", one_team)
def generated_name(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=cached(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None or _is_ready(rt, team):
            return
        name = request.id.name if right else f"{request.id.name}-{random.getrandbits(40):x}"
        await rt.client.apply(staff.account.new(name, Account(login="ada"), owner=team))
        await _set_ready(rt, team)


@case("kubernetes/kubernetes#67651: a lock that is a resource stays locked when its holder dies", one_team)
def lock_left_behind(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=cached(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> headway.RequeueAfter | None:
        team = rt.resource(request)
        if team is None:
            return None
        lock = rt.cache.get(staff.account, "lock")
        if not _is_ready(rt, team):
            if lock is not None and not right:
                return headway.requeue_after(5)
            if lock is None:
                lock = await rt.client.apply(staff.account.new("lock", Account(login=staff.process)))
            await staff.outside.put(request.id.name)
            # Before the lock is released: its next holder would repeat the work otherwise.
            await _set_ready(rt, team)
        if lock is not None:
            await rt.client.delete(lock)
        return None


@case(
    "cosi-project/runtime PR#461: each run increments a counter, and cannot know whether it already has", note_changes
)
def added_again(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=cached(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None or _is_ready(rt, team):
            return
        count = rt.cache.get(staff.account, "count")
        wanted = ord(team.data.note) if right else (count.data.count if count is not None else 0) + 1
        await rt.apply(staff.account.new("count", Account(count=wanted)))
        await _set_ready(rt, team)


@case("k8ssandra/cass-operator#118: a cleanup cannot be repeated", come_and_go)
def cleanup_once(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        async with rt.finalizer(team) as guarded:
            if guarded.alive:
                await staff.outside.put_for(team.id.uid, request.id.name)
            elif guarded.cleaning_up and right:
                await staff.outside.remove_for_good(team.id.uid, request.id.name)
            elif guarded.cleaning_up:
                await staff.outside.remove(request.id.name)


@case("crossplane/crossplane-runtime PR#283: a repeated creation fails, because the resource exists", one_team)
def creation_once(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None or _is_ready(rt, team):
            return
        try:
            await staff.outside.create(request.id.name)
        except FileExistsError:
            if not right:
                raise
        await _set_ready(rt, team)


def _rebuild(staff: Staff, right: bool) -> Any:
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        if right:
            await _accounts(staff, rt, team)
            return
        there = {each.data.login for each in rt.cache.owned(staff.account, team)}
        if there == set(team.data.members) and _is_ready(rt, team):
            return
        for account in rt.cache.owned(staff.account, team):
            await rt.client.delete(account)
        for login in team.data.members:
            await rt.client.apply(staff.account.new(login, Account(login=login), owner=team))
        await _set_ready(rt, team)

    return accounts


@case("instaclustr/cassandra-operator#407: a partial result is deleted and built again", one_team)
def torn_down(staff: Staff, right: bool) -> None:
    staff.app.controller(manages=staff.team, watches=owned(staff))(_rebuild(staff, right))


@case("bitpoke/mysql-operator#17: an interrupted start begins again and repeats its effects", one_team)
def begun_twice(staff: Staff, right: bool) -> None:
    async def begin(rt: headway.Runtime) -> None:
        if await rt.client.get(staff.account, "begun") is None:
            await (staff.outside.put("base") if right else staff.outside.make("base"))
            await rt.client.apply(staff.account.new("begun", Account()))

    @staff.app.controller(manages=staff.team, watches=cached(staff), initialiser=begin)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        if rt.resource(request) is not None:
            await staff.outside.put(request.id.name)


@case("bitpoke/mysql-operator#17: the same with a step, whose block ignores that it is uncertain", one_team)
def step_begun_twice(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        async with rt.step(team, "make-disk") as step:
            if not step.done:
                assert step.key
                await (staff.outside.put("base") if right else staff.outside.make("base"))

"""Reconcilers that draw a wrong conclusion from an error or a missing reply."""

from __future__ import annotations

import trio

import headway
from tests.helpers.corpus.staff import Account, Staff, Team, cached, case, members_change, note_changes, one_team, owned

Request = headway.Request[Team]


@case("kubernetes-sigs/controller-runtime#1464: a conflict is ignored, so the change is lost", note_changes)
def conflict_ignored(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=cached(staff))
    async def notes(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        try:
            await rt.apply(staff.account.new("note", Account(login=team.data.note), owner=team))
        except headway.Conflict:
            if right:
                raise


@case("opensandbox-group/OpenSandbox#1533: every error is swallowed, so there is no retry", note_changes)
def error_swallowed(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=cached(staff))
    async def notes(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        try:
            await rt.apply(staff.account.new("note", Account(login=team.data.note), owner=team))
        except headway.HeadwayError:
            if right:
                raise


@case("operator-framework/operator-sdk#4209: a transient failure is treated as permanent", note_changes)
def permanent_too_soon(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=cached(staff))
    async def notes(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        try:
            await rt.apply(staff.account.new("note", Account(login=team.data.note), owner=team))
        except headway.HeadwayError as error:
            if right:
                raise
            raise headway.PermanentFailure(str(error)) from error


@case("k0sproject/k0smotron PR#1535: a write without a reply is treated as one that was not done", one_team)
def retried_under_another_name(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=owned(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None or rt.cache.owned(staff.account, team):
            return
        try:
            await rt.client.apply(staff.account.new("ada", Account(login="ada"), owner=team))
        except headway.HeadwayError:
            if right:
                raise
            await rt.client.apply(staff.account.new("ada-again", Account(login="ada"), owner=team))


@case("kubernetes/kubernetes#10030: after a timeout the work is done in a second way as well", one_team)
def impatient(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team)
    async def disks(rt: headway.Runtime, request: Request) -> None:
        team, name = rt.resource(request), request.id.name
        if team is None or rt.controller in team.status:
            return
        with trio.move_on_after(2) as scope:
            await staff.outside.put(name)
        if scope.cancelled_caught:
            await staff.outside.put(name if right else f"{name}-spare")
        async with rt.conditions(team) as conditions:
            conditions.set("Ready", True)


@case(
    "kubernetes-sigs/controller-runtime#808: after a failure the other items are skipped for good",
    members_change,
)
def some_are_skipped(staff: Staff, right: bool) -> None:
    @staff.app.controller(manages=staff.team, watches=owned(staff))
    async def accounts(rt: headway.Runtime, request: Request) -> None:
        team = rt.resource(request)
        if team is None:
            return
        failed: list[Exception] = []
        for login in team.data.members:
            try:
                await rt.apply(staff.account.new(login, Account(login=login), owner=team))
            except headway.HeadwayError as error:
                failed.append(error)
        if failed and right:
            raise failed[0]

"""Typed declarations of controllers. mypy must find each ignored error, because an unused ignore is an error itself."""

from __future__ import annotations

from typing import assert_type

import trio

import headway
from tests.helpers.resources import Account, Team

app = headway.App("typed")
TEAM = app.type("typed", "v1", "Team", Team)
ACCOUNT = app.type("typed", "v1", "Account", Account)


def team_of(account: headway.Resource[Account], _: headway.CacheReader) -> list[headway.ResourceId]:
    return [TEAM.id(account.data.login)]


def same_login(old: headway.Resource[Account] | None, new: headway.Resource[Account] | None) -> bool:
    return old is None or new is None or old.data.login == new.data.login


@app.controller(
    manages=TEAM,
    when=lambda old, new: old is None or new is None or old.data.members != new.data.members,
    watches=[
        headway.watch(
            ACCOUNT, team_of, when=headway.predicates.all_of(same_login, headway.predicates.content_changed())
        ),
    ],
)
async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
    team = rt.resource(request)
    assert_type(team, headway.Resource[Team] | None)
    assert team is not None
    async with (
        rt.finalizer(team) as guarded,
        rt.conditions(team) as conditions,
        rt.outputs(ACCOUNT, owner=team) as made,
    ):
        assert_type(guarded.resource, headway.Resource[Team])
        assert_type(conditions, headway.Conditions[Team])
        assert_type(await made.apply("ada", Account()), headway.Resource[Account])
    assert_type(await rt.apply(team), headway.Resource[Team])


@headway.message
class Size:
    members: int = headway.field(1)


SIZE = headway.projection(TEAM, Size, lambda team: Size(members=len(team.data.members)))


def team_of_size(size: headway.Projected[Size], _: headway.CacheReader) -> list[headway.ResourceId]:
    return [size.id] if size.data.members else []


def smaller(old: headway.Projected[Size] | None, new: headway.Projected[Size] | None) -> bool:
    return old is None or new is None or new.data.members < old.data.members


GOLDEN = TEAM.within(metadata="tier=gold")


@app.controller(
    manages=GOLDEN,
    when=lambda old, new: old is None or new is None or old.data.members != new.data.members,
    watches=[headway.watch(ACCOUNT.within(namespace="a"), team_of)],
    name="golden",
)
async def golden(rt: headway.Runtime, request: headway.Request[Team]) -> None:
    """Reconcile a scope."""
    assert_type(rt.resource(request), headway.Resource[Team] | None)


headway.projection(GOLDEN, Size, lambda team: Size(members=len(team.data.members)))


@app.controller(manages=SIZE, when=lambda old, new: old is None or new is None or old.data.members > new.data.members)
async def sizes(_: headway.Runtime, __: headway.Request[Size]) -> None:
    """Reconcile a projection."""


headway.watch(SIZE, team_of_size, when=headway.predicates.none_of(smaller, headway.predicates.data_changed()))


@app.daemon(ACCOUNT, backoff=headway.Backoff(1.0, 2.0))
async def daemon(_: headway.Runtime, account: headway.Resource[Account]) -> None:
    assert_type(account.data, Account)


async def of_an_account(_: headway.Runtime, __: headway.Request[Account]) -> None:
    """Reconcile a type other than the managed one."""


def misuses() -> None:
    """Call everything in ways that mypy must reject. This function is never called itself."""
    app.controller(manages=TEAM)(of_an_account)  # type: ignore[arg-type]
    app.controller(manages=SIZE)(of_an_account)  # type: ignore[arg-type]
    app.controller(manages=SIZE, when=same_login)  # type: ignore[arg-type]
    headway.watch(SIZE, team_of)  # type: ignore[arg-type]
    headway.watch(ACCOUNT, headway.mappers.owner(), when=smaller)  # type: ignore[arg-type]
    app.daemon(TEAM)(daemon)  # type: ignore[arg-type]
    app.timer(ACCOUNT, every=1, jitters=0)(daemon)  # type: ignore[call-arg]
    headway.watch(TEAM, team_of)  # type: ignore[arg-type]
    headway.watch(TEAM, headway.mappers.owner(), when=same_login)  # type: ignore[arg-type]
    send, receive = trio.open_memory_channel[int](1)
    del send
    headway.sources.from_channel(receive, TEAM.id)  # type: ignore[arg-type]

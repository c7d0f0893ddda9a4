"""A caller who may watch opens a cache and subscribes, whatever the form of its rules: it may know its position."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import headway
from headway import field
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.errors import PermissionDenied

PATIENCE = 40.0


@headway.message(name="cached.v1.Team")
class Team:
    note: str = field(1)


app = headway.App("cached")
TEAM = app.type("cached", "v1", "Team", Team)
REGION = app.type("cached", "v1", "Region", Team, scope=headway.Scope.PARTITION)
SITE = app.type("cached", "v1", "Site", Team, scope=headway.Scope.CLUSTER)


def rule(*verbs: str, type: str = "cached.v1.Team", at: tuple[str, str] = ("*", "*"), prefix: str = "") -> Rule:
    partition, namespace = at
    return Rule(verbs=verbs, type=type, partition=partition, namespace=namespace, name_prefix=prefix)


class Guarded:
    """A server of one resource of each type, named a, and a caller whose rules a test replaces."""

    def __init__(self, *, anonymous: bool = False) -> None:
        text, token = new_token(["readers"])
        self.where = ""
        self.token = "" if anonymous else text
        self._policy = "anonymous" if anonymous else "readers"
        self._tokens = [] if anonymous else [token]
        self.access = Authorizer(Access([Policy(self._policy, [])], self._tokens))

    def allow(self, *rules: Rule) -> tuple[str, str]:
        """Give the caller these rules instead of its own, and return the address and the token."""
        self.access.replace(Access([Policy(self._policy, rules)], self._tokens))
        return self.where, self.token


@asynccontextmanager
async def guarded(*, anonymous: bool = False) -> AsyncIterator[Guarded]:
    it = Guarded(anonymous=anonymous)
    with trio.fail_after(PATIENCE):
        async with headway.open_engine(
            "memory:", app, network=headway.Network(["127.0.0.1:0"], access=it.access)
        ) as engine:
            for type in (TEAM, REGION, SITE):
                await engine.client.create(type.new("a", Team()))
            it.where = engine.addresses[0]
            yield it


async def cached(where: str, token: str, *types: headway.ResourceType[Any]) -> list[str]:
    """Return the names in a cache of the types."""
    async with headway.open_cache(where, app, watches=types, token=token) as cache:
        await cache.wait_for(cache.position)
        return [each.name for type in types for each in cache.list(type)]


async def subscribed(where: str, token: str, *subjects: Any) -> list[str]:
    """Return the names in the snapshot of a subscription."""
    async with headway.connect(where, app, token=token) as client, client.subscribe(subjects) as batches:
        batch = await anext(batches)
    return [event.resource.name for event in batch.events if not isinstance(event, headway.subscribing.Published)]


ALLOWED = {
    "view": (TEAM, [rule("view")]),
    "two verbs": (TEAM, [rule("watch", "read")]),
    "a rule for each verb": (TEAM, [rule("watch"), rule("read")]),
    "every verb": (TEAM, [rule("*")]),
    "every type": (TEAM, [rule("view", type="*")]),
    "a group": (TEAM, [rule("view", type="cached.*.*")]),
    "a kind of any group": (TEAM, [rule("view", type="*.v1.Team")]),
    "a kind of any version": (TEAM, [rule("view", type="cached.*.Team")]),
    "reads by prefix": (TEAM, [rule("watch"), rule("read", prefix="a")]),
    "reads in one tenancy": (TEAM, [rule("watch"), rule("read", at=("default", "default"))]),
    "reads of any namespace": (TEAM, [rule("watch"), rule("read", at=("default", "*"))]),
    "partition scope": (REGION, [rule("view", type="cached.v1.Region")]),
    "partition scope, no namespace": (REGION, [rule("view", type="cached.v1.Region", at=("*", ""))]),
    "partition scope, one read": (
        REGION,
        [
            rule("watch", type="cached.v1.Region", at=("*", "")),
            rule("read", type="cached.v1.Region", at=("default", "")),
        ],
    ),
    "cluster scope": (SITE, [rule("view", type="cached.v1.Site")]),
    "cluster scope, no tenancy": (SITE, [rule("view", type="cached.v1.Site", at=("", ""))]),
    "cluster scope, reads by prefix": (
        SITE,
        [rule("watch", type="*", at=("", "")), rule("read", type="*.*.Site", at=("", ""), prefix="a")],
    ),
}


@pytest.mark.parametrize("anonymous", [False, pytest.param(True, marks=pytest.mark.wide)])
async def test_caller_who_may_watch_opens_a_cache_and_subscribes(anonymous: bool) -> None:
    """It needs no other right, and sees what it may read."""
    async with guarded(anonymous=anonymous) as it:
        for form, (type, rules) in ALLOWED.items():
            where, token = it.allow(*rules)
            assert await cached(where, token, type) == ["a"], form
            assert await subscribed(where, token, type) == ["a"], form


NARROW = {
    "name prefix": ([rule("view", prefix="a")], headway.Subject(TEAM, name_prefix="a")),
    "one name": ([rule("view", prefix="a")], headway.Subject(TEAM, "a")),
    "partition": ([rule("view", at=("default", "*"))], headway.Subject(TEAM, partition="default")),
    "namespace": (
        [rule("view", at=("default", "default"))],
        headway.Subject(TEAM, partition="default", namespace="default"),
    ),
    "all three": (
        [rule("view", at=("default", "default"), prefix="a")],
        headway.Subject(TEAM, partition="default", namespace="default", name_prefix="a"),
    ),
}


async def test_caller_who_may_watch_a_part_subscribes_to_it() -> None:
    """A cache of the whole type is refused, and the error shows the missing rule."""
    async with guarded() as it:
        for form, (rules, subject) in NARROW.items():
            where, token = it.allow(*rules)
            assert await subscribed(where, token, subject) == ["a"], form
            with pytest.raises(PermissionDenied, match="ask for one such as") as caught:
                await cached(where, token, TEAM)
            said = 'verbs: [watch], type: cached.v1.Team, partition: "*", namespace: "*"'
            assert said in str(caught.value), form


@pytest.mark.parametrize("open", [cached, subscribed])
async def test_caller_who_may_not_watch_is_refused(open: Any) -> None:
    """It may know the position, and learns which right is missing."""
    async with guarded() as it:
        for verb in ("read", "list", "write", "write_status", "delete", "edit"):
            where, token = it.allow(rule(verb))
            with pytest.raises(PermissionDenied, match=r"you may not watch cached\.v1\.Team there"):
                await open(where, token, TEAM)


async def test_cache_of_several_types_needs_a_right_to_each() -> None:
    """The error names the type that lacks it, in any order of the types."""
    async with guarded() as it:
        where, token = it.allow(rule("view"), rule("view", type="cached.v1.Site", at=("", "")))
        assert await cached(where, token, TEAM, SITE) == ["a", "a"]
        for types in ((TEAM, REGION), (REGION, TEAM)):
            with pytest.raises(PermissionDenied, match=r"cached\.v1\.Region"):
                await cached(where, token, *types)

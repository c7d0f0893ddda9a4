"""Controllers that manage and watch scopes: each has its own part of a type, and the contract holds within it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.errors import DeclarationError, NotWatched
from headway.storage import MemoryBackend
from headway.testing import one_shot
from tests.helpers.resources import Account, Team


class Desk:
    """An app of teams in two namespaces, and of accounts with a tier. It records what each controller reconciles."""

    def __init__(self) -> None:
        self.app = headway.App("staff")
        self.team: headway.ResourceType[Team] = self.app.type("staff", "v1", "Team", Team)
        self.account: headway.ResourceType[Account] = self.app.type("staff", "v1", "Account", Account)
        self.store = MemoryBackend()
        self.reported: list[object] = []
        # (controller, namespace and name of the key, the names of the accounts in the cache; None without the team)
        self.seen: list[tuple[str, str, list[str] | None]] = []

    def controller(self, name: str, manages: Any, accounts: Any, **options: Any) -> None:
        """Declare a controller that maps each account to the teams of its login, in both namespaces."""

        def teams_of(account: headway.Resource[Account], _: object) -> Sequence[headway.ResourceId]:
            if not account.data.login:
                return []
            return [self.team.id(account.data.login, namespace=each) for each in ("default", "east")]

        @self.app.controller(manages=manages, watches=[headway.watch(accounts, teams_of)], name=name, **options)
        async def reconcile(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            found = None if team is None else [each.name for each in rt.cache.list(self.account)]
            self.seen.append((name, f"{request.id.namespace}/{request.id.name}", found))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[headway.Engine]:
        async with headway.open_engine(self.store, self.app, report=self.reported.append) as engine:
            if await engine.client.get(headway.NAMESPACE, "east") is None:
                await engine.client.write(headway.NAMESPACE.new("east"))
            yield engine

    async def settled(self, engine: headway.Engine) -> list[tuple[str, str, str]]:
        """Wait until the engine is idle. Return what was reconciled since the last call, without duplicates."""
        with trio.fail_after(100):
            await engine.wait_idle()
        seen, self.seen = self.seen, []
        return sorted({(name, key, "absent" if found is None else " ".join(found)) for name, key, found in seen})

    async def write_account(self, engine: headway.Engine, name: str, team: str, tier: str) -> headway.Resource[Account]:
        return await engine.client.apply(self.account.new(name, Account(login=team), metadata={"tier": tier}))


async def test_controllers_of_different_scopes_do_not_disturb_each_other(autojump_clock: MockClock) -> None:
    """Each reconciles the keys of its scope alone, although both mappers return keys of both."""
    desk = Desk()
    gold, free = (desk.account.within(metadata=f"tier={tier}") for tier in ("gold", "free"))
    desk.controller("west", desk.team.within(namespace="default"), gold)
    desk.controller("east", desk.team.within(namespace="east"), free)
    async with desk.open() as engine:
        for namespace in ("default", "east"):
            await engine.client.write(desk.team.new("core", namespace=namespace))
        await desk.write_account(engine, "ada", "core", "gold")
        await desk.write_account(engine, "bob", "core", "free")
        await desk.settled(engine)
        ada = await desk.write_account(engine, "ada", "core", "gold")
        ada.data.login = "core"
        ada.metadata["more"] = "1"
        ada = await engine.client.write(ada)
        assert await desk.settled(engine) == [("west", "default/core", "ada")]
        # It leaves one scope and enters the other.
        ada.metadata["tier"] = "free"
        await engine.client.write(ada)
        assert await desk.settled(engine) == [("east", "east/core", "ada bob"), ("west", "default/core", "")]
        streams = [each for each in desk.reported if isinstance(each, events.StreamOpened)]
        assert sorted(each.type.kind for each in streams if each.type.group == "staff") == [
            "Account",
            "Account",
            "Team",
            "Team",
        ]


async def test_controllers_with_equal_scopes_share_one_stream(autojump_clock: MockClock) -> None:
    desk = Desk()
    for name in ("one", "two"):
        desk.controller(name, desk.team.within(namespace="east"), desk.account.within(metadata="tier=gold"))
    async with desk.open() as engine:
        await desk.settled(engine)
        kinds = [each.type.kind for each in desk.reported if isinstance(each, events.StreamOpened)]
        assert (kinds.count("Team"), kinds.count("Account")) == (1, 1)


async def test_own_write_that_leaves_the_scope_is_absent_once_it_has_returned(autojump_clock: MockClock) -> None:
    """C5: in the same reconcile, before any stream has delivered it. Another form of the type shows it."""
    desk = Desk()
    shown: list[tuple[bool, bool]] = []
    gold = desk.account.within(metadata="tier=gold")

    @desk.app.controller(manages=gold)
    async def demote(rt: headway.Runtime, request: headway.Request[Account]) -> None:
        account = rt.resource(request)
        if account is not None:
            before = rt.cache.get(gold, request.id) is not None
            account.metadata["tier"] = "free"
            await rt.client.write(account)
            shown.append((before, rt.cache.get(desk.account, request.id) is not None))
            assert await rt.strong.get(desk.account, request.id) is not None

    async with desk.open() as engine:
        await desk.write_account(engine, "ada", "", "gold")
        await desk.settled(engine)
        assert shown == [(True, False)]


async def test_deletions_and_leavings_between_two_runs_are_mapped_in_the_scope(autojump_clock: MockClock) -> None:
    """C6: a resource that left the scope while no engine ran is mapped as deleted. One that was never in it is not."""
    desk = Desk()
    gold = desk.account.within(metadata="tier=gold")
    desk.controller("west", desk.team.within(namespace="default"), gold)
    async with desk.open() as engine:
        # No such team exists, so only what an account's change maps to is reconciled.
        for name, team, tier in (("ada", "a", "gold"), ("bob", "b", "gold"), ("eve", "c", "free")):
            await desk.write_account(engine, name, team, tier)
        assert await desk.settled(engine) == [("west", "default/a", "absent"), ("west", "default/b", "absent")]
        await trio.sleep(20)
    other = Desk()
    other.store = desk.store
    async with other.open() as engine:
        await engine.client.delete(other.account.id("bob"))
        await other.write_account(engine, "ada", "", "free")
        await engine.client.delete(other.account.id("eve"))
    async with desk.open() as engine:
        assert await desk.settled(engine) == [("west", "default/a", "absent"), ("west", "default/b", "absent")]
    assert not [each for each in desk.reported if isinstance(each, events.DeletionsUnknown)]


async def test_apply_never_replaces_what_is_outside_the_scope(autojump_clock: MockClock) -> None:
    """A resource that is not cached may exist. Its finalizers and its other metadata stay."""
    desk = Desk()
    done = trio.Event()

    @desk.app.controller(
        manages=desk.team, watches=[headway.watch(desk.account.within(metadata="tier=gold"), headway.mappers.owner())]
    )
    async def outputs(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        if team is not None:
            await rt.apply(desk.account.new("ada", Account(login="x"), metadata={"tier": "free"}))
            async with rt.outputs(desk.account, owner=team) as wanted:
                await wanted.apply("own", Account(login="y"), metadata={"tier": "free"})
            done.set()

    async with desk.open() as engine:
        ada = desk.account.new("ada", metadata={"tier": "free"})
        ada.finalizers = frozenset({"mine"})
        ada = await engine.client.write(ada)
        await engine.client.write(desk.team.new("core"))
        await done.wait()
        await desk.settled(engine)
        stored = await engine.client.read(desk.account, "ada")
        assert (stored.uid, sorted(stored.finalizers), stored.data.login) == (ada.uid, ["mine"], "x")
        first = await engine.client.read(desk.account, "own")
        done = trio.Event()
        await engine.client.apply(desk.team.new("core", Team(members=["x"])))
        await done.wait()
        await desk.settled(engine)
        assert (await engine.client.read(desk.account, "own")).version == first.version


async def test_sharded_controller_reconciles_its_scope_over_all_shards(autojump_clock: MockClock) -> None:
    """Every key of the scope belongs to one shard, whose fence its writes carry. The others have none."""
    desk = Desk()
    terms: dict[str, int] = {}

    @desk.app.controller(manages=desk.account.within(metadata="tier=gold"), placement=headway.sharded(shards=4))
    async def sharded(rt: headway.Runtime, request: headway.Request[Account]) -> None:
        account = rt.resource(request)
        terms[request.id.name] = rt.term
        if account is not None and account.data.login != "done":
            account.data.login = "done"
            await rt.client.write(account)
            assert rt.cache.get(desk.account, request.id) == account

    async with desk.open() as engine:
        for number in range(12):
            await desk.write_account(engine, f"n{number}", "", ("gold", "free")[number % 2])
        await desk.settled(engine)
        assert sorted(terms) == sorted(f"n{number}" for number in range(0, 12, 2))
        assert all(terms.values())
        found = await engine.client.list(desk.account)
        assert {each.name for each in found if each.data.login == "done"} == terms.keys()


async def test_daemon_of_a_scope_ends_when_its_resource_leaves(autojump_clock: MockClock) -> None:
    desk = Desk()
    log: list[str] = []

    @desk.app.daemon(desk.account.within(metadata="tier=gold"))
    async def follow(_: headway.Runtime, account: headway.Resource[Account]) -> None:
        log.append(f"{account.name} begins")
        try:
            await trio.sleep_forever()
        finally:
            log.append(f"{account.name} ends")

    async with desk.open() as engine:
        await desk.write_account(engine, "ada", "", "gold")
        await desk.write_account(engine, "bob", "", "free")
        await trio.sleep(5)
        assert log == ["ada begins"]
        await desk.write_account(engine, "ada", "", "free")
        await trio.sleep(5)
        assert log == ["ada begins", "ada ends"]


async def test_one_shot_maps_a_watched_scope_by_its_type(autojump_clock: MockClock) -> None:
    """A unit test calls the mapper as for the whole type. Keys outside the managed scope are left out."""
    desk = Desk()
    desk.controller("west", desk.team.within(namespace="default"), desk.account.within(metadata="tier=gold"))
    async with one_shot(desk.app, "west") as shot:
        account = desk.account.new("ada", Account(login="core"))
        assert await shot.mapped(desk.account, new=account) == [desk.team.id("core")]
        await shot.given(desk.team.new("core"))
        await shot.reconcile("core")
    assert desk.seen == [("west", "default/core", [])]


def test_one_controller_has_one_scope_of_a_type() -> None:
    desk = Desk()
    with pytest.raises(DeclarationError, match=r"used in two forms, .*: manage and watch the whole type, or one scope"):
        desk.controller("both", desk.account.within(metadata="a=1"), desk.account)
    with pytest.raises(DeclarationError, match="used in two forms"):
        desk.controller("two", desk.account.within(metadata="a=1"), desk.account.within(metadata="a=2"))


async def test_cache_is_read_by_the_type_or_its_own_scope_only(autojump_clock: MockClock) -> None:
    """Another scope of the type would be a wrong answer, so it is refused with both names."""
    desk = Desk()
    gold, free = (desk.account.within(metadata=f"tier={tier}") for tier in ("gold", "free"))
    by_login = headway.indexes.by(desk.account, "login", lambda account: account.data.login)
    refused: list[str] = []

    @desk.app.controller(manages=gold, indexes=[by_login])
    async def read(rt: headway.Runtime, request: headway.Request[Account]) -> None:
        assert [each.name for each in rt.cache.index(by_login, "x")] == ["ada"]
        assert rt.cache.list(gold) == rt.cache.list(desk.account)
        async with rt.cache.view(gold) as view:
            assert view.get(desk.account, request.id) is not None
        with pytest.raises(NotWatched) as raised:
            rt.cache.list(free)
        refused.append(str(raised.value))

    async with desk.open() as engine:
        await desk.write_account(engine, "ada", "x", "gold")
        await desk.write_account(engine, "bob", "x", "free")
        await desk.settled(engine)
    assert "tier=gold" in refused[0]
    assert "tier=free" in refused[0]

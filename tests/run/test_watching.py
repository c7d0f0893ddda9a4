"""Predicates and mappers in a running controller: the changes that they reject, map and fail on."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.storage import MemoryBackend
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff


async def test_predicate_rejects_only_the_changes_that_it_names(autojump_clock: MockClock) -> None:
    """This holds for the managed type and for a watched one. Creations and deletions pass."""
    staff, seen = Staff(), list[str]()

    @staff.app.controller(
        manages=staff.team,
        when=headway.predicates.content_changed(),
        watches=[headway.watch(staff.account, headway.mappers.owner(), when=headway.predicates.data_changed())],
    )
    async def look(_: headway.Runtime, request: headway.Request[Team]) -> None:
        seen.append(request.id.name)

    async with staff.open() as engine:
        client = engine.client

        async def looks(*names: str) -> None:
            await staff.wait_idle()
            assert seen == list(names)
            seen.clear()

        team = await staff.write_team("core", "ada")
        await looks("core")
        condition = headway.Condition("Ready", headway.ConditionState.TRUE)
        await client.write_status(team, "somebody", [condition])
        await looks()
        team = await staff.write_team("core", "grace")
        await looks("core")
        account = await client.write(staff.account.new("ada", Account(login="ada"), owner=team))
        await looks("core")
        account.metadata["colour"] = "blue"
        account = await client.write(account)
        await looks()
        account.data.login = "lovelace"
        account.finalizers = {"hold"}
        account = await client.write(account)
        await looks("core")
        marked = await client.delete(account)
        assert marked is not None
        await looks("core")
        marked.finalizers = ()
        await client.delete(await client.write(marked))
        await looks("core")


async def test_resources_cached_at_the_start_of_a_run_are_not_rejected(autojump_clock: MockClock) -> None:
    """All managed resources pass. A watched resource passes if a predicate function accepts it."""
    store = MemoryBackend()
    first = Staff()
    async with first.open(store):
        team = await first.write_team("core")
        await first.engine.client.write(first.account.new("ada", owner=team))
        await first.engine.client.write(first.account.new("bob", owner=team))

    staff, started = Staff(), list[str]()

    def only_ada(old: Any, new: headway.Resource[Account] | None) -> bool:
        started.extend(each.name for each in (new,) if each is not None and old is None)
        return new is not None and new.name == "ada"

    reasons: list[headway.Reason] = []

    @staff.app.controller(
        manages=staff.team,
        when=lambda old, new: old is new,
        watches=[headway.watch(staff.account, headway.mappers.owner(), when=only_ada)],
    )
    async def look(_: headway.Runtime, request: headway.Request) -> None:
        reasons.extend(request.reasons)

    async with staff.open(store):
        await staff.wait_idle()
    assert sorted(started) == ["ada", "bob"]
    assert {str(each).partition(" at ")[0] for each in reasons} == {"started", "Account ada started"}


async def test_change_is_kept_while_its_predicate_raises(autojump_clock: MockClock) -> None:
    """The predicate is named and called again with growing delays.

    The controller is not idle, and no change is lost.
    """
    staff, tries, seen = Staff(), list[float](), list[str]()

    def fickle(_: Any, __: Any) -> bool:
        tries.append(trio.current_time())
        if len(tries) < 4:
            raise LookupError("not now")
        return True

    @staff.app.controller(manages=staff.team, when=fickle, backoff=headway.Backoff(0.01, 5.0))
    async def look(_: headway.Runtime, request: headway.Request) -> None:
        seen.append(request.id.name)

    async with staff.open():
        await staff.wait_idle()
        await staff.write_team("core")
        await staff.wait_idle()

    assert seen == ["core"]
    assert [round(b - a, 3) for a, b in itertools.pairwise(tries)] == [0.01, 0.02, 0.04]
    failed = staff.events_of(events.MappingFailed)
    # There is one report a second.
    assert [event.retry_after for event in failed] == [0.01]
    assert failed[0].mapper.endswith("fickle")


async def test_only_own_writes_are_rejected_by_not_own_writes(autojump_clock: MockClock) -> None:
    """An unneeded status write returns the revision of another writer. The change of that writer still counts."""
    staff, seen = Staff(), list[list[str]]()

    @staff.app.controller(manages=staff.team, when=headway.predicates.not_own_writes())
    async def say(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        seen.append(list(team.data.members))
        team.metadata["size"] = str(len(team.data.members))
        team = await rt.client.write(team)
        await rt.client.write_status(team, "say", [headway.Condition("Said", headway.ConditionState.TRUE)])
        await rt.client.write_status(team, "say", [headway.Condition("Said", headway.ConditionState.TRUE)])

    async with staff.open() as engine:
        for members in (["ada"], ["ada", "bob"]):
            current = await engine.client.get(staff.team, "core")
            team = current or staff.team.new("core")
            team.data = Team(members=members)
            team = await engine.client.write(team)
            await staff.wait_idle()
        assert seen == [["ada"], ["ada", "bob"]]
        await engine.client.write_status(
            team,
            "other",
            [headway.Condition("Heard", headway.ConditionState.TRUE)],
            observed_generation=team.generation,
        )
        await staff.wait_idle()
        assert len(seen) == 3


async def test_unneeded_status_write_does_not_hide_the_change_of_another_writer(autojump_clock: MockClock) -> None:
    """The change with the revision that the unneeded write returned is mapped."""
    staff, seen = Staff(), list[str]()

    @staff.app.controller(manages=staff.team, when=headway.predicates.not_own_writes())
    async def say(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        seen.append(",".join(team.data.members))
        said = [headway.Condition("Said", headway.ConditionState.TRUE)]
        await rt.client.write_status(team, "say", said, observed_generation=first)
        if len(seen) == 2:
            # This run has not received the other commit yet: the answer to the next write brings it.
            await engine.client.write_status(
                team, "other", [headway.Condition("Heard", headway.ConditionState.TRUE)], observed_generation=first
            )
            await rt.client.write_status(team, "say", said, observed_generation=first)

    async with staff.open() as engine:
        team = await engine.client.write(staff.team.new("core", Team(members=["ada"])))
        first = team.generation
        await staff.wait_idle()
        assert seen == ["ada"]
        await staff.write_team("core", "bob")
        await staff.wait_idle()
        assert seen == ["ada", "bob", "bob"]


@pytest.mark.parametrize("another", [True, False])
async def test_c6_status_that_another_writer_has_set_first_still_counts(
    autojump_clock: MockClock, another: bool
) -> None:
    """The run sets the same status before it has received that commit, which may be the store's last or not."""
    staff, seen = Staff(), list[str]()
    said = [headway.Condition("Said", headway.ConditionState.TRUE)]

    @staff.app.controller(
        manages=staff.team,
        watches=[
            headway.watch(staff.account, lambda *_: [staff.team.id("core")], when=headway.predicates.not_own_writes())
        ],
    )
    async def say(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        seen.append(request.id.name)
        account = rt.cache.get(staff.account, "ada")
        if request.id.name == "first" and account is not None:
            # As another shard of the controller does.
            await engine.client.write_status(account, "say", said)
            if another:
                await engine.client.write(staff.team.new("other"))
            await rt.client.write_status(account, "say", said)

    async with staff.open() as engine:
        await engine.client.write(staff.account.new("ada"))
        await staff.wait_idle()
        seen.clear()
        await staff.write_team("first")
        await staff.wait_idle()
        assert sorted(set(seen)) == (["core", "first", "other"] if another else ["core", "first"])


async def test_mapper_of_old_and_new_state_is_called_once_per_change(autojump_clock: MockClock) -> None:
    staff, changes, seen = Staff(), list[tuple[str, str]](), list[str]()

    def moved(
        old: headway.Resource[Account] | None, new: headway.Resource[Account] | None, _: headway.CacheReader
    ) -> list[headway.ResourceId]:
        changes.append(("" if old is None else old.data.login, "" if new is None else new.data.login))
        return [staff.team.id("both")] if old is not None and new is not None else []

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.change(moved))])
    async def look(_: headway.Runtime, request: headway.Request) -> None:
        seen.append(request.id.name)

    async with staff.open() as engine:
        for login in ("a", "b"):
            await engine.client.apply(staff.account.new("ada", Account(login=login)))
            await staff.wait_idle()
        await engine.client.delete(staff.account.id("ada"))
        await staff.wait_idle()

    assert changes == [("", "a"), ("a", "b"), ("b", "")]
    assert seen == ["both"]


async def test_resources_owned_by_a_changed_one_are_reconciled(autojump_clock: MockClock) -> None:
    """mappers.owned adds the index that it needs to the managed type."""
    staff, seen = Staff(), list[str]()

    @staff.app.controller(manages=staff.account, watches=[headway.watch(staff.team, headway.mappers.owned())])
    async def look(_: headway.Runtime, request: headway.Request) -> None:
        seen.append(request.id.name)

    async with staff.open() as engine:
        team = await staff.write_team("core")
        await engine.client.write(staff.account.new("ada", owner=team))
        await engine.client.write(staff.account.new("bob"))
        await staff.wait_idle()
        seen.clear()
        await staff.write_team("core", "someone")
        await staff.wait_idle()
    assert seen == ["ada"]

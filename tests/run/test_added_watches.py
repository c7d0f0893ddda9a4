"""`rt.watch` in each function of a controller: when it returns, what ends, and which errors it raises."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.errors import Closed, DeclarationError
from tests.helpers.added_watches import runs, watch_accounts, write_account
from tests.helpers.resources import Account
from tests.helpers.staff import Staff


async def test_every_reconcile_may_add_the_same_watch(autojump_clock: MockClock) -> None:
    """It ends one run. After the call the new type can be read, and its changes are mapped."""
    staff, seen = Staff(), list[tuple[str, list[str]]]()

    @staff.app.controller(manages=staff.team, concurrency=4)
    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        await rt.watch(watch_accounts(staff))
        seen.append((request.id.name, sorted(each.name for each in rt.cache.list(staff.account))))

    async with staff.open() as engine:
        for name in ("core", "docs", "tools"):
            await staff.write_team(name)
        await write_account(staff, "ada", "core")
        await staff.wait_idle()
        assert {name for name, _ in seen} == {"core", "docs", "tools"}
        assert all(accounts == ["ada"] for _, accounts in seen)
        assert runs(staff) == (1, 2, 1)
        seen.clear()
        await write_account(staff, "bob", "docs")
        await staff.wait_idle()
        assert seen == [("docs", ["ada", "bob"])]
        status = engine.controllers["look"].status()
        assert [str(each.type) for each in status.types] == ["staff.v1.Team", "staff.v1.Account"]
        (added,) = status.added_watches
        assert added.startswith("staff.v1.Account by mappers.reference(")
        assert (status.restarts, status.error, status.phase) == (0, "", "running")
    assert staff.errors() == []


async def test_initialiser_adds_a_watch_once(autojump_clock: MockClock) -> None:
    """The run that begins afterwards calls the initialiser again, which continues this time."""
    staff, told = Staff(), list[str]()

    async def initialiser(rt: headway.Runtime) -> None:
        told.append("begins")
        await rt.watch(watch_accounts(staff))
        told.append("goes on")

    @staff.app.controller(manages=staff.team, initialiser=initialiser, on_stop=lambda _, error: told.append(str(error)))
    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        told.append(f"{request.id.name}: {len(rt.cache.list(staff.account))}")

    async with staff.open():
        await write_account(staff, "ada", "core")
        await staff.wait_idle()
        assert told == ["begins", "None", "begins", "goes on", "core: 1"]
        assert runs(staff) == (1, 1, 1)


async def test_on_start_adds_a_watch_before_anything_is_mapped(autojump_clock: MockClock) -> None:
    staff, told = Staff(), list[str]()

    async def on_start(rt: headway.Runtime) -> None:
        await rt.watch(watch_accounts(staff))
        told.append("started")

    @staff.app.controller(manages=staff.team, on_start=on_start)
    async def look(_: headway.Runtime, request: headway.Request) -> None:
        told.append(request.id.name)

    async with staff.open():
        await write_account(staff, "ada", "core")
        await staff.wait_idle()
        assert told == ["started", "core"]
    assert staff.events_of(events.CallbackFailed) == []


async def test_daemon_and_timer_add_watches(autojump_clock: MockClock) -> None:
    """Each begins again with the next run, whose cache has the type."""
    staff, told = Staff(), list[str]()
    spec = headway.watch(staff.account, headway.mappers.owner())

    @staff.app.daemon(staff.team, name="look")
    async def attend(rt: headway.Runtime, team: headway.Resource[Any]) -> None:
        await rt.watch(spec)
        told.append(f"daemon {team.name} {len(rt.cache.list(staff.account))}")

    @staff.app.timer(staff.team, every=60)
    async def check(rt: headway.Runtime, team: headway.Resource[Any]) -> None:
        await rt.watch(spec)
        told.append(f"timer {team.name} {len(rt.cache.list(staff.account))}")

    async with staff.open():
        await write_account(staff, "ada", "core")
        await staff.write_team("core")
        await staff.wait_idle()
        await trio.sleep(1)
    assert sorted(told) == ["daemon core 1", "timer core 1"]
    assert runs(staff) == (1, 2, 1)
    assert [each.error for each in staff.events_of(events.DaemonEnded)] == [None]


async def test_reconciles_that_add_different_watches_at_once_all_continue(autojump_clock: MockClock) -> None:
    """The first addition ends the run. If it cancels the other call, the next run adds the other watch."""
    staff, done = Staff(), list[str]()
    laptop = staff.app.type("staff", "v1", "Laptop", Account)

    @staff.app.controller(manages=staff.team, concurrency=2)
    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        spec = watch_accounts(staff) if request.id.name == "a" else headway.watch(laptop, headway.mappers.owner())
        await rt.watch(spec)
        done.append(request.id.name)

    async with staff.open():
        await staff.write_team("a")
        await staff.write_team("b")
        await staff.wait_idle()
    assert set(done) == {"a", "b"}
    assert runs(staff) in ((2, 2, 1), (2, 3, 2))


async def test_another_mapper_for_the_same_type_fails_the_reconcile_alone(autojump_clock: MockClock) -> None:
    staff, done = Staff(), list[str]()

    @staff.app.controller(manages=staff.team)
    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        own = request.id
        await rt.watch(headway.watch(staff.account, lambda _, __: [own]))
        done.append(own.name)

    async with staff.open():
        await staff.write_team("a")
        await staff.write_team("b")
        await trio.sleep(5)
        assert set(done) in ({"a"}, {"b"})
        assert runs(staff) == (1, 2, 1)
        failed = {type(event.error) for event in staff.events_of(events.Reconciled) if event.error is not None}
        assert failed == {DeclarationError}
        assert "Pass an equal watch each time" in staff.errors()[0]


@pytest.mark.parametrize("shielded", [True, False])
async def test_caller_that_the_end_of_the_run_cannot_cancel_gets_an_error(
    autojump_clock: MockClock, shielded: bool
) -> None:
    """The caller is in a shielded scope, or in a task outside the run. The watch is added."""
    staff, raised, done = Staff(), list[str](), list[str]()
    contexts: list[headway.Runtime] = []

    async def watch(rt: headway.Runtime) -> None:
        try:
            await rt.watch(watch_accounts(staff))
        except Closed as error:
            raised.append(str(error))
            raise

    @staff.app.controller(manages=staff.team)
    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        contexts.append(rt)
        if shielded:
            with trio.CancelScope(shield=True):
                await watch(rt)
        done.append(request.id.name)

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
        if not shielded:
            with pytest.raises(Closed):
                await watch(contexts[0])
            await staff.wait_idle()
            assert done == ["core", "core"]
        assert runs(staff) == (1, 2, 1)
        assert raised == [
            "rt.watch: this run of controller staff/look ends, because a watch was added: "
            "leave the rest to its next run"
        ]
        with pytest.raises(Closed, match="has ended, and nothing was added"):
            await contexts[0].watch(watch_accounts(staff))


async def test_call_while_the_run_ends_does_not_return(autojump_clock: MockClock) -> None:
    """Another call has added the watch. The run that ends cannot read the type."""
    staff = Staff()
    contexts: list[headway.Runtime] = []

    @staff.app.controller(manages=staff.team, on_start=contexts.append)
    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        if rt is contexts[0]:
            with trio.CancelScope(shield=True):
                await trio.sleep(10)

    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(1)
        for _ in range(2):
            with pytest.raises(Closed, match="leave the rest"):
                await contexts[0].watch(watch_accounts(staff))
            await trio.sleep(1)
        assert runs(staff) == (1, 1, 0)
        await staff.wait_idle()
        assert runs(staff) == (1, 2, 1)
        await contexts[1].watch(watch_accounts(staff))


async def test_on_stop_is_too_late(autojump_clock: MockClock) -> None:
    staff, raised = Staff(), list[BaseException]()

    async def on_stop(rt: headway.Runtime, _: BaseException | None) -> None:
        try:
            await rt.watch(watch_accounts(staff))
        except Closed as error:
            raised.append(error)

    @staff.app.controller(manages=staff.team, on_stop=on_stop)
    async def look(_: headway.Runtime, __: headway.Request) -> None: ...

    async with staff.open():
        await staff.wait_idle()
    assert len(raised) == 1


async def test_engine_is_not_idle_until_the_next_run_is(autojump_clock: MockClock) -> None:
    """An idle controller whose source adds a watch has work from that moment on."""
    staff, seen = Staff(), list[str]()
    contexts: list[headway.Runtime] = []

    @staff.app.controller(manages=staff.team, on_start=contexts.append)
    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        seen.append(f"{request.id.name} {rt.term}")

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
        with pytest.raises(Closed):
            await contexts[0].watch(watch_accounts(staff))
        assert len(contexts) == 1
        await staff.wait_idle()
        assert len(contexts) == 2
        assert seen == [f"core {each.term}" for each in contexts]

"""A controller whose functions a test calls one at a time: errors and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.errors import DeclarationError
from headway.testing import one_shot
from tests.helpers.one_shot_staff import Account, Staff, Team


async def test_exception_of_a_reconcile_is_raised(autojump_clock: MockClock) -> None:
    """The test covers its own error, a deadline, and an invalid result."""
    staff = Staff()
    async with one_shot(staff.app, "accounts") as shot:
        await shot.given(staff.team.new("a", Team(members=["nobody"])), staff.team.new("b", Team(members=["sleepy"])))
        with pytest.raises(LookupError, match="nobody"):
            await shot.reconcile("a")
        before = autojump_clock.current_time()
        with pytest.raises(trio.TooSlowError):
            await shot.reconcile("b")
        assert autojump_clock.current_time() - before == pytest.approx(30, abs=1)


async def test_unknown_controller_is_named() -> None:
    """The error suggests a similar name."""
    with pytest.raises(DeclarationError, match="has no controller 'acounts'; did you mean 'accounts'"):
        async with one_shot(Staff().app, "acounts"):
            pass


async def test_invalid_result_is_named(autojump_clock: MockClock) -> None:
    """The error is the same as in production."""
    app = headway.App("odd")
    team = app.type("odd", "v1", "Team", Team)

    @app.controller(manages=team)
    async def odd(_: headway.Runtime, __: headway.Request[Team]) -> Any:
        return 7

    async with one_shot(app, "odd") as shot:
        with pytest.raises(headway.errors.InvalidResult, match="odd returned 7"):
            await shot.reconcile("x")


async def test_request_must_be_of_the_managed_type(autojump_clock: MockClock) -> None:
    """A request is a name, an id or a resource. Anything else is refused, and so is an invalid attempt."""
    staff = Staff()
    async with one_shot(staff.app, "accounts") as shot:
        [core] = await shot.given(staff.team.new("core", Team(members=["ada"])))
        assert [each.id.name for each in (await shot.reconcile(core)).written] == ["ada", "core"]
        wrong: list[Any] = [staff.account.id("core"), staff.account.new("ada", Account()), 7]
        for given in wrong:
            with pytest.raises(
                headway.errors.InvalidArgument, match=r"is not a staff\.v1\.Team: pass its name, its id or the"
            ):
                await shot.reconcile(given)
        with pytest.raises(headway.errors.InvalidArgument, match="attempt is 0; it must be >= 1"):
            await shot.reconcile("core", attempt=0)


async def test_exception_of_an_initializer_is_raised(autojump_clock: MockClock) -> None:
    """The exception is raised at once, and the run is not repeated."""
    app = headway.App("begun")

    async def initialiser(_: headway.Runtime) -> None:
        raise LookupError("nothing to begin with")

    @app.controller(manages=app.type("begun", "v1", "Team", Team), initialiser=initialiser)
    async def never(_: headway.Runtime, __: headway.Request[Team]) -> None:
        """Do nothing."""

    with pytest.raises(LookupError, match="nothing to begin with"):
        async with one_shot(app, "never", report=lambda _: None):
            pass
    assert autojump_clock.current_time() < 1


async def test_exception_of_a_mapper_is_raised(autojump_clock: MockClock) -> None:
    """The call that passed on the change raises it. A run that has started and ends starts again, as in production."""
    app = headway.App("mapped")
    team, account = app.type("mapped", "v1", "Team", Team), app.type("mapped", "v1", "Account", Account)

    broken = True

    def team_of(found: headway.Resource[Account], _: headway.CacheReader) -> list[headway.ResourceId]:
        if broken:
            raise LookupError(f"{found.name} is nobody's")
        return [team.id(found.data.login)]

    @app.controller(manages=team, watches=[headway.watch(account, team_of)])
    async def look(_: headway.Runtime, __: headway.Request[Team]) -> None:
        """Do nothing."""

    events: list[object] = []
    async with one_shot(app, "look", report=events.append) as shot:
        for _ in range(2):
            with pytest.raises(LookupError, match="ada is nobody's"):
                await shot.given(account.new("ada", Account(login="core")))
        # Such failures are reported once a second.
        assert autojump_clock.current_time() < 2
        assert any(isinstance(each, headway.events.MappingFailed) for each in events)
        broken = False
        assert [each.id.name for each in await shot.requests()] == ["core"]


async def test_daemon_cannot_be_called() -> None:
    """The error says so, and names a way to test it."""
    app = headway.App("lived")
    team = app.type("lived", "v1", "Team", Team)

    @app.daemon(team)
    async def watcher(_: headway.Runtime, __: headway.Resource[Team]) -> None:
        raise AssertionError("it ran")

    with pytest.raises(DeclarationError, match=r"watcher is a daemon, .* test it in headway\.open_engine"):
        async with one_shot(app, "watcher"):
            pass


async def test_mapper_that_changes_its_input_is_found(autojump_clock: MockClock) -> None:
    """The error is raised whether the test or a change has called the mapper."""
    staff = Staff()

    def changes(account: headway.Resource[Account], _: headway.CacheReader) -> list[headway.ResourceId]:
        account.data.login = "mine"
        return []

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, changes)], name="changing")
    async def changing(_: headway.Runtime, __: headway.Request[Team]) -> None:
        """Do nothing."""

    async def ask() -> None:
        async with one_shot(staff.app, "changing") as shot:
            await shot.mapped(staff.account, new=staff.account.new("ada", Account(login="ada")))

    async def change() -> None:
        async with one_shot(staff.app, "changing") as shot:
            await shot.client.write(staff.account.new("ada", Account(login="ada")))
            await shot.requests()

    for way in (ask, change):
        with (
            trio.move_on_after(10),
            pytest.raises(headway.errors.IsolationBroken, match="changes has changed its argument"),
        ):
            await way()

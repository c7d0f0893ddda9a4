"""A controller with a minimum interval: its keys are reconciled that seldom, and see every change (C6)."""

from __future__ import annotations

import itertools

import trio
from trio.testing import MockClock

import headway
from headway.why import sentences
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff


class Rollup(Staff):
    """A team counts its accounts, each time in `seconds` seconds."""

    def __init__(self, *, min_interval: float, seconds: float = 0.0, failures: int = 0) -> None:
        super().__init__()
        self.seen: list[tuple[float, int]] = []
        self.seconds = seconds
        self.failures = failures
        watch = headway.watch(self.account, headway.mappers.owner())

        @self.app.controller(manages=self.team, watches=[watch], min_interval=min_interval)
        async def count(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            if team is None:
                return
            self.seen.append((round(trio.current_time() - began, 3), len(rt.cache.owned(self.account, team))))
            await trio.sleep(self.seconds)
            if self.failures:
                self.failures -= 1
                raise ValueError("no")

        began = trio.current_time()

    async def write_account(self, name: str, team: headway.Resource[Team]) -> None:
        await self.engine.client.create(self.account.new(name, Account(login=name), owner=team))


async def test_c6_changes_within_the_interval_are_one_reconcile_that_sees_the_last(autojump_clock: MockClock) -> None:
    """A thousand changes in ten seconds are six reconciles, and the controller is not idle before the last one."""
    staff = Rollup(min_interval=2.0)
    async with staff.open():
        team = await staff.write_team("core")
        for number in range(1000):
            await staff.write_account(f"a{number:03}", team)
            await trio.sleep(0.01)
        await staff.wait_idle()
        assert [at for at, _ in staff.seen] == [0, 2, 4, 6, 8, 10]
        assert staff.seen[-1] == (10, 1000)
        # A key that has not been reconciled for so long does not wait.
        await trio.sleep(5)
        await staff.write_account("late", team)
        await staff.wait_idle()
        assert staff.seen[-1] == (15, 1001)


async def test_c6_change_during_a_reconcile_is_kept_for_the_end_of_the_interval(autojump_clock: MockClock) -> None:
    """So is the work that a failure leaves. A reconcile that takes longer than the interval begins again at once."""
    staff = Rollup(min_interval=4.0, seconds=1.0, failures=1)
    async with staff.open():
        team = await staff.write_team("core")
        await trio.sleep(0.5)
        await staff.write_account("ada", team)
        await staff.wait_idle()
        assert staff.seen == [(0, 0), (4, 1)]
        staff.seconds = 6.0
        await trio.sleep(5)
        await staff.write_account("grace", team)
        await trio.sleep(1)
        await staff.write_account("joan", team)
        await staff.wait_idle()
        assert [count for _, count in staff.seen[2:]] == [2, 3]
        assert staff.seen[3][0] - staff.seen[2][0] == 6.0


async def test_why_says_that_a_key_is_paced_and_an_operator_need_not_wait(autojump_clock: MockClock) -> None:
    """Paced work is not stuck: it could not have been done before."""
    staff = Rollup(min_interval=3600.0)
    async with staff.open() as engine:
        team = await staff.write_team("core")
        await staff.wait_idle()
        await staff.write_account("ada", team)
        await trio.sleep(600)
        why = await engine.why(team.id)
        [part] = why.controllers
        assert (part.state, round(part.until - why.at)) == ("paced", 3000)
        assert any("because the controller's min_interval has not passed" in line for line in sentences(why))
        assert (await engine.stuck(60.0)).items == []
        assert [cause.what for cause in part.causes] == ["changed"]
        run = next(iter(engine.controllers.values())).run
        assert run is not None
        assert run.keys is not None
        assert run.keys.retry(team.id.key) is not None
        await staff.wait_idle(1.0)
        assert staff.seen[-1] == (600, 1)


async def test_sharded_controller_keeps_the_interval(autojump_clock: MockClock) -> None:
    staff = Staff()
    called: list[float] = []

    @staff.app.controller(manages=staff.team, min_interval=5.0, placement=headway.sharded(shards=2))
    async def teams(_: headway.Runtime, __: headway.Request[Team]) -> None:
        called.append(trio.current_time())

    async with staff.open():
        for number in range(30):
            await staff.write_team("core", str(number))
            await trio.sleep(1)
        await staff.wait_idle()
    assert [round(after - before) for before, after in itertools.pairwise(called)] == [5] * (len(called) - 1)
    assert len(called) >= 6

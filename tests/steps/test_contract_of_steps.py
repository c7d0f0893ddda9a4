"""Steps under the contract: a lost outcome of their writes (C5), a former leader (C8), on every store and transport."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.errors import Fenced
from headway.steps import StepUncertain
from headway.testing import Fault
from tests.helpers.cluster import TTL, Cluster, Job
from tests.helpers.rig import Rig
from tests.helpers.settings import Setting


class Charges:
    """The world outside: the keys of its calls, with whether the step was uncertain."""

    def __init__(self, rig: Rig) -> None:
        self.made: list[tuple[str, bool]] = []
        rig.pools.replace(self.reconcile)
        self._rig = rig
        self.raises: list[Exception] = []

    async def reconcile(self, rt: headway.Runtime, request: headway.Request) -> None:
        pool = rt.cache.get(self._rig.pools.pool, request.id)
        if pool is None:
            return
        async with rt.step(pool, "charge") as step:
            if not step.done:
                self.made.append((step.key, step.uncertain))
                if self.raises:
                    raise self.raises.pop()
                step.result = f"{len(self.made)}"

    async def records(self) -> list[tuple[str, str]]:
        """Return the stored records of pool "a"."""
        pool = await self._rig.engine.client.read(self._rig.pools.pool, "a")
        status = pool.status.get("pools.steps")
        return [] if status is None else [(each.reason, each.message) for each in status.conditions]


async def test_step_is_done_once_over_runs(autojump_clock: MockClock, setting: Setting) -> None:
    """The next run finds an effect that has happened, and one whose outcome is unknown."""
    rig = Rig(autojump_clock, setting=setting)
    charges = Charges(rig)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        assert await charges.records() == [("Done", "1")]
        charges.raises = [SystemExit()]  # type: ignore[list-item]  # it ends the run
        await rig.write_pool("b")
        await rig.wait_idle()
        await rig.restart()
        await rig.write_pool("a", "changed")
        await rig.wait_idle()
        [a, b, again] = charges.made
        assert (a[1], b[1], again) == (False, False, (b[0], True))


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.SILENT])
@pytest.mark.parametrize("by", ["deadline", "shutdown"])
async def test_result_that_is_known_is_stored_although_the_block_is_canceled(
    autojump_clock: MockClock, setting: Setting, by: str, fault: Fault
) -> None:
    """It is tried for 2 seconds: a store that does not answer holds up no deadline and no shutdown for longer.

    Here, it has stored the result all the same.
    """
    rig = Rig(autojump_clock, setting=setting, deadline=5.0)
    entered: list[bool] = []
    ended: list[float] = []

    async def reconcile(rt: headway.Runtime, request: headway.Request) -> None:
        if (pool := rt.cache.get(rig.pools.pool, request.id)) is None:
            return
        try:
            async with rt.step(pool, "charge") as step:
                if not step.done:
                    entered.append(step.uncertain)
                    step.result = "receipt"
                    if len(entered) == 1:
                        # What the block does next does not end.
                        rig.channel.writes(fault)
                        await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    rig.pools.replace(reconcile)
    async with rig.open():
        await rig.write_pool("a")
        await trio.sleep(1)
        began = trio.current_time()
        if by == "shutdown":
            await rig.restart()
        await rig.wait_idle()
        assert entered == [False]
        pool = await rig.engine.client.read(rig.pools.pool, "a")
        assert [(each.reason, each.message) for each in pool.status["pools.steps"].conditions] == [("Done", "receipt")]
        left = 0 if by == "shutdown" else 4
        assert left <= ended[0] - began <= left + (2.5 if fault is Fault.SILENT else 0.5)


@pytest.mark.parametrize("result", [True, False])
async def test_block_that_does_not_ask_repeats_its_effect_once_in_a_run(
    autojump_clock: MockClock, setting: Setting, result: bool
) -> None:
    rig = Rig(autojump_clock, setting=setting)
    calls: list[str] = []

    async def reconcile(rt: headway.Runtime, request: headway.Request) -> None:
        if (pool := rt.cache.get(rig.pools.pool, request.id)) is not None:
            async with rt.step(pool, "charge") as step:
                calls.append(pool.name)
                if result:
                    step.result = "x"

    rig.pools.replace(reconcile)
    async with rig.open():
        await rig.write_pool("a")
        for number in range(2):
            await rig.write_pool("a", str(number))
            await trio.sleep(100)
            await rig.restart()
        await trio.sleep(100)
    assert calls == ["a"] * 3


@pytest.mark.parametrize(
    ("fault", "uncertain"),
    [(Fault.LOST, True), (Fault.BROKEN, True), (Fault.LATE, False), (Fault.FAILED, False), (Fault.SILENT, True)],
)
async def test_c5_effect_waits_until_the_intention_is_resolved(
    autojump_clock: MockClock, setting: Setting, fault: Fault, uncertain: bool
) -> None:
    """If the intention was stored, the step is uncertain, although its effect has not begun."""
    rig = Rig(autojump_clock, setting=setting, deadline=5.0)
    charges = Charges(rig)
    async with rig.open():
        await rig.wait_idle()
        rig.channel.writes(fault)
        rig.channel.raises(*[Fault.FAILED] * 4)
        await rig.write_pool("a")
        await trio.sleep(0.01)
        assert charges.made == []
        await rig.wait_idle()
        [(_, was_uncertain)] = charges.made
        assert was_uncertain is uncertain
        if fault is Fault.LATE:
            [late] = await rig.channel.run_late()
            assert late.error is not None
        assert await charges.records() == [("Done", "1")]


@pytest.mark.parametrize(("fault", "calls"), [(Fault.LOST, 1), (Fault.BROKEN, 1), (Fault.LATE, 2), (Fault.FAILED, 2)])
async def test_c5_lost_result_is_found_or_the_step_is_uncertain(
    autojump_clock: MockClock, setting: Setting, fault: Fault, calls: int
) -> None:
    rig = Rig(autojump_clock, setting=setting, deadline=5.0)
    charges = Charges(rig)
    async with rig.open():
        await rig.wait_idle()
        rig.channel.writes(Fault.NONE, fault)
        await rig.write_pool("a")
        await rig.wait_idle()
        assert [uncertain for _, uncertain in charges.made] == [False, True][:calls]
        assert len({key for key, _ in charges.made}) == 1
        assert await charges.records() == [("Done", str(calls))]


@pytest.mark.parametrize("attempt", [1, 2])
async def test_c8_former_leader_begins_no_step(autojump_clock: MockClock, attempt: int) -> None:
    """Its intention is refused, also if it was stored before and the step is entered again."""
    cluster = Cluster(autojump_clock, "singleton")
    made: list[tuple[str, bool]] = []
    stalled: list[str] = []
    refused: list[str] = []

    async def enter(member: str, rt: headway.Runtime, job: headway.Resource[Job]) -> None:
        async with rt.step(job, "charge") as step:
            if not step.done:
                made.append((member, step.uncertain))
                if len(made) < attempt:
                    raise ConnectionError("the answer is lost")

    async def around(member: str, rt: headway.Runtime, request: headway.Request[Job]) -> None:
        job = rt.resource(request)
        assert job is not None
        if stalled or request.attempt < attempt:
            await enter(member, rt, job)
            return
        # The process stalls for longer than its lease lasts, and its code does not notice.
        stalled.append(member)
        with trio.CancelScope(shield=True):
            wire = cluster.members[member].wire
            wire.cut()
            await trio.sleep(TTL * 2)
            wire.mend()
            try:
                await enter(member, rt, job)
            except Fenced:
                refused.append(member)
                raise

    cluster.around = around
    async with cluster.open("web-1", "web-2"):
        await cluster.write("a", "1")
        await cluster.until(lambda: bool(refused), TTL * 5)
        await cluster.until(lambda: cluster.copied(a="1"), TTL * 5)
        # The process that has stalled still reconciles.
        cluster.broken.clear()
    assert refused == stalled
    assert not cluster.members[stalled[0]].events_of(StepUncertain)
    (*before, (successor, uncertain)) = made
    assert (successor != stalled[0], uncertain) == (True, attempt == 2)
    assert before == [(stalled[0], False)][: attempt - 1]

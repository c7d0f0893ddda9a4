"""Steps: an effect outside is recorded before and after it, and is never begun again without a word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import ConditionState
from headway.errors import Closed, HeadwayError, InvalidArgument, PermanentFailure
from headway.steps import KEPT_INPUTS, LONGEST_RESULT, MOST_STEPS, Step, StepUncertain
from tests.helpers.resources import Team
from tests.helpers.staff import Staff

TRUE, FALSE, UNKNOWN = ConditionState.TRUE, ConditionState.FALSE, ConditionState.UNKNOWN
Body = Callable[[headway.Runtime, headway.Resource[Team]], Awaitable[object]]


class Steps(Staff):
    """A controller whose whole reconcile is ``body``.

    Attributes:
        runs: the number of reconciles.
        calls: the calls of the world outside, by their keys.
        failures: what the next calls of the world outside raise when they have taken effect.
    """

    def __init__(self, body: Body | None = None) -> None:
        super().__init__()
        self.runs = 0
        self.calls: list[str] = []
        self.failures: list[Exception] = []
        self.body: Body = body or self.charge

        @self.app.controller(
            manages=self.team, name="orders", backoff=headway.Backoff(1.0, 1.0), deadline=10.0, concurrency=2
        )
        async def orders(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            self.runs += 1
            team = rt.resource(request)
            if team is not None:
                await self.body(rt, team)

    async def effect(self, key: str) -> str:
        """Take effect outside."""
        self.calls.append(key)
        await trio.sleep(0.1)
        if self.failures:
            raise self.failures.pop(0)
        return f"charge {len(self.calls)}"

    async def charge(self, rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        """Reconcile a team: charge once for its members."""
        self.result = await rt.once(team, "charge", self.effect, inputs=team.data.members)

    async def records(self, name: str = "core") -> list[tuple[str, ConditionState, str, str]]:
        """Return the stored records of steps."""
        status = (await self.engine.client.read(self.team, name)).status.get("orders.steps")
        conditions = [] if status is None else status.conditions
        return [(each.type.partition(":")[0], each.state, each.reason, each.message) for each in conditions]

    def errors_of(self, kind: type[BaseException]) -> list[str]:
        """Return the texts of the errors of this class that reconciles have raised."""
        raised = [event.error for event in self.events_of(headway.events.Reconciled)]
        return [str(each) for each in raised if isinstance(each, kind)]

    async def run(self) -> None:
        """Write a team, and let its first reconciles end."""
        async with self.open():
            await self.write_team("core")
            await trio.sleep(0.9)


async def test_effect_happens_once_and_its_result_is_kept(autojump_clock: MockClock) -> None:
    """A step costs two commits, and nothing once it is done. They cause no reconcile."""
    staff = Steps()
    async with staff.open() as engine:
        await staff.wait_idle()
        written = await staff.write_team("core")
        await staff.wait_idle()
        assert (staff.runs, staff.calls, staff.result) == (1, staff.calls[:1], "charge 1")
        assert await staff.records() == [("charge", TRUE, "Done", "charge 1")]
        stored = await engine.client.read(staff.team, "core")
        assert int(stored.version) == int(written.version) + 2
        await engine.client.write_status(stored, "other", [headway.Condition("Any")])
        await staff.wait_idle()
        again = await engine.client.read(staff.team, "core")
        assert int(again.version) == int(stored.version) + 1
        assert (staff.runs, len(staff.calls), staff.result) == (2, 1, "charge 1")
    assert not staff.events_of(StepUncertain)
    assert not staff.errors()


async def test_intention_is_stored_before_the_effect(autojump_clock: MockClock) -> None:
    seen = []

    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        async with rt.step(team, "charge") as step:
            assert not step.done
            assert not step.uncertain
            seen.append([*await staff.records(), step.key])

    staff = Steps(body)
    await staff.run()
    [[record, key]] = seen
    assert record == ("charge", UNKNOWN, "Begun", key)


async def test_step_that_raised_is_entered_again_as_uncertain_with_its_key(autojump_clock: MockClock) -> None:
    """Also when it is canceled, as by the deadline of the reconcile."""
    uncertain = []

    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        async with rt.step(team, "charge") as step:
            if not step.done:
                uncertain.append(step.uncertain)
                if len(uncertain) == 2:
                    await trio.sleep_forever()
                step.result = await staff.effect(step.key)

    staff = Steps(body)
    staff.failures = [ConnectionError("the answer is lost")]
    async with staff.open() as engine:
        await staff.write_team("core")
        await staff.wait_idle()
        team = await engine.client.read(staff.team, "core")
        assert uncertain == [False, True, True]
        assert len(staff.calls) == 2
        assert len({*staff.calls}) == 1
        assert await staff.records() == [("charge", TRUE, "Done", "charge 2")]
        expected = StepUncertain("staff/orders", team.id, "charge", staff.calls[0])
        assert staff.events_of(StepUncertain) == [expected, expected]


async def test_failed_step_is_begun_anew(autojump_clock: MockClock) -> None:
    uncertain = []

    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        async with rt.step(team, "charge") as step:
            if not step.done:
                uncertain.append(step.uncertain)
                if len(uncertain) < 3:
                    step.failed("declined")
                    raise ConnectionError("declined")
                step.result = await staff.effect(step.key)

    staff = Steps(body)
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(0.9)
        assert await staff.records() == [("charge", FALSE, "Failed", "declined")]
        await staff.wait_idle()
        assert uncertain == [False, False, False]
        assert await staff.records() == [("charge", TRUE, "Done", "charge 1")]


async def test_result_is_stored_although_the_block_raises_later(autojump_clock: MockClock) -> None:
    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        async with rt.step(team, "charge") as step:
            if not step.done:
                step.result = await staff.effect(step.key)
                raise LookupError("later")

    staff = Steps(body)
    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
        assert await staff.records() == [("charge", TRUE, "Done", "charge 1")]
    assert staff.errors() == ["LookupError('later')"]
    assert len(staff.calls) == 1


async def test_each_input_and_each_incarnation_is_a_step_of_its_own(autojump_clock: MockClock) -> None:
    """The step of an earlier input stays done. The key tells all of them apart."""
    staff = Steps()
    async with staff.open() as engine:
        for members in (["ada"], ["bob"], ["ada"]):
            await staff.write_team("core", *members)
            await staff.wait_idle()
        assert len(staff.calls) == len({*staff.calls}) == 2
        assert staff.result == "charge 1"
        await engine.client.delete(await engine.client.read(staff.team, "core"))
        await staff.write_team("core", "ada")
        await staff.write_team("other", "ada")
        await staff.wait_idle()
    assert len(staff.calls) == len({*staff.calls}) == 4


async def test_oldest_inputs_are_forgotten_unless_their_outcome_is_unknown(autojump_clock: MockClock) -> None:
    """An input that was forgotten is begun again with its old key."""
    staff = Steps()
    staff.failures = [ConnectionError("the answer is lost")]
    async with staff.open():
        for number in range(KEPT_INPUTS + 2):
            await staff.write_team("core", str(number))
            if not number:
                await trio.sleep(0.5)
            # The first one never ended: another order came before it was tried again.
            else:
                await staff.wait_idle()
        records = await staff.records()
        assert len(records) == KEPT_INPUTS
        assert [state for _, state, _, _ in records] == [UNKNOWN] + [TRUE] * (KEPT_INPUTS - 1)
        before = [*staff.calls]
        await staff.write_team("core", "1")
        await staff.wait_idle()
        assert staff.calls == [*before, before[1]]


async def test_inputs_that_are_begun_again_are_the_last_ones(autojump_clock: MockClock) -> None:
    """They were declined first, so their record is old. It is not forgotten when they have been charged."""

    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        async with rt.step(team, "charge", inputs=team.data.members) as step:
            if not step.done:
                if team.data.members == ["0"] and len(staff.calls) < KEPT_INPUTS - 1:
                    step.failed("declined")
                else:
                    step.result = await staff.effect(step.key)

    staff = Steps(body)
    async with staff.open():
        for number in (*range(KEPT_INPUTS), 0, KEPT_INPUTS, 0):
            await staff.write_team("core", str(number))
            await staff.wait_idle()
        assert len(staff.calls) == len({*staff.calls}) == KEPT_INPUTS + 1


async def test_full_status_has_room_for_other_inputs_of_each_name(autojump_clock: MockClock) -> None:
    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        for name in ("a", "b", "c", "d"):
            await rt.once(team, name, staff.effect, inputs=team.data.members)

    staff = Steps(body)
    async with staff.open():
        for number in range(KEPT_INPUTS + 4):
            await staff.write_team("core", str(number))
            await staff.wait_idle()
        assert len(await staff.records()) == MOST_STEPS
        last = len(staff.calls)
        assert last == 4 * (KEPT_INPUTS + 4)
        await staff.write_team("core", str(KEPT_INPUTS + 2))
        await staff.wait_idle()
        assert len(staff.calls) == last
    assert not staff.errors()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (lambda number: ("step", str(number)), "the resource has 50 steps of this controller, at most 50, and none of"),
        (lambda number: ("step", "same", number), "was begun with 16 other inputs, and the outcome of each is unknown"),
    ],
)
async def test_number_of_steps_is_bounded(autojump_clock: MockClock, body: Any, error: str) -> None:
    async def steps(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        for number in range(MOST_STEPS + 1):
            _, name, *inputs = body(number)
            with trio.CancelScope() as scope:
                async with rt.step(team, f"s-{name}", inputs=inputs) as step:
                    if not step.done:
                        assert step.key
                        if inputs:
                            scope.cancel()
                            await trio.lowlevel.checkpoint()
                        step.result = "x" * LONGEST_RESULT

    staff = Steps(steps)
    await staff.run()
    assert error in staff.errors_of(HeadwayError)[0]


async def test_steps_of_several_tasks_lose_no_record(autojump_clock: MockClock) -> None:
    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        async with trio.open_nursery() as nursery:
            for name in ("a", "b", "c"):
                nursery.start_soon(rt.once, team, name, staff.effect)

    staff = Steps(body)
    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
        assert sorted((name, reason) for name, _, reason, _ in await staff.records()) == [
            ("a", "Done"),
            ("b", "Done"),
            ("c", "Done"),
        ]
    assert not staff.errors()


async def test_step_is_entered_by_one_task_at_a_time(autojump_clock: MockClock) -> None:
    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rt.once, team, "charge", staff.effect)
            await trio.sleep(0.05)
            await rt.once(team, "charge", staff.effect)

    staff = Steps(body)
    await staff.run()
    assert "step 'charge' of Team core" in staff.errors()[0]
    assert "is open in another task" in staff.errors()[0]
    assert len(staff.calls) == 1


async def test_steps_of_a_resource_outside_the_cache(autojump_clock: MockClock) -> None:
    """The status that the run has written is newer than the team that the program holds, of which a part is cached."""
    staff = Steps()
    part = headway.projection(staff.team, Team, lambda team: Team(members=team.data.members))

    @staff.app.controller(manages=part)
    async def parts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = await rt.strong.read(staff.team, request.id)
        for name in ("a", "b", "a"):
            await rt.once(team, name, staff.effect)

    async with staff.open() as engine:
        await staff.write_team("core")
        await staff.wait_idle()
        stored = await engine.client.read(staff.team, "core")
        assert [each.type for each in stored.status["parts.steps"].conditions] == ["a", "b"]
    assert len(staff.calls) == 3
    assert not staff.errors()


async def test_step_of_another_resource_is_refused(autojump_clock: MockClock) -> None:
    """Other keys may be reconciled by other tasks and processes, and each write replaces all records."""

    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        if team.name == "other":
            return
        other = await rt.client.apply(staff.team.new("other"))
        account = await rt.client.apply(staff.account.new(team.name, staff.account.payload(login="ada")))
        for each in (other, account):
            with pytest.raises(InvalidArgument) as raised:
                await rt.once(each, "charge", staff.effect)
            refused.append(str(raised.value))

    refused: list[str] = []
    staff = Steps(body)
    await staff.run()
    assert refused[0] == (
        "step 'charge' of Team other: a step belongs to the resource that is reconciled: record it there, with "
        "inputs=… for the other one"
    )
    assert "step 'charge' of Account core: a step belongs to" in refused[1]
    assert staff.calls == []


async def test_step_of_a_daemon_and_of_a_timer_is_of_their_resource(autojump_clock: MockClock) -> None:
    staff = Steps(_nobody)

    async def own(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        await rt.once(team, "charge", staff.effect)
        if team.name == "core":
            other = await rt.client.read(staff.team, "other")
            with pytest.raises(InvalidArgument, match="of Team other: a step belongs to the resource that is"):
                await rt.once(other, "charge", staff.effect)

    staff.app.daemon(staff.team, name="watcher")(own)
    staff.app.timer(staff.team, every=60, name="tick")(own)
    async with staff.open() as engine:
        await staff.write_team("other")
        await staff.write_team("core")
        await trio.sleep(1)
        stored = await engine.client.read(staff.team, "core")
        assert {*stored.status} == {"watcher.steps", "tick.steps"}
    assert len(staff.calls) == 4
    assert not staff.errors()


async def _nobody(_: headway.Runtime, __: headway.Resource[Team]) -> None:
    pass


async def test_step_of_a_resource_that_is_gone_does_not_begin(autojump_clock: MockClock) -> None:
    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        await staff.engine.client.delete(team)
        await staff.charge(rt, team)

    staff = Steps(body)
    await staff.run()
    assert "not found" in staff.errors()[0]
    assert staff.calls == []


async def test_step_in_a_clean_up(autojump_clock: MockClock) -> None:
    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        async with rt.finalizer(team) as guarded:
            if guarded.cleaning_up:
                await rt.once(guarded.resource, "refund", staff.effect)
                raise staff.failures.pop() if staff.failures else KeyError("stop") if staff.runs < 4 else StopCleaning

    class StopCleaning(Exception):
        pass

    staff = Steps(body)
    async with staff.open() as engine:
        team = await staff.write_team("core")
        await staff.wait_idle()
        await engine.client.delete(team)
        await trio.sleep(5)
        assert await staff.records() == [("refund", TRUE, "Done", "charge 1")]
    assert staff.runs > 3
    assert len(staff.calls) == 1


# --- mistakes ---


async def _no_question(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    async with rt.step(team, "charge"):
        pass


async def _key_of_a_done_one(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    for _ in range(2):
        async with rt.step(team, "charge") as step:
            assert not step.uncertain
            assert step.key
            step._asked = True


async def _after_the_block(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    step = await _done(rt, team)
    step.result = "x"


async def _done(rt: headway.Runtime, team: headway.Resource[Team]) -> Step:
    async with rt.step(team, "charge") as step:
        assert step.done or step.key
    return step


async def _result_of_a_done_one(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    await _done(rt, team)
    async with rt.step(team, "charge") as step:
        assert step.done
        step.result = "x"


async def _failed_when_done(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    await _done(rt, team)
    async with rt.step(team, "charge") as step:
        assert step.done
        step.failed("x")


async def _long(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    async with rt.step(team, "charge") as step:
        step.result = "x" * (LONGEST_RESULT + 1)


async def _number(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    async with rt.step(team, "charge") as step:
        result: Any = 17
        step.result = result


async def _once_a_number(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    async def effect(_: str) -> Any:
        return 17

    await rt.once(team, "charge", effect)


async def _once_without_async(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    effect: Any = lambda _: "x"  # noqa: E731  # a mistake
    await rt.once(team, "charge", effect)


async def _not_open(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    assert rt.step(team, "charge").done


async def _name(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    await rt.once(team, "Charge card", _nothing)


async def _input(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    inputs: Any = (1, team.data)
    await rt.once(team, "charge", _nothing, inputs=inputs)


async def _projected(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
    given: Any = team.id
    await rt.once(given, "charge", _nothing)


async def _nothing(_: str) -> None:
    pass


@pytest.mark.parametrize(
    ("body", "kind", "error"),
    [
        (_no_question, PermanentFailure, "step 'charge': the block does not ask whether the step is done"),
        (_key_of_a_done_one, PermanentFailure, "step 'charge': step.key does not ask whether the step is done"),
        (_result_of_a_done_one, PermanentFailure, "step 'charge': step.result = ... does not ask whether"),
        (_failed_when_done, PermanentFailure, "step 'charge': failed() does not ask whether the step is done"),
        (_after_the_block, Closed, "step.result: the block has ended: call it inside `async with rt.step("),
        (_not_open, Closed, "step.done: the block is not open: call it inside `async with rt.step("),
        (_long, PermanentFailure, "step 'charge': the result has 1025 characters: it must have at most 1024"),
        (_number, PermanentFailure, "step 'charge': the result 17 must be a text"),
        (_once_a_number, PermanentFailure, "step 'charge': the result 17 must be a text"),
        (_once_without_async, PermanentFailure, "step 'charge': the effect returned 'x': it must be an async function"),
        (_name, InvalidArgument, "step 'Charge card': name 'Charge card' is not a valid name"),
        (_input, InvalidArgument, "step 'charge': input Team() must be a text, a number or bytes"),
        (_projected, InvalidArgument, "rt.step() expects a resource, as rt.resource(request) returns it"),
    ],
)
async def test_mistakes_are_named(autojump_clock: MockClock, body: Body, kind: type[HeadwayError], error: str) -> None:
    staff = Steps(body)
    await staff.run()
    assert error in staff.errors_of(kind)[0]


async def test_step_of_a_controller_in_every_process_is_refused(autojump_clock: MockClock) -> None:
    staff = Staff()

    @staff.app.controller(manages=staff.team, name="everywhere", placement="every_process")
    async def everywhere(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        await rt.once(team, "charge", _nothing)

    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(0.9)
    raised = [event.error for event in staff.events_of(headway.events.Reconciled)]
    assert "everywhere has placement='every_process', so each process would make the effect of step 'charge'" in str(
        raised[0]
    )


@pytest.mark.parametrize("raises", [False, True])
async def test_block_that_does_not_ask_whether_it_is_done_is_entered_once(
    autojump_clock: MockClock, raises: bool
) -> None:
    """Its effect is stored, and is not repeated by a retry, by a change or for another resource."""

    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        async with rt.step(team, "charge") as step:
            step.result = await staff.effect("")
            if raises:
                raise LookupError("later")

    staff = Steps(body)
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(30)
        assert await staff.records() == [("charge", TRUE, "Done", "charge 1")]
        assert staff.runs == (2 if raises else 1)
        await staff.write_team("core", "ada")
        await staff.write_team("other")
        await trio.sleep(30)
        assert len(staff.calls) == 1
    before, *_, last = staff.errors_of(Exception)
    assert before == "later" if raises else "step 'charge': the block does not ask whether the step is done" in before
    assert last == (
        "step 'charge': the block does not ask whether the step is done, so it would repeat the effect: write `if not "
        "step.done:` around the effect. No step of this name begins again in this run of the controller"
    )


async def test_block_need_not_ask_whether_it_is_uncertain(autojump_clock: MockClock) -> None:
    """It may ask the outside each time, or pass a key of its own."""

    async def body(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        async with rt.step(team, "charge") as step:
            if not step.done:
                step.result = await staff.effect(team.name)

    staff = Steps(body)
    await staff.run()
    assert staff.calls == ["core"]
    assert not staff.errors()

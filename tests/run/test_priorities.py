"""A controller with priorities: which of the keys that wait a free worker takes, and that none of them is starved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events, field, testing
from headway.errors import IsolationBroken
from headway.queue import LIVE_PER_BACKLOG
from headway.storage import MemoryBackend
from headway.why import sentences
from tests.helpers.resources import Team
from tests.helpers.staff import Staff


@headway.message
class Size:
    members: list[str] = field(1)


def by_tier(team: headway.Resource[Team]) -> int:
    return {"gold": 10, "free": -10}.get(team.metadata.get("tier", ""), 0)


class Tiers(Staff):
    """Each reconcile of a team takes a second, and waits for the gate before."""

    def __init__(self, priority: Callable[[Any], int] = by_tier, **options: Any) -> None:
        super().__init__()
        self.order: list[str] = []
        self.gate = trio.Event()
        self.seconds = 1
        self.answers: dict[str, list[Any]] = {}

        @self.app.controller(manages=self.team, priority=priority, **options)
        async def teams(_: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
            self.order.append(request.id.name)
            await self.gate.wait()
            await trio.sleep(self.seconds)
            answer = next(iter(self.answers.get(request.id.name, [])), None)
            if answer is not None:
                self.answers[request.id.name].pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    async def write(self, name: str, tier: str = "") -> headway.Resource[Team]:
        return await self.engine.client.apply(
            self.team.new(name, Team(), metadata={"tier": tier, "at": str(trio.current_time())})
        )

    async def write_all(self) -> None:
        """Write a team that the worker takes, and four that wait behind it."""
        await self.write("first")
        await trio.sleep(0.1)
        for name, tier in (("low", "free"), ("normal", ""), ("late", ""), ("high", "gold")):
            await self.write(name, tier)
        await trio.sleep(0.1)

    @property
    def run(self) -> Any:
        return self.engine.controllers["staff/teams"].run


async def test_key_of_a_higher_priority_is_reconciled_first(autojump_clock: MockClock) -> None:
    staff = Tiers()
    async with staff.open():
        await staff.write_all()
        staff.gate.set()
        await staff.wait_idle()
    assert staff.order == ["first", "high", "normal", "late", "low"]


async def test_waiting_key_rises_and_falls_with_its_resource(autojump_clock: MockClock) -> None:
    """And so does a key of the first pass, which a change makes live."""
    staff = Tiers()
    async with staff.open():
        await staff.write_all()
        await staff.write("low", "gold")
        await staff.write("normal", "free")
        await trio.sleep(0.1)
        staff.gate.set()
        await staff.wait_idle()
    assert staff.order == ["first", "high", "low", "late", "normal"]


async def test_first_pass_goes_by_priority_too(autojump_clock: MockClock) -> None:
    """A change goes before the first pass only at the same priority. A deleted resource has none."""
    backend, staff = MemoryBackend(), Tiers()
    async with staff.open(backend):
        staff.gate.set()
        for name, tier in (("a", ""), ("b", "free"), ("c", ""), ("d", "gold"), ("e", "gold")):
            await staff.write(name, tier)
        await staff.wait_idle()
    again = Tiers()
    async with again.open(backend):
        await trio.sleep(0.1)
        await again.write("c", "")
        await again.engine.client.delete(again.team.id("e"))
        await trio.sleep(0.1)
        again.gate.set()
        await again.wait_idle()
    assert again.order == ["d", "c", "e", "a", "b"]


@pytest.mark.parametrize("ahead", [True, False])
async def test_c6_keys_of_a_higher_priority_do_not_starve_the_others(autojump_clock: MockClock, ahead: bool) -> None:
    """However many come, and whether they are live or of the first pass: one of nine reconciles takes the oldest."""
    size, backend, staff = 40, MemoryBackend(), Tiers()
    old, new = ("free", "gold") if ahead else ("gold", "free")
    async with staff.open(backend):
        staff.gate.set()
        for number in range(size):
            await staff.write(f"old-{number:02}", old)
        await staff.wait_idle()
    again = Tiers()
    again.gate.set()
    async with again.open(backend), trio.open_nursery() as nursery:

        async def change() -> None:
            while True:
                for number in range(20):
                    await again.write(f"new-{number:02}", new)
                    await trio.sleep(0.5)

        nursery.start_soon(change)
        await trio.sleep(size * (LIVE_PER_BACKLOG + 1) * 1.02)
        nursery.cancel_scope.cancel()
        turns = [number for number, name in enumerate(again.order, 1) if name.startswith("old")]
    assert len(turns) >= size
    assert all(turn <= nth * (LIVE_PER_BACKLOG + 1) + 1 for nth, turn in enumerate(turns[:size], 1))
    assert not ahead or len(again.order) > size * LIVE_PER_BACKLOG


async def test_retries_requeues_and_an_operators_triggers_go_by_priority(autojump_clock: MockClock) -> None:
    """Each of them is an add like any other, and none is lost."""
    staff = Tiers(backoff=headway.Backoff(base=0.5))
    staff.answers = {"low": [ValueError("no")], "normal": [headway.requeue_after(1.4)], "high": [ValueError("no")]}
    staff.gate.set()
    async with staff.open():
        for name, tier in (("low", "free"), ("normal", ""), ("high", "gold")):
            await staff.write(name, tier)
            await trio.sleep(0.1)
        await staff.wait_idle()
        # The worker is free every second, and the keys that failed are ready again after 1.5 and 2.5 seconds.
        assert staff.order == ["low", "high", "normal", "high", "low", "normal"]
        staff.gate = trio.Event()
        staff.order.clear()
        await staff.write("normal")
        await trio.sleep(0.1)
        for name in ("low", "high"):
            assert staff.run.keys.retry(staff.team.id(name).key) is False
        staff.gate.set()
        await staff.wait_idle()
        assert staff.order == ["normal", "high", "low"]


async def test_keys_that_a_run_leaves_go_by_priority_in_the_next(autojump_clock: MockClock) -> None:
    staff = Tiers()
    async with staff.open():
        await staff.write_all()
        staff.order.clear()
        # As a watch that is added does.
        staff.run._ending.cancel()
        staff.gate.set()
        await trio.sleep(0.1)
        await staff.wait_idle()
    assert staff.order == ["high", "normal", "late", "first", "low"]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "it returned None: use an int from -10 to 10"),
        ("high", "it returned 'high': use an int"),
        (1.5, "it returned 1.5: use an int"),
        (11, "it returned 11: use an int from -10 to 10"),
        (-11, "it returned -11: use an int"),
        (ValueError("no tier"), "no tier"),
        (SystemExit("tired"), "tired"),
    ],
)
async def test_failing_function_is_reported_and_its_key_is_normal(
    autojump_clock: MockClock, answer: Any, problem: str
) -> None:
    def priority(team: headway.Resource[Team]) -> Any:
        if team.name != "odd":
            return by_tier(team)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    staff = Tiers(priority)
    async with staff.open() as engine:
        await staff.write_all()
        odd = await staff.write("odd", "gold")
        await trio.sleep(0.1)
        failed = staff.events_of(events.IndexFailed)[0]
        assert (failed.controller, failed.index, failed.key) == ("staff/teams", "headway.priority", odd.id.key)
        assert problem in str(failed.error)
        lines = sentences(await engine.why(odd.id))
        assert any("Team odd: the priority is 0, because the function of `priority` failed." in line for line in lines)
        assert any(problem in line for line in lines)
        staff.gate.set()
        await staff.wait_idle()
    assert staff.order == ["first", "high", "normal", "late", "odd", "low"]


async def test_function_that_returns_a_coroutine_is_told_so(autojump_clock: MockClock) -> None:
    async def tier(_: object) -> int:
        return 1

    wrapped: Any = lambda team: tier(team)  # noqa: E731  # a lambda hides that the function is async
    staff = Tiers(wrapped)
    async with staff.open():
        await staff.write("core")
        await trio.sleep(0.1)
        (failed,) = staff.events_of(events.IndexFailed)
        assert "which nothing awaits" in str(failed.error)
        staff.gate.set()


async def test_truth_is_a_priority(autojump_clock: MockClock) -> None:
    """It is an int in Python: 1 is before 0."""
    staff = Tiers(lambda team: team.metadata.get("tier") == "gold")
    async with staff.open():
        await staff.write_all()
        staff.gate.set()
        await staff.wait_idle()
    assert staff.order == ["first", "high", "low", "normal", "late"]
    assert not staff.events_of(events.IndexFailed)


async def test_why_says_the_priority_and_how_many_keys_are_before(autojump_clock: MockClock) -> None:
    """A key that does not wait for a worker is before none, nor is one behind none."""
    staff = Tiers()
    async with staff.open() as engine:
        await staff.write_all()
        wanted = {"first": ("running", 0, 0), "high": ("queued", 10, 0), "normal": ("queued", 0, 1)}
        wanted |= {"late": ("queued", 0, 2), "low": ("queued", -10, 3)}
        for name, told in wanted.items():
            (part,) = (await engine.why(staff.team.id(name))).controllers
            assert (part.state, part.priority, part.before) == told, name
        lines = [sentences(await engine.why(staff.team.id(name))) for name in ("low", "normal", "high")]
        assert any("for attempt 1, with priority -10." in line for line in lines[0])
        assert any(line.strip() == "3 keys are before it." for line in lines[0])
        assert any(line.strip() == "1 key is before it." for line in lines[1])
        assert not any("before it" in line for line in lines[2])
        staff.gate.set()


async def test_why_says_how_many_keys_are_before_one_without_priorities(autojump_clock: MockClock) -> None:
    staff = Staff()

    @staff.app.controller(manages=staff.team)
    async def teams(_: headway.Runtime, __: headway.Request[Team]) -> None:
        await trio.sleep_forever()

    async with staff.open() as engine:
        for name in ("a", "b", "c", "d"):
            await staff.write_team(name)
            await trio.sleep(0.1)
        (part,) = (await engine.why(staff.team.id("d"))).controllers
        assert (part.state, part.priority, part.before) == ("queued", 0, 2)


async def test_sharded_controller_orders_the_keys_of_its_shards(autojump_clock: MockClock) -> None:
    """What is collected while a shard opens is ordered as well."""
    backend, staff = MemoryBackend(), Tiers(placement=headway.sharded(shards=3))
    async with staff.open(backend):
        await staff.wait_idle()
        await staff.write_all()
        staff.gate.set()
        await staff.wait_idle()
    assert staff.order == ["first", "high", "normal", "late", "low"]


async def test_worker_in_another_process_has_priorities_and_says_them(tmp_path: Path) -> None:
    staff, served, address = Tiers(), headway.App("staff"), f"unix:{tmp_path}/socket"
    served.registry = staff.app.registry
    staff.seconds = 0
    network = headway.Network([address], insecure=True)
    async with (
        headway.open_engine("memory:", served, network=network, report=events.ignore) as server,
        headway.open_workers(address, staff.app, process="w", report=events.ignore) as staff.engine,
    ):
        with trio.fail_after(30):
            await staff.write_all()
            while len(staff.run._ownership.machine._lanes) < 4:
                await staff.run.progress.wait()
            (part,) = (await server.why(staff.team.id("low"))).controllers
            assert (part.process, part.state, part.priority, part.before) == ("w", "queued", -10, 3)
            staff.gate.set()
            await staff.engine.wait_idle()
    assert staff.order == ["first", "high", "normal", "late", "low"]


async def test_controller_of_a_projection_has_priorities(autojump_clock: MockClock) -> None:
    staff = Staff()
    order: list[str] = []
    sizes = headway.projection(staff.team, Size, lambda team: Size(members=team.data.members))

    @staff.app.controller(manages=sizes, priority=lambda size: len(size.data.members))
    async def teams(_: headway.Runtime, request: headway.Request[Size]) -> None:
        order.append(request.id.name)
        await trio.sleep(1)

    async with staff.open():
        for number in (0, 3, 1, 4, 2):
            await staff.write_team(f"t{number}", *map(str, range(number)))
            await trio.sleep(0.1)
        await staff.wait_idle()
    assert order == ["t0", "t4", "t3", "t2", "t1"]


async def test_function_that_changes_its_resource_is_found(autojump_clock: MockClock) -> None:
    """C9."""

    def priority(team: headway.Resource[Team]) -> int:
        team.data.members.append("me")
        return 0

    staff = Tiers(priority)
    staff.gate.set()

    async def use() -> None:
        async with testing.open_engine("memory:", staff.app, report=events.ignore, check_isolation=True) as engine:
            await engine.client.apply(staff.team.new("core", Team()))
            await engine.wait_idle()

    with pytest.raises(IsolationBroken, match=r"headway\.priority"):
        await use()

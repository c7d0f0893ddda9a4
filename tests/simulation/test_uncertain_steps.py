"""Durable steps in a simulation: a program that ignores an uncertain one is accused, in words that say so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import headway
from headway import field
from headway.steps import Step
from headway.testing import simulation
from headway.testing.simulation import Setting, run
from headway.testing.simulation.oracles import ignored_steps


@headway.message
class Order:
    amount: int = field(1)


class Bank:
    """It carries out each key once, but a call may have none."""

    def __init__(self) -> None:
        self.charges: list[str] = []
        self.keys: dict[str, str] = {}

    def state(self) -> object:
        return self.charges

    async def charge(self, order: str, key: str = "") -> str:
        if not key or key not in self.keys:
            self.charges.append(order)
        self.keys[key] = f"charge of {order}"
        return self.keys[key]

    async def find(self, order: str) -> str:
        return f"charge of {order}" if order in self.charges else ""


class BankThatIsNotAsked(Bank):
    find: Any = None


class BankWithoutKeys:
    def __init__(self) -> None:
        self.charges: list[str] = []

    async def charge(self, order: str) -> str:
        self.charges.append(order)
        return f"charge of {order}"

    async def find(self, order: str) -> str:
        return f"charge of {order}" if order in self.charges else ""


Effect = Callable[[Any, str, Step], Awaitable[str]]


async def passes_the_key(bank: Any, order: str, step: Step) -> str:
    return str(await bank.charge(order, step.key))


async def looks_first(bank: Any, order: str, step: Step) -> str:
    return str((step.uncertain and await bank.find(order)) or await bank.charge(order))


async def ignores_it(bank: Any, order: str, step: Step) -> str:
    assert step.uncertain in (True, False)
    return str(await bank.charge(order))


async def takes_it_for_done(bank: Any, order: str, step: Step) -> str:
    return f"charge of {order}" if step.uncertain else str(await bank.charge(order))


async def has_a_key_for_each_name(bank: Any, order: str, step: Step) -> str:
    assert step.uncertain in (True, False)
    return str(await bank.charge(order, f"charge {order}"))


async def has_a_key_for_each_attempt(bank: Any, order: str, step: Step) -> str:
    return str(await bank.charge(order, f"{step.key}-{step.uncertain}"))


def shop(effect: Effect) -> simulation.MakeApp:
    def make(process: simulation.Process) -> headway.App:
        app = headway.App("shop")
        order: headway.ResourceType[Order] = app.type("shop", "v1", "Order", Order)

        @app.controller(manages=order)
        async def orders(rt: headway.Runtime, request: headway.Request[Order]) -> None:
            found = rt.resource(request)
            if found is not None:
                async with rt.step(found, "charge-card") as step:
                    if not step.done:
                        step.result = await effect(process.outside, found.name, step)

        return app

    return make


async def one_order(world: simulation.World) -> None:
    await world.client.apply(world.type("Order").new("o1", Order(amount=5)))
    await world.wait_idle()


async def an_order_that_changes(world: simulation.World) -> None:
    for amount in (5, 6):
        await world.client.apply(world.type("Order").new("o1", Order(amount=amount)))
        await world.wait_idle()


REPEATS = (
    "step: the step charge-card of Order o1 was uncertain, and orders repeats outside.charge('o1') without step.key "
    "and without a look: it may have happened. Pass step.key, or ask the outside first if step.uncertain"
)
TAKEN = (
    "step: the step charge-card of Order o1 was uncertain, and orders takes it for done without a call: its effect may "
    "not have happened. Ask the outside, or repeat the effect with step.key"
)


@pytest.mark.parametrize(
    ("effect", "plan", "found", "end"),
    [
        (ignores_it, "crash_after(2)", REPEATS, "['o1', 'o1']"),
        (takes_it_for_done, "crash_after(1)", TAKEN, "[]"),
        (has_a_key_for_each_attempt, "crash_after(2)", "", "['o1', 'o1']"),
    ],
)
def test_program_that_ignores_an_uncertain_step_is_accused(effect: Effect, plan: str, found: str, end: str) -> None:
    """The crash between effect and result, or between intention and effect, is tried by itself."""
    with pytest.raises(simulation.Refuted) as refuted:
        simulation.explore(shop(effect), one_order, outside=Bank)
    findings = [str(each) for each in refuted.value.findings]
    assert refuted.value.plan == simulation.Plan.parse(plan)
    assert findings[-1].startswith(f"outside: the outside world is {end}; without faults: ['o1']")
    assert (findings[0] == found) or not found
    assert "p1: StepUncertain (controller shop/orders, id Order o1, step charge-card" in str(refuted.value)


@pytest.mark.parametrize(
    ("effect", "plan", "accused"),
    [
        (passes_the_key, "crash_after(2)", False),
        (looks_first, "crash_after(2)", False),
        (has_a_key_for_each_attempt, "crash_after(2)", False),
        (ignores_it, "crash_after(2)", True),
        # Its call is the first one.
        (ignores_it, "crash_after(1)", False),
        (takes_it_for_done, "crash_after(2)", True),
        (takes_it_for_done, "none", False),
    ],
)
def test_accused_is_the_block_that_repeats_its_call_without_key_or_look(
    effect: Effect, plan: str, accused: bool
) -> None:
    setting = Setting(app=shop(effect), scenario=one_order, outside=Bank)
    assert bool(ignored_steps(run(setting, simulation.Plan.parse(plan)).trace)) is accused


@pytest.mark.wide
@pytest.mark.parametrize(
    ("effect", "outside", "without"),
    [
        (passes_the_key, BankThatIsNotAsked, []),
        # A restored store may have lost the order with its step. Users order again, and the key is another one.
        (passes_the_key, Bank, ["restore"]),
        (looks_first, BankWithoutKeys, ["restore"]),
        (has_a_key_for_each_name, Bank, []),
    ],
    ids=["key", "key and restore", "look", "name"],
)
def test_program_that_passes_the_key_or_looks_first_is_accepted(
    effect: Effect, outside: Any, without: list[str]
) -> None:
    assert simulation.explore(shop(effect), one_order, outside=outside, without=without).complete


@pytest.mark.parametrize("plan", ["crash_after(1)", "crash_after(2)", "not_done(2)", "commit_late(2, 30.0)"])
@pytest.mark.parametrize(("effect", "outside"), [(passes_the_key, Bank), (looks_first, BankWithoutKeys)])
def test_uncertain_step_of_a_right_program_is_accepted(effect: Effect, outside: Any, plan: str) -> None:
    simulation.explore(shop(effect), one_order, outside=outside, plan=plan)


@pytest.mark.wide
def test_key_is_enough_in_two_processes() -> None:
    """Also for an order that changes in between, although the step is done for one generation or for another."""
    explored = simulation.explore(shop(passes_the_key), an_order_that_changes, outside=BankThatIsNotAsked, processes=2)
    assert explored.complete
    assert not explored.not_asked


@pytest.mark.parametrize(
    "plan",
    [
        "hurried()",
        "crash_after(2)",
        *[pytest.param(each, marks=pytest.mark.wide) for each in ("spaced(2.0)", "slow(2, 10.0)")],
    ],
)
def test_step_is_of_the_incarnation_and_of_no_generation(plan: str) -> None:
    """Users change the order before the step or after it: that makes no difference at the end."""
    simulation.explore(shop(passes_the_key), an_order_that_changes, outside=BankThatIsNotAsked, plan=plan)


def test_look_is_not_enough_against_a_former_leader() -> None:
    """It sends its call when the next leader has looked."""
    with pytest.raises(simulation.Refuted) as refuted:
        simulation.explore(shop(looks_first), one_order, outside=BankWithoutKeys, processes=2, plan="pause(2, 40.0)")
    assert [each.oracle for each in refuted.value.findings] == ["outside"]


def test_repeated_effect_that_changes_nothing_is_right() -> None:
    class Record(Bank):
        def state(self) -> object:
            return sorted({*self.charges})

    assert simulation.explore(shop(ignores_it), one_order, outside=Record, plan="crash_after(2)").complete

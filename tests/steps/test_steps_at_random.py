"""Steps that crash, or lose answers or their leader, at random moments, against an outside that counts its effects."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

import headway
from headway import field
from headway.steps import StepUncertain
from headway.testing import simulation
from headway.testing.simulation import Plan, Setting, faults, run

AT_A_STEP = (
    *(faults.CrashBefore, faults.CrashAfter, faults.NotDone, faults.AnswerLost, faults.AnswerLate, faults.CommitLate),
    *(faults.CommitLast, faults.LostRace, faults.LeaseLost, faults.HandOver, faults.CutOff, faults.Pause),
    *(faults.ServerRestart, faults.Outage),
)


@headway.message
class Order:
    amount: int = field(1)


class Bank:
    """It carries out each key once."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.charges: dict[str, int] = {}

    async def charge(self, amount: int, key: str) -> str:
        self.calls[key] += 1
        self.charges[key] = amount
        return f"charged {amount}"


def shop(process: simulation.Process) -> headway.App:
    app = headway.App("shop")
    order: headway.ResourceType[Order] = app.type("shop", "v1", "Order", Order)
    bank: Bank = process.outside

    @app.controller(manages=order, concurrency=4)
    async def orders(rt: headway.Runtime, request: headway.Request[Order]) -> None:
        found = rt.resource(request)
        if found is not None:
            amount = found.data.amount
            await rt.once(found, "charge", lambda key: bank.charge(amount, key), inputs=amount)

    return app


async def three_orders(world: simulation.World) -> None:
    for name, amount in (("a", 1), ("b", 2), ("a", 3)):
        await world.client.apply(world.type("Order").new(name, Order(amount=amount)))
        await world.wait_idle()


def check(world: simulation.World) -> None:
    """Each order was charged under one key, and the store says so. No call was repeated without a word."""
    bank: Bank = world.outside
    uncertain = Counter(event.key for event in world.trace.events if isinstance(event, StepUncertain))
    assert all(count <= 1 + uncertain[key] for key, count in bank.calls.items())
    assert sorted(bank.charges.values()) == [1, 2, 3]
    done = [
        each.message
        for (kind, _), stored in world.store.now.items()
        if kind[1] == "Order"
        for each in stored.status["orders.steps"].conditions
    ]
    assert sorted(done) == ["charged 1", "charged 2", "charged 3"]


class Charges(Bank):
    def state(self) -> object:
        """Return what is compared: how often the bank was called differs."""
        return self.charges


@given(
    plan=st.lists(
        st.tuples(st.sampled_from(AT_A_STEP), st.integers(1, 12)), max_size=6, unique_by=lambda each: each[1]
    ),
    crashes=st.lists(st.integers(20, 400), max_size=3, unique=True),
    seed=st.integers(0, 9),
)
def test_each_effect_happens_under_one_key(
    plan: list[tuple[type[faults.StepFault], int]], crashes: list[int], seed: int
) -> None:
    """None happens under a second key, whatever happens between its intention, the effect and its result."""
    planned = [kind(step) for kind, step in plan] + [faults.CrashAt("p1", at) for at in crashes]
    setting = Setting(app=shop, scenario=three_orders, outside=Charges, holds=(check,), processes=2)
    result = run(setting, Plan(*planned, seed=seed))
    assert not result.findings, [str(each) for each in result.findings]

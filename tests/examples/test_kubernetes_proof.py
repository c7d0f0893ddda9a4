"""The proof of the Kubernetes example, under some of its plans, and an operator that it refutes."""

from __future__ import annotations

from typing import Any

import pytest

import headway
from examples.kubernetes import proof
from examples.kubernetes.dns import Order
from examples.kubernetes.websites import WEBSITE, operator
from headway.testing import simulation

LATE = "commit_last(20)"
"""The first call that puts a record arrives after all others."""


async def deleted(world: simulation.World) -> None:
    await world.client.apply(proof.site(host="old.example"))
    await world.wait_idle()
    await world.client.delete(WEBSITE.id("blog"))
    await world.wait_idle()


def explore(make: simulation.MakeApp, plan: str) -> simulation.Explored:
    return simulation.explore(make, deleted, outside=proof.Provider, plan=plan, processes=2)


class Careless:
    """A client of the provider that sends no orders."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    async def put(self, key: str, order: Order, host: str) -> None:  # noqa: ARG002  # it leaves the order out
        await self._provider.put(key, host=host)

    async def remove(self, key: str, order: Order) -> None:  # noqa: ARG002  # likewise
        await self._provider.remove(key)


def careless(process: simulation.Process) -> headway.App:
    return operator(Careless(process.outside))


def test_operator_that_sends_no_orders_is_refuted() -> None:
    with pytest.raises(simulation.Refuted) as caught:
        explore(careless, LATE)
    finding = str(caught.value.findings[0])
    assert finding == "outside: the outside world is {'default/blog': 'old.example'}; without faults: {}"


@pytest.mark.parametrize(
    "plan",
    [
        LATE,
        *(
            pytest.param(each, marks=pytest.mark.wide)
            for each in ("crash_after(1)", "crash_after(20)", "crash_before(25)", "lease_lost(20)")
        ),
    ],
)
def test_operator_is_proved(plan: str) -> None:
    assert explore(proof.make, plan).complete


@pytest.mark.deep
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("test", [proof.test_edits, proof.test_a_deletion])
def test_operator_is_proved_under_every_fault(test: Any) -> None:
    test()

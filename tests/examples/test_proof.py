"""The proof example refutes two programs for the stated reasons, and proves the third."""

import importlib.util
import sys
from typing import Any

import pytest

import headway
from headway.testing import simulation
from tests.examples.fleet_kit import ROOT


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("proof_example", ROOT / "examples" / "03_proof.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The annotations of its messages are looked up in sys.modules.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def explore(example: Any, way: str, plan: str | None, **settings: Any) -> simulation.Explored:
    make = example.program(getattr(example, way))
    return simulation.explore(make, example.scenario, outside=example.Authority, plan=plan, **settings)


LATE, RESTORED = "commit_last(3)", "restore(7, 4)"
TWICE = "outside: the outside world is ['web.example', 'web.example']; without faults: ['web.example']"
NONE = "outside: the outside world is []; without faults: ['web.example']"


@pytest.mark.parametrize(("way", "plan", "finding"), [("looks_first", LATE, TWICE), ("by_uid", RESTORED, NONE)])
def test_way_that_the_guide_warns_of_is_refuted(example: Any, way: str, plan: str, finding: str) -> None:
    """A call that arrives last issues a second certificate. A restored store has an incarnation whose key is spent."""
    with pytest.raises(simulation.Refuted) as caught:
        explore(example, way, plan)
    assert str(caught.value.findings[0]) == finding


@pytest.mark.parametrize(
    "plan",
    [
        LATE,
        RESTORED,
        *(
            pytest.param(each, marks=pytest.mark.wide)
            for each in ("crash_after(2)", "commit_late(2, 30.0)", "commit_late(7, 0.0)", "lease_lost(2)", "pause(7)")
        ),
    ],
)
def test_calls_with_an_order_are_proved(example: Any, plan: str) -> None:
    assert explore(example, "in_order", plan).complete


def test_change_of_what_is_being_deleted_is_not_compared(example: Any) -> None:
    """Users want the certificate again while its finalizer still keeps the old one. No program can keep that change."""
    explored = explore(example, "in_order", "hurried(); spaced(1.0); slow(2, 5.0)")
    assert any("users change a resource that is being deleted" in each for each in explored.differing)


def test_change_that_is_refused_because_of_a_pending_deletion_spoils_the_plan(example: Any) -> None:
    """Users change what they want the second time, before the controllers have seen the deletion."""

    async def scenario(world: simulation.World) -> None:
        certificate = world.type("Certificate")
        for host in ("web.example", "www.example"):
            await world.client.delete(certificate.id("web"))
            await world.wait_idle()
            await world.client.apply(certificate.new("web", example.Certificate(host=host)))
            await world.wait_idle()

    plan = "merged('pki.Certificate', 8)"
    explored = simulation.explore(example.program(example.in_order), scenario, outside=example.Authority, plan=plan)
    assert "marked for deletion" in explored.spoilt[plan]


@pytest.mark.parametrize("until_gone", [True, pytest.param(False, marks=pytest.mark.wide)])
def test_users_may_wait_themselves_until_a_deletion_is_done(example: Any, until_gone: bool) -> None:
    """A deletion that the controllers are to see with the users' next change is shown without it in the end."""

    async def scenario(world: simulation.World) -> None:
        certificate = world.type("Certificate")
        await world.client.apply(certificate.new("web", example.Certificate(host="web.example")))
        await world.wait_idle()
        await world.client.delete(certificate.id("web"))
        if until_gone:
            await headway.until_gone(world.client, certificate, "web")
        while await world.client.get(certificate, "web") is not None:
            await world.wait_idle()
        await world.client.apply(certificate.new("web", example.Certificate(host="web.example")))
        await world.wait_idle()

    make = example.program(example.in_order)
    assert simulation.explore(make, scenario, outside=example.Authority, plan="merged('pki.Certificate', 8)").complete


@pytest.mark.deep
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("processes", [1, 2])
def test_calls_with_an_order_are_proved_under_every_fault(example: Any, processes: int) -> None:
    assert explore(example, "in_order", None, processes=processes, seconds=600).complete

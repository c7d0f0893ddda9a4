"""The proof example refutes two programs for the stated reasons, and proves the third."""

import importlib.util
import sys
from typing import Any

import pytest

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


@pytest.mark.deep
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("processes", [1, 2])
def test_calls_with_an_order_are_proved_under_every_fault(example: Any, processes: int) -> None:
    assert explore(example, "in_order", None, processes=processes, seconds=600).complete

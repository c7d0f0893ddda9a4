"""The proof example refutes one program for the stated reason, and proves the other."""

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


@pytest.mark.wide
def test_program_that_looks_first_is_refuted_by_a_late_call(example: Any) -> None:
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(
            example.program(example.looks_first),
            example.scenario,
            outside=example.Authority,
            plan="commit_late(3, 30.0)",
        )
    assert str(caught.value.findings[0]) == "outside: the outside world is ['web.example']; without faults: []"


@pytest.mark.parametrize(
    "plan",
    [
        "crash_after(2)",
        "commit_late(2, 30.0)",
        *(pytest.param(each, marks=pytest.mark.wide) for each in ("commit_late(2, 0.0)", "lease_lost(2)")),
    ],
)
def test_program_with_an_idempotency_key_is_proved(example: Any, plan: str) -> None:
    simulation.explore(example.program(example.says_which), example.scenario, outside=example.Authority, plan=plan)


@pytest.mark.deep
def test_program_with_an_idempotency_key_is_proved_under_every_fault(example: Any) -> None:
    explored = simulation.explore(
        example.program(example.says_which), example.scenario, outside=example.Authority, seconds=600
    )
    assert explored.complete

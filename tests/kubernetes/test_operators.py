"""The simulation finds the bugs of operators without a cluster, by its defaults, and passes their corrected twins."""

from __future__ import annotations

import pytest

from headway.testing import simulation
from tests.kubernetes.operators import CASES

WIDE = {"deletion_ignored", "fights_autoscaler", "generation_first", "no_owner"}
"""The cases that the default run leaves out, because they take longer."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.wide] if name in WIDE else []) for name in CASES]
)
def test_wrong_operator_is_refuted_and_its_twin_passes_where_it_failed(name: str) -> None:
    with pytest.raises(simulation.Refuted) as caught:
        CASES[name].explore(right=False)
    CASES[name].explore(right=True, plan=str(caught.value.plan))


@pytest.mark.wide
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_corrected_twin_passes(name: str) -> None:
    explored = CASES[name].explore(right=True, seconds=600)
    assert explored.complete
    assert not explored.spoilt

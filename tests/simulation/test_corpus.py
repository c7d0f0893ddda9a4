"""The simulation refutes every wrong reconciler of the corpus and passes its corrected twin."""

from __future__ import annotations

import time

import pytest

import tests.helpers.corpus.__main__  # noqa: F401  # declares the cases
from headway.testing import simulation
from tests.helpers.corpus.staff import CASES

LIMIT = 20.0
"""The seconds of processor time within which a wrong reconciler is refuted."""
QUICK = {"created_then_recorded", "looks_after_the_gone"}
"""The cases that the default run includes."""
WIDE = {
    "a_key_for_each_event",
    "added_again",
    "begun_twice",
    "finalizer_too_late",
    "retried_under_another_name",
    "torn_down",
}
"""The cases that `make wide` includes as well."""
BY_ONE_ORACLE = {"looks_after_the_gone": "queue", "a_key_for_each_event": "queue"}
"""The cases that only one oracle refutes."""
NAMES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.wide if name in WIDE else pytest.mark.deep)
    for name in CASES
]


def test_corpus_is_complete() -> None:
    assert len(CASES) >= 35
    assert set(CASES) >= QUICK | WIDE


@pytest.mark.parametrize("name", NAMES)
def test_wrong_reconciler_is_refuted(name: str) -> None:
    began = time.process_time()
    with pytest.raises(simulation.Refuted) as caught:
        CASES[name].explore(right=False, seconds=600)
    assert time.process_time() - began < LIMIT
    if name in BY_ONE_ORACLE:
        assert {each.oracle for each in caught.value.findings} == {BY_ONE_ORACLE[name]}


@pytest.mark.parametrize(
    "plan", ["commit_late(2, 30.0)", "restore(4, 4)", pytest.param("restore(0, 3)", marks=pytest.mark.wide)]
)
def test_call_that_arrives_after_its_cleanup_creates_nothing(plan: str) -> None:
    """If a restored store contains a deleted resource again, its user deletes it again."""
    CASES["finalizer_too_late"].explore(right=True, plan=plan)


@pytest.mark.parametrize("right", [pytest.param(True, marks=pytest.mark.wide), False])
def test_paused_process_with_an_expired_lease_undoes_no_work_of_its_successor(right: bool) -> None:
    if right:
        CASES["leader_asleep"].explore(right=True, plan="pause(1, 40.0)")
        return
    with pytest.raises(simulation.Refuted) as caught:
        CASES["leader_asleep"].explore(right=False, plan="pause(1, 40.0)")
    assert str(caught.value.findings[0]) == (
        "again: the outside world was {'core': 'x'}; after a restart it is {'core': 'y'}"
    )


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
def test_corrected_twin_passes(name: str) -> None:
    explored = CASES[name].explore(right=True, seconds=600)
    assert explored.complete
    assert not explored.spoilt

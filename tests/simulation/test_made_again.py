"""Things in the world outside that are removed and made again."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from headway.testing import simulation
from headway.testing.simulation.oracles import Allowed, made_again, things_in


def _result(*states: dict[str, Any]) -> simulation.Result:
    trace = simulation.Trace()
    trace.outside = [things_in(each) for each in states]
    return simulation.Result(trace, {}, {}, None, ())


ONE: dict[str, Any] = {"disks": {"a": 10}}
NONE: dict[str, Any] = {"disks": {}}
TWO: dict[str, Any] = {"disks": {"b": 10}}


@pytest.mark.parametrize(
    ("states", "rights", "count"),
    [
        ((NONE, ONE, NONE, ONE), [(NONE, ONE)], 1),
        ((NONE, ONE, NONE), [(NONE, ONE)], 0),
        # What was there at the start does not count: a pool gives its values back.
        ((ONE, NONE, ONE), [(ONE, NONE)], 0),
        # Another one is made again without faults.
        ((NONE, ONE, NONE, ONE), [(NONE, ONE), (NONE, TWO, NONE, TWO)], 0),
        (({"log": []}, {"log": ["x"]}, {"log": []}, {"log": ["x"]}), [({"log": []},)], 1),
        # The value of a key may change.
        ((NONE, {"disks": {"a": 1}}, {"disks": {"a": 2}}, {"disks": {"a": 1}}), [(NONE, ONE)], 0),
    ],
)
def test_what_comes_back_more_often_than_without_faults_is_found(states: Any, rights: Any, count: int) -> None:
    found = made_again(_result(*states), [_result(*each) for each in rights], Allowed())
    assert len(found) == count


def test_what_others_have_taken_away_is_not_removed_by_the_program() -> None:
    result = _result(NONE, ONE, NONE, ONE)
    result.trace.drifted.add(2)
    assert made_again(result, [_result(NONE, ONE)], Allowed()) == []
    result.trace.drifted.clear()
    assert made_again(result, [_result(NONE, ONE)], Allowed())


def test_finding_says_how_often_if_it_happens_without_faults_too() -> None:
    (found,) = made_again(_result(NONE, ONE, NONE, ONE, NONE, ONE), [_result(NONE, TWO, NONE, TWO)], Allowed())
    assert found.text == "outside.disks: a was removed and made again (2 such cases); without faults: 1 such case"


def test_what_may_differ_is_not_compared() -> None:
    result, right = _result(NONE, ONE, NONE, ONE), _result(NONE, ONE)
    assert made_again(result, [right], Allowed(frozenset({"outside.disks"}))) == []
    assert made_again(result, [right], Allowed(frozenset({"order(outside.disks)"}))) == []
    assert made_again(result, [right], dataclasses.replace(Allowed(), random_outside=True)) == []

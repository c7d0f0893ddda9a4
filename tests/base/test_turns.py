"""Fair shares of a bounded list."""

from __future__ import annotations

from itertools import islice

from headway.base import by_turns, in_turn


def test_long_group_takes_no_place_of_a_short_one() -> None:
    """The order within each group stays, and nothing is lost."""
    assert "".join(in_turn(["abcd", "", "x", "12"])) == "ax1b2cd"
    items = ["a1", "a2", "a3", "a4", "b1", "c1", "b2"]
    assert list(islice(by_turns(items, lambda each: each[0]), 5)) == ["a1", "b1", "c1", "a2", "b2"]
    assert sorted(by_turns(items, lambda each: each[0])) == sorted(items)
    assert list(in_turn([])) == []

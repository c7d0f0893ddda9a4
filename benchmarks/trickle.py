"""`trickle`: as `reconcile`, with one writer that commits alone.

Every commit then wakes every stage for a single event, so that no cost is shared by a batch. It has a bound of its own,
and stands beside `reconcile` so that nobody takes that row for this one.
"""

from __future__ import annotations

from benchmarks._harness import Row, Scenario
from benchmarks.reconcile import measured

BOUND = 10.0


def measure(size: int, rounds: int) -> Row:
    """Reconcile ``size`` keys, one commit at a time."""
    return measured("trickle", BOUND, size, rounds, writers=1)


SCENARIO = Scenario("trickle", BOUND, measure, size=20_000, rounds=5, quick=4_000)

"""`trickle`: like `reconcile`, with a single writer.

Every commit wakes every stage for a single event, so no cost is shared by a batch. The scenario has a bound of its own,
so that the figure of `reconcile` is not mistaken for the cost of a lone event.
"""

from __future__ import annotations

from benchmarks._harness import Row, Scenario
from benchmarks.reconcile import measured

BOUND = 10.0


def measure(size: int, rounds: int) -> Row:
    """Reconcile ``size`` keys, one commit at a time."""
    return measured("trickle", BOUND, size, rounds, writers=1)


SCENARIO = Scenario("trickle", BOUND, measure, size=20_000, rounds=5, quick=4_000)

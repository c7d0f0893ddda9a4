"""`journal`: what the journal adds to bringing an event from its commit to the reconcile that sees it.

Measured: the time per event of `reconcile`, with the journal of 16 MiB that every engine has. Each reconcile is
recorded with its reasons and its read of the cache. The journal is full after some thousand of them, so that most
entries also drop an older one.

Against: the same with ``journal_bytes=0``.

The time of the commits, which both sides have, is measured in the same round and subtracted.
"""

from __future__ import annotations

from benchmarks._harness import Row, Scenario, interleaved
from benchmarks.reconcile import seconds


def measure(size: int, rounds: int) -> Row:
    """Reconcile ``size`` keys with a journal and without."""
    ours, against = interleaved(lambda: seconds(size), lambda: seconds(size, journal_bytes=0), rounds)
    return Row("journal", ours / size * 1e6, against / size * 1e6, "us", 1.05)


SCENARIO = Scenario("journal", 1.05, measure, size=50_000, rounds=9, quick=10_000)

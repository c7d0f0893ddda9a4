"""`journal`: what the journal adds to bringing an event from its commit to the reconcile that sees it.

Measured: the processor time per event of `reconcile`, with the journal of 16 MiB that every engine has. Each reconcile
is recorded with its reasons and its read of the cache. The journal is full after some thousand of them, so that most
entries also drop an older one.

Against: the same with ``JournalOptions(memory=0)``.

The journal is a small part of the whole, and other load on the machine changes the whole by more than that. So both
sides are measured in processor time, one right after the other, in many pairs. Each side is first as often as the
other. The garbage collector begins each turn with nothing left of the one before. The row has the median of the
differences between the two turns of a pair. The time of the same commits alone is measured after each pair, and its
median is subtracted from both sides.

The turns are short, so that none has a full garbage collection. With 50,000 reconciles, both sides have equally many,
but it is chance how many of them fall into the measured part, and each takes as long as the journal.
"""

from __future__ import annotations

import gc
from statistics import median

from benchmarks._harness import Row, Scenario
from benchmarks.reconcile import committed_seconds, reconciled_seconds
from headway.journal import JournalOptions

FEWEST_PAIRS = 12
"""The number of pairs at least. A few would measure the machine."""


def measure(size: int, rounds: int) -> Row:
    """Reconcile ``size`` keys with a journal and without, in pairs."""

    def without() -> float:
        gc.collect()
        return reconciled_seconds(size, JournalOptions(memory=0))

    def with_journal() -> float:
        gc.collect()
        return reconciled_seconds(size, JournalOptions())

    added, against, alike = [], [], []
    for pair in range(max(rounds, FEWEST_PAIRS)):
        if pair % 2:
            ours, other = with_journal(), without()
        else:
            other, ours = without(), with_journal()
        added.append(ours - other)
        against.append(other)
        gc.collect()
        alike.append(committed_seconds(size))
    base = median(against) - median(alike)
    return Row("journal", (base + median(added)) / size * 1e6, base / size * 1e6, "us", 1.05)


# Not in quick runs: it reads 1.04 to 1.07, so it would pass and fail by chance.
SCENARIO = Scenario("journal", 1.05, measure, size=5_000, rounds=60)

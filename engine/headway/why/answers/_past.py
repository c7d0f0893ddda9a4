"""The past reconciles of a key, from the journal. Consecutive failures that are alike are one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headway._gen.headway.observe.v1 import Cause, PastReconcile, Ref, Touched
from headway.base import bounded
from headway.journal import Ran
from headway.reconcile import Reason
from headway.resource import TypeName
from headway.run import OwnWrite
from headway.why.answers._runs import FAILURES, RECONCILES
from headway.why.answers._texts import ref_of

LONGEST = 8_000
"""The number of characters of a traceback in an answer."""

Wall = Callable[[float], float]
"""A function from a time on Trio's clock to seconds since 1970."""


def past_reconciles(
    runs: Iterable[Ran], wall: Wall, cause: Callable[[Reason], Cause], most: int = RECONCILES
) -> list[PastReconcile]:
    """Return the newest reconciles of a key, and the last one that succeeded, from all that the journal has."""
    found: list[PastReconcile] = []
    succeeded = False
    for newest, oldest, alike in _groups(runs):
        success = newest.outcome not in FAILURES
        if len(found) < most or (success and not succeeded):
            found.append(_reconcile(newest, oldest, alike, wall, cause))
        succeeded = succeeded or success
        if len(found) >= most and succeeded:
            break
    return found


def _groups(runs: Iterable[Ran]) -> Iterator[tuple[Ran, Ran, int]]:
    """Yield the newest and the oldest of each group of consecutive failures that are alike, and their number."""
    newest = oldest = None
    count = 0
    for ran in runs:
        if newest is not None and _alike(ran, newest):
            oldest, count = ran, count + 1
            continue
        if newest is not None and oldest is not None:
            yield newest, oldest, count
        newest = oldest = ran
        count = 1
    if newest is not None and oldest is not None:
        yield newest, oldest, count


def _alike(ran: Ran, newer: Ran) -> bool:
    """Return True if both failed with the same error, and read and wrote the same, in whichever versions."""
    return (
        ran.outcome in FAILURES
        and (ran.outcome, ran.error, ran.traceback) == (newer.outcome, newer.error, newer.traceback)
        and list(_without_versions(ran)) == list(_without_versions(newer))
        and list(_without_revisions(ran)) == list(_without_revisions(newer))
    )


def _without_versions(ran: Ran) -> Iterator[tuple[Any, Any]]:
    """Yield what was read, without versions: if attempts write, each of them reads another version."""
    return ((type, what[:3] if isinstance(what, tuple) else what) for type, what in ran.reads)


def _without_revisions(ran: Ran) -> Iterator[tuple[Any, ...]]:
    """Yield what was written. An answer shows only the last attempt of a group, so each must have written the same."""
    return ((each.type, each.key, each.what, each.status_key) for each in ran.writes)


def _reconcile(ran: Ran, first: Ran, alike: int, wall: Wall, cause: Callable[[Reason], Cause]) -> PastReconcile:
    return PastReconcile(
        at=wall(ran.at),
        outcome=ran.outcome,
        seconds=ran.seconds,
        waited=max(ran.waited, 0.0),
        attempt=ran.attempt,
        causes=[cause(Reason(*each)) for each in ran.reasons],
        reads=[_read(*each) for each in dict.fromkeys(ran.reads)],
        writes=[_written(each) for each in ran.writes],
        error=ran.error,
        traceback=bounded(ran.traceback, LONGEST),
        alike=alike,
        first_at=wall(first.at),
        first_attempt=first.attempt,
        first_seconds=first.seconds,
    )


def _read(type: TypeName, what: Any) -> Touched:
    if not isinstance(what, tuple):
        return Touched(what, Ref(str(type)))
    return Touched("get", ref_of(type, what[:3]), what[3] if len(what) > 3 else 0)


def _written(write: OwnWrite) -> Touched:
    how = f"status {write.status_key} written" if write.what == "status" else write.what
    return Touched(how, ref_of(write.type, write.key), write.revision)

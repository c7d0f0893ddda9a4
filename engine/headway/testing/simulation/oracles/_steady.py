"""Reconciles that read the same and get the same answers as the one before, and yet write something else. Pure.

The write of the first reconcile has triggered the second one. If the second one writes something else, its result
depends on something that is neither in the store nor outside, such as the number of the attempt. Then each failure
makes the program write twice. A program may also go through phases, but it does so without faults, too. So only a value
that never occurs without faults counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headway.resource import Kind
from headway.testing.simulation import faults
from headway.testing.simulation._trace import Committed, Reconcile, Reconciled, Step, named
from headway.testing.simulation.oracles._oracles import Finding, Place, Result

_AT_ONCE = 0.5
"""A period so short, in seconds, that the values that a program computes from the clock don't change in it."""


def unsteady(result: Result, rights: Sequence[Result]) -> list[Finding]:
    """Return a finding for the first field that a reconcile has written differently from the one before."""
    for before, after, place in _rewritten(result):
        one, other = (_written(result, each, place) for each in (before, after))
        for path in sorted({*one, *other}):
            got, then = one.get(path, ""), other.get(path, "")
            if got == then or path not in one:
                continue
            known = {value for each in rights for value in _values(each, place[0], path)}
            if got not in known and then in known:
                text = (
                    f"{named(*place)}.{path}: {before[0].by} wrote {got}, and then {then}, although it had read the "
                    "same and got the same answers; what it writes must not depend on an attempt or on its memory"
                )
                return [Finding("steady", text, place, (*before, *after))]
    return []


def _rewritten(result: Result) -> Iterator[tuple[list[Committed], list[Committed], Place]]:
    """Yield what two reconciles of a key have written to the same resource, if nothing new came between them."""
    calls: dict[int, list[Step]] = {}
    for step in result.trace.steps:
        calls.setdefault(id(step.by), []).append(step)
    ended = {id(each.began): each for each in result.trace.entries if isinstance(each, Reconciled)}
    by_revision = {each.revision: each for each in result.trace.commits}
    struck = {each.step for each in result.struck if isinstance(each, faults.StepFault)}
    last: dict[object, Reconcile] = {}
    for now in result.trace.reconciles:
        key = (now.process, now.controller, now.kind, now.key)
        before, last[key] = last.get(key), now
        if before is None or not _follows(now, before, ended):
            continue
        mine, theirs = calls.get(id(now), []), calls.get(id(before), [])
        wrote = [
            [by_revision[step.revision] for step in each if step.revision in by_revision] for each in (theirs, mine)
        ]
        both = {(each.kind, each.key) for each in wrote[0]} & {(each.kind, each.key) for each in wrote[1]}
        if not both or any(step.number in struck for step in (*mine, *theirs)):
            continue
        written = {(each.kind, each.key) for each in wrote[0]}
        if _answers(mine, written) != _answers(theirs, written):
            continue
        for place in sorted(both):
            one, other = ([each for each in of if (each.kind, each.key) == place] for of in wrote)
            # What the first one has written elsewhere, such as a pod that a condition counts, it had read as it was.
            if not _has_news(result, before, now, {each.revision for each in one}):
                yield one, other, place


def _follows(now: Reconcile, before: Reconcile, ended: Mapping[int, Reconciled]) -> bool:
    """Return True if two reconciles have succeeded, and the second one began so soon that it has the same time, too."""
    ends = [ended.get(id(each)) for each in (before, now)]
    if any(each is None or not each.result.startswith(("done", "again")) for each in ends):
        return False
    return ends[0] is not None and now.at - ends[0].at < _AT_ONCE


def _has_news(result: Result, before: Reconcile, now: Reconcile, own: set[int]) -> bool:
    """Return True if the cache shows a reconcile what the one before may not have seen, apart from these revisions."""
    if set(before.revisions) != set(now.revisions):
        return True
    return any(
        each.revision not in own and before.revisions[each.kind[1]] < each.revision
        for each in result.trace.commits
        if each.kind[1] in now.revisions and each.revision <= now.revisions[each.kind[1]]
    )


def _answers(steps: Sequence[Step], written: set[Place]) -> list[object]:
    """Return the calls that may give a reconcile information, with their answers."""
    return [
        (each.method, each.kind, each.key, each.outcome.partition(":")[0], each.answer)
        for each in steps
        if not each.kind[1] or not (each.write or (each.kind, each.key) in written)
    ]


def _written(result: Result, commits: Sequence[Committed], place: Place) -> Mapping[str, str]:
    """Return the fields of a resource that a reconcile has changed, with their last values."""
    old, new = commits[0].old, commits[-1].new
    if new is None:
        return {}
    was = result.contents_of(place[0], old) if old is not None else {}
    made = result.contents_of(place[0], new)
    return {path: text for path, text in made.items() if was.get(path) != text}


def _values(result: Result, kind: Kind, path: str) -> Iterator[str]:
    for each in result.trace.commits:
        if each.kind == kind and each.new is not None:
            yield result.contents_of(kind, each.new).get(path, "")

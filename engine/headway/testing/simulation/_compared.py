"""The comparison of a run with those without faults. Pure.

The runs without faults are the reference. With faults, the end state must be the same, and no resource may be created
or deleted more often. Runs without faults may differ from each other, because Trio varies the order of tasks or because
something is different each time. Then each of their results is right, and only what they all agree on is compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headway.resource import Kind
from headway.testing.simulation._oracles import Finding, Result, shown
from headway.testing.simulation._times import aligned
from headway.testing.simulation._trace import Trace, named

_WORDS = re.compile(r"\w+|\W")


def compared(
    result: Result,
    references: Sequence[Result],
    patient: Sequence[Result] = (),
    *,
    counts: bool,
    slow: Result | None = None,
) -> list[Finding]:
    """Return what has ended differently than in every run without faults.

    Faults delay: a user's change may come only after the controllers have acted on the one before. In the ``patient``
    runs, which also have no faults, every change comes that late. Their results and counts are right as well.
    In the ``slow`` run, each look at a clock takes seconds, so that it shows which numbers come from a clock.
    """
    references = [references[0], *(aligned(each, references[:1]) for each in references[1:])]
    patient = [aligned(each, references[:1], slow) for each in patient]
    result = aligned(result, [*references, *patient], slow)
    loose = _loose(references)
    return [
        *_ends(result, references, patient, loose),
        *(_counts(result, [*references, *patient], loose) if counts else ()),
        *_outside(result, references, patient),
        *_queue(result, [*references, *patient]),
    ]


def _ends(result: Result, references: Sequence[Result], patient: Sequence[Result], loose: set[Kind]) -> list[Finding]:
    findings: list[Finding] = []
    places = {place for each in (result, *references) for place in each.end if place[0] not in loose}
    for place in sorted(places):
        got, right = result.end.get(place), [each.end.get(place) for each in references]
        late = [each.end.get(place) for each in patient]
        if got not in (*right, *late) and not (got is not None and _differs(right) and _alike(got, right)):
            want = right[0] or "absent"
            findings.append(Finding("end state", f"{named(*place)} is {got or 'absent'}; without faults: {want}"))
    for kind in sorted(loose):
        got_all = _texts(result, kind)
        rights = [_texts(each, kind) for each in (*references, *patient)]
        if got_all in rights:
            continue
        if len(got_all) not in [len(right) for right in rights]:
            text = f"there are {len(got_all)} {kind[1]}s; without faults: {len(rights[0])}"
            findings.append(Finding("end state", text))
        elif all(right == rights[0] for right in rights):
            # Their contents are the same in every run without faults, although their names differ.
            other = sorted((Counter(got_all) - Counter(rights[0])).elements())
            text = f"there is an extra {kind[1]} that is {other[0]}; without faults: {', or '.join(rights[0])}"
            findings.append(Finding("end state", text))
    return findings


def _texts(result: Result, kind: Kind) -> list[str]:
    return sorted(text for place, text in result.end.items() if place[0] == kind)


def _differs(texts: Sequence[str | None]) -> bool:
    return len(set(texts) - {None}) > 1


def _alike(got: str, right: Sequence[str | None]) -> bool:
    """Return True if a text has every word that all the others have in common."""
    mine, *others = [_WORDS.findall(each) for each in (got, *right) if each is not None]
    if any(len(each) != len(mine) for each in others):
        return True
    return all(word in said or len(set(said)) > 1 for word, *said in zip(mine, *others, strict=True))


def differing(references: Sequence[Result]) -> list[str]:
    """Return sentences about what differs between the runs without faults."""
    loose = _loose(references)
    places = sorted({place for each in references for place in each.end if place[0] not in loose})
    found = [f"the names of {kind[1]}s are different in every run" for kind in sorted(loose)]
    for place in places:
        texts = [each.end.get(place) or "absent" for each in references]
        if len(set(texts)) > 1:
            found.append(f"{named(*place)} is {', or '.join(dict.fromkeys(texts))}")
    outside = [repr(each.outside) for each in references]
    if len(set(outside)) > 1:
        found.append(f"the outside world is {', or '.join(dict.fromkeys(outside))}")
    return [f"{each}, without faults" for each in found]


def _loose(references: Sequence[Result]) -> set[Kind]:
    """Return the kinds whose names differ from run to run: only their number can be compared."""
    names = [set(each.end) | {key[:2] for key in each.counts} for each in references]
    return {place[0] for each in names for place in each ^ names[0]}


def _counts(result: Result, references: Sequence[Result], loose: set[Kind]) -> list[Finding]:
    findings: list[Finding] = []
    for what in ("created", "deleted"):
        for each in sorted(
            {key for of in (result, *references) for key in of.counts if key[2] == what and key[0] not in loose}
        ):
            got, right = result.counts.get(each, 0), [of.counts.get(each, 0) for of in references]
            if got > max(right):
                place = named(each[0], each[1])
                findings.append(
                    Finding("counts", f"{place} was {what} {_times(got)}; without faults: {_times(max(right))}")
                )
        for kind in sorted(loose):
            total = _total(result, kind, what)
            most = max(_total(of, kind, what) for of in references)
            if total > most:
                findings.append(
                    Finding("counts", f"{kind[1]}s were {what} {_times(total)}; without faults: {_times(most)}")
                )
    return findings


def _total(result: Result, kind: Kind, what: str) -> int:
    return sum(count for key, count in result.counts.items() if key[0] == kind and key[2] == what)


def _times(count: int) -> str:
    return ("never", "once", "twice")[count] if count < 3 else f"{count} times"


def _queue(result: Result, references: Sequence[Result]) -> list[Finding]:
    """Check that no more keys of resources that never existed enter a queue than without faults.

    Keys with a fixed set of names merge in the queue, however often they are added. Names that are new each time never
    merge.
    """
    right = [_never_there(each.trace) for each in references]
    findings: list[Finding] = []
    for (controller, kind), count in sorted(_never_there(result.trace).items()):
        most = max(each[controller, kind] for each in right)
        if count > most:
            text = f"{controller} was to reconcile {count} {kind[1]}s that never existed; without faults: {most}"
            findings.append(Finding("queue", text))
    return findings


def _never_there(trace: Trace) -> Counter[tuple[str, Kind]]:
    """Return the number of keys that each controller was to reconcile although no such resource ever existed."""
    there = {(each.kind, each.key) for each in trace.commits}
    asked = {(each.controller, each.kind, each.key) for each in trace.reconciles if (each.kind, each.key) not in there}
    return Counter(each[:2] for each in asked)


def _outside(result: Result, references: Sequence[Result], patient: Sequence[Result]) -> list[Finding]:
    got, right = result.outside, [each.outside for each in references]
    if got in right or got in [each.outside for each in patient]:
        return []
    if _is_like(got, right):
        return []
    return [Finding("outside", f"the outside world is {shown(got)}; without faults: {shown(right[0])}")]


def _is_like(got: Any, right: Sequence[Any]) -> bool:
    """Return True if a state agrees with the runs without faults wherever these agree with each other."""
    if got in right:
        return True
    if all(each == right[0] for each in right):
        return False
    mine, *others = map(_parts, (got, *right))
    if mine and all(set(each) == set(mine) for each in others):
        return all(_is_like(mine[key], [each[key] for each in others]) for key in mine)
    return _size(got) in map(_size, right)


def _parts(value: Any) -> Mapping[Any, Any]:
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return value if isinstance(value, Mapping) else {}


def _size(outside: Any) -> int:
    """Return the number of things in the outside world, for a comparison when their names differ in each run."""
    if isinstance(outside, Mapping):
        return sum(map(_size, outside.values())) if any(map(_is_many, outside.values())) else len(outside)
    return len(outside) if _is_many(outside) else 1


def _is_many(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple | set | frozenset)

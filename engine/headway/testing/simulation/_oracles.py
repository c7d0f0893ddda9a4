"""What is wrong with a run, found without knowing what the reconcilers are for. Pure.

The run without faults is the measure: with faults the same must become of everything in the end, by as many creations
and deletions. Where runs without faults differ from each other, by the order in which Trio lets tasks run or by what
is different each time, whatever one of them did is right, and what another one does there is no fault's doing: only
what they all say alike is compared.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headway.resource import FINALIZERS, Key, Kind, pb, resource_id
from headway.testing.simulation._faults import Fault
from headway.testing.simulation._trace import Committed, Happened, Reconcile, Reconciled, Trace, named

_WORDS = re.compile(r"\w+|\W")
Place = tuple[Kind, Key]
Scheduled = tuple[str, Kind, Key]
"""A controller, and what it will reconcile when a time has come that was asked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    oracle: str
    text: str

    def __str__(self) -> str:
        return f"{self.oracle}: {self.text}"


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What became of a run.

    Attributes:
        end: what was stored in the end, of the app's types, as a text that has nothing in it which differs by nature.
        counts: how often each resource was created and deleted by controllers.
        outside: what the world outside says of itself in the end.
        findings: what is wrong with the run by itself.
        struck: the faults that came to pass.
    """

    trace: Trace
    end: Mapping[Place, str]
    counts: Mapping[tuple[Kind, Key, str], int]
    outside: Any
    findings: tuple[Finding, ...]
    struck: tuple[Fault, ...] = ()


def counted(commits: Sequence[Committed], kinds: set[Kind]) -> Mapping[tuple[Kind, Key, str], int]:
    """How often controllers created and deleted each resource of these kinds."""
    return Counter(
        (each.kind, each.key, each.what)
        for each in commits
        if each.kind in kinds and each.by and each.what != "changed"
    )


def described(resource: pb.Resource, payload: object) -> str:
    """What a resource says, without what differs from run to run: uids, versions, generations and times."""
    owner = "" if resource.owner is None else str(resource_id(resource.owner).without_uid())
    metadata = {key: value for key, value in sorted(resource.metadata.items()) if key.lower() != "deletiontimestamp"}
    if FINALIZERS in metadata:
        metadata[FINALIZERS] = " ".join(sorted(metadata[FINALIZERS].split()))
    statuses = {
        key: sorted(
            f"{condition.type} {condition.state.name} {condition.reason} {condition.message}"
            for condition in status.conditions
        )
        + ([] if status.observed_generation == resource.generation else ["of an earlier generation"])
        for key, status in sorted(resource.status.items())
    }
    parts = [str(payload)]
    if owner:
        parts.append(f"owned by {owner}")
    if metadata:
        parts.append(f"metadata {metadata}")
    if statuses:
        parts.append(f"status {statuses}")
    return ", ".join(parts)


# --- of a run by itself ---


def reads_went_back(trace: Trace) -> list[Finding]:
    """No controller reads an older state of a resource than it has read, or written, before.

    That it isn't there is a state, too: from the revision on at which it was deleted, if it has been there before.
    """
    # In order of the reads, and not of the reconciles' ends: several may run at once.
    ended = [entry.began for entry in trace.entries if isinstance(entry, Reconciled)]
    reads = sorted(((each[4], at, began, each) for at, began in enumerate(ended) for each in began.seen), key=_when)
    history = _History(trace)
    seen: dict[tuple[str, Kind, Key], tuple[int, str]] = {}
    findings: list[Finding] = []
    for when, _, began, (kind, key, version, how, _) in reads:
        who = f"{began.controller} in {began.process}"
        before, how_before = seen.get((who, kind, key), (0, ""))
        gone = 0 if version else history.gone(kind, key, before, when)
        what = f"at {version}" if version else "as not there"
        if (version or before) < before or gone is None:
            text = f"{who} reads {named(kind, key)} {what} after it has {how_before} at {before}"
            findings.append(Finding("reads", text))
        elif version:
            seen[who, kind, key] = (version, f"{how} it")
        elif gone:
            seen[who, kind, key] = (gone, "read that it was deleted")
    return findings


class _History:
    """When each resource was there."""

    def __init__(self, trace: Trace) -> None:
        # A restored store has lost what it doesn't tell of: from then on anything may be gone.
        self._restored = len(trace.entries)
        self._changes: dict[Place, list[tuple[int, int, bool]]] = {}
        for at, entry in enumerate(trace.entries):
            if isinstance(entry, Committed):
                change = (entry.revision, at, entry.new is not None)
                self._changes.setdefault((entry.kind, entry.key), []).append(change)
            elif isinstance(entry, Happened) and entry.fault and entry.text.startswith("restore("):
                self._restored = min(self._restored, at)

    def gone(self, kind: Kind, key: Key, before: int, when: int) -> int | None:
        """The first revision from ``before`` on, of those made by then, at which it wasn't there; None: there is none.

        0, when it never was there.
        """
        if not before or when > self._restored:
            return 0
        changes = [each for each in self._changes.get((kind, key), ()) if each[1] < when]
        if not any(revision <= before for revision, _, _ in changes):
            return 0
        was_there = [there for revision, _, there in changes if revision <= before][-1]
        return (
            before if not was_there else next((each[0] for each in changes if each[0] > before and not each[2]), None)
        )


def _when(read: tuple[int, int, Reconcile, Any]) -> tuple[int, int]:
    return read[:2]


def two_writers(commits: Sequence[Committed]) -> list[Finding]:
    """No write of a term comes after one of a later term of the same controller, or shard of it."""
    highest: dict[tuple[str, str], int] = {}
    findings: list[Finding] = []
    for each in commits:
        if each.by and each.term:
            who = (each.by, each.member)
            before = highest.get(who, 0)
            if each.term < before:
                findings.append(Finding("terms", f"{each} in term {each.term}, after one of term {before}"))
            highest[who] = max(before, each.term)
    return findings


def twice_at_once(trace: Trace) -> list[Finding]:
    """No process reconciles a key of a controller twice at once."""
    running: dict[tuple[str, str, Key], Reconcile] = {}
    findings: list[Finding] = []
    for entry in trace.entries:
        if isinstance(entry, Reconcile):
            who = (entry.process, entry.controller, entry.key)
            if who in running:
                findings.append(Finding("one at a time", f"{entry}, while it still does"))
            running[who] = entry
        elif isinstance(entry, Reconciled):
            began = entry.began
            running.pop((began.process, began.controller, began.key), None)
    return findings


def orphans(stored: Mapping[Place, pb.Resource]) -> list[Finding]:
    """Nothing is owned by what is not there, and nothing still waits to be deleted."""
    uids = {each.id.uid for each in stored.values() if each.id is not None}
    return [
        Finding("orphans", f"{named(*place)} is owned by {resource_id(each.owner).name!r}, which is not there")
        for place, each in sorted(stored.items())
        if each.owner is not None and each.owner.uid and each.owner.uid not in uids
    ]


def left_in_the_queue(
    before: set[Scheduled], after: set[Scheduled], stored: Mapping[Place, pb.Resource]
) -> list[Finding]:
    """Nothing waits in a queue for good that is not there, and that nothing which is there asks for.

    Such keys only add up. After a new start the queue holds what is asked for, and what waited before it is there no
    more: ``before`` and ``after`` are what waited then.
    """
    return [
        Finding(
            "queue",
            f"{controller} is to reconcile {named(kind, key)} again, which is not there: such keys only add up, and a "
            "new start forgets them",
        )
        for controller, kind, key in sorted(before - after)
        if (kind, key) not in stored
    ]


# --- of a run beside those without faults ---


def compared(
    result: Result, references: Sequence[Result], patient: Sequence[Result] = (), *, counts: bool
) -> list[Finding]:
    """What has become otherwise than in every run without faults.

    Faults delay: a change that users make is late for what controllers do by then. In the ``patient`` runs, without
    faults too, each change waited until all was done; what became there is as right, and as often.
    """
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
            want = right[0] or "not there"
            findings.append(Finding("end state", f"{named(*place)} is {got or 'not there'}; without faults: {want}"))
    for kind in sorted(loose):
        got_all = _texts(result, kind)
        rights = [_texts(each, kind) for each in (*references, *patient)]
        if got_all in rights:
            continue
        if len(got_all) not in [len(right) for right in rights]:
            text = f"there are {len(got_all)} {kind[1]}s; without faults: {len(rights[0])}"
            findings.append(Finding("end state", text))
        elif all(right == rights[0] for right in rights):
            # They say the same in every run without faults, whatever they are called.
            other = sorted((Counter(got_all) - Counter(rights[0])).elements())
            text = f"there is one {kind[1]} more that is {other[0]}; without faults: {', or '.join(rights[0])}"
            findings.append(Finding("end state", text))
    return findings


def _texts(result: Result, kind: Kind) -> list[str]:
    return sorted(text for place, text in result.end.items() if place[0] == kind)


def _differs(texts: Sequence[str | None]) -> bool:
    return len(set(texts) - {None}) > 1


def _alike(got: str, right: Sequence[str | None]) -> bool:
    """Whether a text says the same as others that differ, in all in which they don't."""
    mine, *others = [_WORDS.findall(each) for each in (got, *right) if each is not None]
    if any(len(each) != len(mine) for each in others):
        return True
    return all(word in said or len(set(said)) > 1 for word, *said in zip(mine, *others, strict=True))


def differing(references: Sequence[Result]) -> list[str]:
    """What is not the same in every run without faults."""
    loose = _loose(references)
    places = sorted({place for each in references for place in each.end if place[0] not in loose})
    found = [f"the names of {kind[1]}s are others in every run" for kind in sorted(loose)]
    for place in places:
        texts = [each.end.get(place) or "not there" for each in references]
        if len(set(texts)) > 1:
            found.append(f"{named(*place)} is {', or '.join(dict.fromkeys(texts))}")
    outside = [repr(each.outside) for each in references]
    if len(set(outside)) > 1:
        found.append(f"the world outside is {', or '.join(dict.fromkeys(outside))}")
    return [f"{each}, without faults" for each in found]


def _loose(references: Sequence[Result]) -> set[Kind]:
    """The kinds whose names differ from run to run: only how many there are can be compared."""
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
    """Of what never was, no more keys come into a queue than without faults: they are few names, and not ever new ones.

    As many as there are resources merge into as many keys, however often these change; ever new names never do.
    """
    right = [_never_there(each.trace) for each in references]
    findings: list[Finding] = []
    for (controller, kind), count in sorted(_never_there(result.trace).items()):
        most = max(each[controller, kind] for each in right)
        if count > most:
            text = f"{controller} was to reconcile {count} {kind[1]}s that never were there; without faults: {most}"
            findings.append(Finding("queue", text))
    return findings


def _never_there(trace: Trace) -> Counter[tuple[str, Kind]]:
    """How many keys each controller was to reconcile of which there was no resource at any time."""
    there = {(each.kind, each.key) for each in trace.commits}
    asked = {(each.controller, each.kind, each.key) for each in trace.reconciles if (each.kind, each.key) not in there}
    return Counter(each[:2] for each in asked)


def _outside(result: Result, references: Sequence[Result], patient: Sequence[Result]) -> list[Finding]:
    got, right = result.outside, [each.outside for each in references]
    if got in right or got in [each.outside for each in patient]:
        return []
    if _is_like(got, right):
        return []
    return [Finding("outside", f"the world outside is {shown(got)}; without faults: {shown(right[0])}")]


def _is_like(got: Any, right: Sequence[Any]) -> bool:
    """Whether it is as in one run without faults, in all in which these don't differ from each other."""
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
    """How much there is, where what there is has other names in each run."""
    if isinstance(outside, Mapping):
        return sum(map(_size, outside.values())) if any(map(_is_many, outside.values())) else len(outside)
    return len(outside) if _is_many(outside) else 1


def _is_many(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple | set | frozenset)


def shown(state: object) -> str:
    """A state as a text that is the same in every process: sets in order."""
    if type(state) is dict:
        return f"{{{', '.join(f'{shown(key)}: {shown(value)}' for key, value in state.items())}}}"
    if type(state) is list:
        return f"[{', '.join(map(shown, state))}]"
    if type(state) is set and state:
        return f"{{{', '.join(sorted(map(shown, state)))}}}"
    return repr(state)

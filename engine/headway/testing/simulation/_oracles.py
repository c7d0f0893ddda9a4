"""The oracles: they find what is wrong with a run without knowing what the reconcilers are for. Pure.

The runs without faults are the reference. With faults, the end state must be the same, and no resource may be created
or deleted more often. Runs without faults may differ from each other, because Trio varies the order of tasks or because
something is different each time. Then each of their results is right, and only what they all agree on is compared.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headway.resource import FINALIZERS, Key, Kind, pb, resource_id
from headway.testing.simulation._trace import Committed, Happened, Reconcile, Reconciled, Trace, named
from headway.testing.simulation.faults import Fault

_WORDS = re.compile(r"\w+|\W")
Place = tuple[Kind, Key]
Scheduled = tuple[str, Kind, Key]
"""A controller, with the type and key that it will reconcile at a requested time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A thing that is wrong with a run."""

    oracle: str
    text: str

    def __str__(self) -> str:
        return f"{self.oracle}: {self.text}"


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    Attributes:
        trace: everything that happened.
        end: the stored resources of the app's types at the end, as texts without what always differs between runs.
        counts: the number of creations and deletions of each resource by controllers.
        outside: the state that the outside world reports at the end.
        findings: what is wrong with the run by itself.
        struck: the faults that struck.
    """

    trace: Trace
    end: Mapping[Place, str]
    counts: Mapping[tuple[Kind, Key, str], int]
    outside: Any
    findings: tuple[Finding, ...]
    struck: tuple[Fault, ...] = ()


def counted(commits: Sequence[Committed], kinds: set[Kind]) -> Mapping[tuple[Kind, Key, str], int]:
    """Return how often controllers created and deleted each resource of these kinds."""
    return Counter(
        (each.kind, each.key, each.what)
        for each in commits
        if each.kind in kinds and each.by and each.what != "changed"
    )


def described(resource: pb.Resource, payload: object) -> str:
    """Return a resource as text, without what differs from run to run: uids, versions, generations and times."""
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


# --- one run by itself ---


def reads_went_back(trace: Trace) -> list[Finding]:
    """Check that no controller reads an older state of a resource than it has read or written before.

    Absence counts as a state, too, from the revision of the deletion on, if the resource existed before.
    """
    # Sorted by the time of the read, not by the end of the reconcile: several reconciles may run at once.
    ended = [entry.began for entry in trace.entries if isinstance(entry, Reconciled)]
    reads = sorted(((each[4], at, began, each) for at, began in enumerate(ended) for each in began.seen), key=_when)
    history = _History(trace)
    seen: dict[tuple[str, Kind, Key], tuple[int, str]] = {}
    findings: list[Finding] = []
    for when, _, began, (kind, key, version, how, _) in reads:
        who = f"{began.controller} in {began.process}"
        before, how_before = seen.get((who, kind, key), (0, ""))
        gone = 0 if version else history.gone(kind, key, before, when)
        what = f"at {version}" if version else "as absent"
        if (version or before) < before or gone is None:
            text = f"{who} reads {named(kind, key)} {what} after it has {how_before} at {before}"
            findings.append(Finding("reads", text))
        elif version:
            seen[who, kind, key] = (version, f"{how} it")
        elif gone:
            seen[who, kind, key] = (gone, "read that it was deleted")
    return findings


class _History:
    """The history of each resource: when it existed and when it was absent."""

    def __init__(self, trace: Trace) -> None:
        # A restored store loses resources without a deletion in the trace: after a restore, any resource may be absent.
        self._restored = len(trace.entries)
        self._changes: dict[Place, list[tuple[int, int, bool]]] = {}
        for at, entry in enumerate(trace.entries):
            if isinstance(entry, Committed):
                change = (entry.revision, at, entry.new is not None)
                self._changes.setdefault((entry.kind, entry.key), []).append(change)
            elif isinstance(entry, Happened) and entry.fault and entry.text.startswith("restore("):
                self._restored = min(self._restored, at)

    def gone(self, kind: Kind, key: Key, before: int, when: int) -> int | None:
        """Return the revision of a resource's absence: ``before`` or the first one after it.

        Only entries of the trace before position ``when`` count. Returns 0 if the resource may be absent without a
        deletion, because it did not exist yet or the store was restored. Returns None if it existed from ``before`` on.
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
    """Check that no write of a term follows one of a later term of the same controller or shard."""
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
    """Check that no process reconciles a key of a controller twice at once."""
    running: dict[tuple[str, str, Key], Reconcile] = {}
    findings: list[Finding] = []
    for entry in trace.entries:
        if isinstance(entry, Reconcile):
            who = (entry.process, entry.controller, entry.key)
            if who in running:
                findings.append(Finding("one at a time", f"{entry}, while the previous reconcile still runs"))
            running[who] = entry
        elif isinstance(entry, Reconciled):
            began = entry.began
            running.pop((began.process, began.controller, began.key), None)
    return findings


def orphans(stored: Mapping[Place, pb.Resource]) -> list[Finding]:
    """Check that no resource has an owner that does not exist."""
    uids = {each.id.uid for each in stored.values() if each.id is not None}
    return [
        Finding("orphans", f"{named(*place)} is owned by {resource_id(each.owner).name!r}, which does not exist")
        for place, each in sorted(stored.items())
        if each.owner is not None and each.owner.uid and each.owner.uid not in uids
    ]


def left_in_the_queue(
    before: set[Scheduled], after: set[Scheduled], stored: Mapping[Place, pb.Resource]
) -> list[Finding]:
    """Check that no key stays in a queue forever after its resource is gone and nothing needs it.

    Such keys accumulate. A restart forgets them: after it, the queue holds only what is asked for. ``before`` and
    ``after`` are the keys that waited before and after a restart.
    """
    return [
        Finding(
            "queue",
            f"{controller} is to reconcile {named(kind, key)} again, which does not exist: such keys accumulate "
            "until a restart",
        )
        for controller, kind, key in sorted(before - after)
        if (kind, key) not in stored
    ]


# --- a run compared with those without faults ---


def compared(
    result: Result, references: Sequence[Result], patient: Sequence[Result] = (), *, counts: bool
) -> list[Finding]:
    """Return what has ended differently than in every run without faults.

    Faults delay: a user's change may come only after the controllers have acted on the one before. In the ``patient``
    runs, which also have no faults, every change comes that late. Their results and counts are right as well.
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


def shown(state: object) -> str:
    """Return a state as text that is the same in every process: sets are sorted."""
    if type(state) is dict:
        return f"{{{', '.join(f'{shown(key)}: {shown(value)}' for key, value in state.items())}}}"
    if type(state) is list:
        return f"[{', '.join(map(shown, state))}]"
    if type(state) is set and state:
        return f"{{{', '.join(sorted(map(shown, state)))}}}"
    return repr(state)

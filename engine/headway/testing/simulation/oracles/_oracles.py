"""The result of a run, the contents of its resources, and the oracles: what is wrong with a run by itself. Pure.

The oracles do not know what the reconcilers are for.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headway.events import ControllersFight
from headway.protobuf import REDACTED, secret_fields, secret_values
from headway.resource import FINALIZERS, Key, Kind, ResourceType, Within, is_marked, pb, resource_id
from headway.steps import SUFFIX
from headway.testing.simulation._trace import Committed, Entry, Happened, Reconcile, Reconciled, Trace, named
from headway.testing.simulation.faults import Fault
from headway.testing.simulation.oracles._shown import shown, with_sorted_maps

ROLLED_BACK = "restored: an older copy of the store is in its place"
"""The entry of a trace before which processes may have seen newer states than after it."""

VARIES = ("deletionTimestamp", "originDeletionTimestamp", "originUid", "originVersion", "headway.dev/settled")
"""The keys of metadata whose values differ from run to run."""

Place = tuple[Kind, Key]
Contents = Mapping[str, str]
"""The fields of a resource, by path. See `contents`."""
Scheduled = tuple[str, Kind, Key]
"""A controller, with the type and key that it will reconcile at a requested time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A thing that is wrong with a run.

    Attributes:
        oracle: the check that found it.
        text: what is wrong.
        place: the resource that it is about, if it is about one.
        entries: the entries of the trace that show it, such as a commit, or both sides of a fight.
    """

    oracle: str
    text: str
    place: Place | None = None
    entries: tuple[Entry, ...] = dataclasses.field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.oracle}: {self.text}"


def _nothing(_kind: Kind, _resource: pb.Resource) -> Contents:
    return {}


class Message(NamedTuple):
    """A message between the engines of a peering: its number, its time, the two sides, and what it is."""

    number: int
    at: float
    sender: str
    receiver: str
    content: str


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
        contents: the stored resources of the app's types at the end, field by field.
        asked: the changes that users made, in order, each with the number of calls that reconcilers had begun before.
        contents_of: returns the fields of any resource of the app's types.
        types: the program's types.
        wall: the lowest and the highest time of the wall clock, in seconds since 1970.
        waits: how long the program was still waiting by its own clock when the quiet time began, in seconds.
        upgraded_to: the program of the last upgrade; None without an upgrade.
        peers: the results of the peers, by name.
        messages: the messages between the engines of peerings during the scenario, without heartbeats and
            acknowledgements.
        asked_at: the virtual time of each change in ``asked``, and its time of the wall clock.
        lived: the virtual time at the end, in seconds since the start.
    """

    trace: Trace
    end: Mapping[Place, str]
    counts: Mapping[tuple[Kind, Key, str], int]
    outside: Any
    findings: tuple[Finding, ...]
    struck: tuple[Fault, ...] = ()
    contents: Mapping[Place, Contents] = dataclasses.field(default_factory=dict, repr=False)
    asked: tuple[tuple[int, str], ...] = dataclasses.field(default=(), repr=False)
    contents_of: Callable[[Kind, pb.Resource], Contents] = dataclasses.field(
        default=_nothing, repr=False, compare=False
    )
    types: tuple[ResourceType[Any], ...] = dataclasses.field(default=(), repr=False, compare=False)
    wall: tuple[float, float] = (0.0, 0.0)
    waits: float = 0.0
    upgraded_to: Any = dataclasses.field(default=None, repr=False, compare=False)
    peers: Mapping[str, Result] = dataclasses.field(default_factory=dict, repr=False)
    messages: tuple[Message, ...] = dataclasses.field(default=(), repr=False, compare=False)
    asked_at: tuple[tuple[float, float], ...] = dataclasses.field(default=(), repr=False, compare=False)
    lived: float = 0.0


def counted(commits: Sequence[Committed], kinds: set[Kind]) -> Mapping[tuple[Kind, Key, str], int]:
    """Return how often controllers created and deleted each resource of these kinds.

    If a user has marked a resource for deletion, its removal is the user's, whoever removes the last finalizer. If its
    owner is deleted, it is deleted in any case: by the store, or by a controller that came before it.
    """
    found: Counter[tuple[Kind, Key, str]] = Counter()
    marked: set[tuple[Kind, Key]] = set()
    gone: set[str] = set()
    for each in commits:
        place = each.kind, each.key
        due = False
        if each.new is None:
            due = place in marked
            marked.discard(place)
            if (old := each.old) is not None and old.id is not None:
                due |= old.owner is not None and old.owner.uid in gone
                gone.add(old.id.uid)
        elif not each.by and is_marked(each.new.metadata):
            marked.add(place)
        if each.kind in kinds and each.by and each.what != "changed" and not due:
            found[(*place, each.what)] += 1
    return found


def described(resource: pb.Resource, payload: object) -> str:
    """Return a resource as text, without what differs from run to run: uids, versions, generations and times."""
    owner = "" if resource.owner is None else str(resource_id(resource.owner).without_uid())
    metadata = {key: value for key, value in sorted(resource.metadata.items()) if key not in VARIES}
    if FINALIZERS in metadata:
        metadata[FINALIZERS] = " ".join(sorted(metadata[FINALIZERS].split()))
    statuses = {
        key: sorted(
            f"{condition.type} {condition.state.name} {condition.reason} {condition.message}"
            for condition in status.conditions
        )
        + ([] if _is_current(key, status, resource) else ["of an earlier generation"])
        for key, status in sorted(resource.status.items())
    }
    payload = with_sorted_maps(payload)
    # The text of a payload has no secrets, and two that differ in them must not look alike.
    parts = [str(payload)]
    if secrets := secret_values(payload):
        told = (f"{'.'.join(map(str, path))} {secret_text(value)}" for path, value in secrets.items())
        parts.append(f"secrets {', '.join(told)}")
    if owner:
        parts.append(f"owned by {owner}")
    if metadata:
        parts.append(f"metadata {metadata}")
    if statuses:
        parts.append(f"status {statuses}")
    return ", ".join(parts)


def reads_rolled_back(trace: Trace) -> list[Finding]:
    """Check that no controller reads an older state of a resource than it has read or written before.

    Absence counts as a state, too, from the revision of the deletion on, if the resource existed before. In a cache of
    a scope, a resource is also absent while its state does not match the scope, and only then.
    """
    # Sorted by the time of the read, not by the end of the reconcile: several reconciles may run at once.
    ended = [entry.began for entry in trace.entries if isinstance(entry, Reconciled)]
    reads = sorted(((each.at, at, began, each) for at, began in enumerate(ended) for each in began.seen), key=_when)
    history = _History(trace)
    seen: dict[tuple[str, Kind, Key], tuple[int, str]] = {}
    findings: list[Finding] = []
    rolled_back = _rolled_back(trace)
    for when, _, began, (kind, key, version, how, _, within) in reads:
        if when > rolled_back and trace.on_cluster:
            # The caches of the types begin anew one after the other, and versions are as before.
            break
        if when > rolled_back:
            # The processes have begun anew, on an older copy of the store.
            seen, rolled_back = {}, len(trace.entries)
        who = f"{began.controller} in {began.process}"
        before, how_before = seen.get((who, kind, key), (0, ""))
        if how == "written" and version < before:
            # The reply came late: another reconcile has seen a newer state since.
            continue
        gone = 0 if version else history.gone(kind, key, before, when, within)
        if version and how == "read" and history.excludes(kind, key, version, within):
            text = f"{who} reads {named(kind, key)} at {version}, which is outside the scope of its cache"
            findings.append(Finding("reads", text, (kind, key), (began,)))
        what = f"at {version}" if version else "as absent"
        if (version or before) < before or gone is None:
            text = f"{who} reads {named(kind, key)} {what} after it has {how_before} at {before}"
            findings.append(Finding("reads", text, (kind, key), (began,)))
        elif version:
            seen[who, kind, key] = (version, f"{how} it")
        elif gone:
            left = "" if within.everything else " or had left the scope"
            seen[who, kind, key] = (gone, f"read that it was deleted{left}")
    return findings


def _rolled_back(trace: Trace) -> int:
    """Return the place where the store was replaced by an older copy of itself; the end of the trace if it was not."""
    places = (at for at, each in enumerate(trace.entries) if isinstance(each, Happened) and each.text == ROLLED_BACK)
    return next(places, len(trace.entries))


class _History:
    """The history of each resource: when it existed and when it was absent."""

    def __init__(self, trace: Trace) -> None:
        # A restored store loses resources without a deletion in the trace: after a restore, any resource may be absent.
        self._restored = len(trace.entries)
        self._changes: dict[Place, list[tuple[int, int, pb.Resource | None]]] = {}
        for at, entry in enumerate(trace.entries):
            if isinstance(entry, Committed):
                change = (entry.revision, at, entry.new)
                self._changes.setdefault((entry.kind, entry.key), []).append(change)
            elif isinstance(entry, Happened) and entry.fault and entry.text.startswith("restore"):
                self._restored = min(self._restored, at)

    def excludes(self, kind: Kind, key: Key, version: int, within: Within) -> bool:
        """Return True if the state of a resource at a version does not match a scope."""
        if within.everything:
            return False
        states = [new for revision, _, new in self._changes.get((kind, key), ()) if revision == version]
        return bool(states) and not any(new is not None and within.admits(new) for new in states)

    def gone(self, kind: Kind, key: Key, before: int, when: int, within: Within) -> int | None:
        """Return the revision of a resource's absence from a scope: ``before`` or the first one after it.

        Only entries of the trace before position ``when`` count. Returns 0 if the resource may be absent without a
        deletion, because it did not exist yet or the store was restored. Returns None if it existed from ``before`` on.
        """
        if not before or when > self._restored:
            return 0
        changes = [each for each in self._changes.get((kind, key), ()) if each[1] < when]
        if not any(revision <= before for revision, _, _ in changes):
            return 0
        there = [(revision, new is not None and within.admits(new)) for revision, _, new in changes]
        if not [is_there for revision, is_there in there if revision <= before][-1]:
            return before
        return next((revision for revision, is_there in there if revision > before and not is_there), None)


def _when(read: tuple[int, int, Reconcile, Any]) -> tuple[int, int]:
    return read[:2]


def two_writers(commits: Sequence[Committed]) -> list[Finding]:
    """Check that no write of a term follows one of a later term of the same controller or shard."""
    highest: dict[tuple[str, str], Committed] = {}
    findings: list[Finding] = []
    for each in commits:
        if each.by and each.term:
            before = highest.setdefault((each.by, each.member), each)
            if each.term < before.term:
                text = f"{each} in term {each.term}, after one of term {before.term}"
                findings.append(Finding("terms", text, (each.kind, each.key), (before, each)))
            else:
                highest[each.by, each.member] = each
    return findings


def twice_at_once(trace: Trace) -> list[Finding]:
    """Check that no process reconciles a key of a controller twice at once."""
    running: dict[tuple[str, str, Key], Reconcile] = {}
    findings: list[Finding] = []
    for entry in trace.entries:
        if isinstance(entry, Reconcile) and not entry.function:
            who = (entry.process, entry.controller, entry.key)
            if who in running:
                text = f"{entry}, while the previous reconcile still runs"
                findings.append(Finding("one at a time", text, (entry.kind, entry.key), (running[who], entry)))
            running[who] = entry
        elif isinstance(entry, Reconciled) and not entry.began.function:
            began = entry.began
            running.pop((began.process, began.controller, began.key), None)
    return findings


def orphans(stored: Mapping[Place, pb.Resource]) -> list[Finding]:
    """Check that no resource has an owner that does not exist."""
    uids = {each.id.uid for each in stored.values() if each.id is not None}
    return [
        Finding("orphans", f"{named(*place)} is owned by {resource_id(each.owner).name!r}, which does not exist", place)
        for place, each in sorted(stored.items())
        if each.owner is not None and each.owner.uid and each.owner.uid not in uids
    ]


def stuck_deletions(stored: Mapping[Place, pb.Resource], commits: Sequence[Committed]) -> list[Finding]:
    """Check that no deletion waits for ever. A finalizer that a user has set may wait for the user."""
    users: set[tuple[Place, str]] = set()
    for each in commits:
        if not each.by and each.new is not None:
            before = _finalizers(each.old) if each.old is not None else set()
            users |= {((each.kind, each.key), name) for name in _finalizers(each.new) - before}
    findings: list[Finding] = []
    for place, resource in sorted(stored.items(), key=lambda each: each[0]):
        if not is_marked(resource.metadata):
            continue
        waits_for = sorted(_finalizers(resource))
        if not any((place, name) in users for name in waits_for):
            what = " and ".join(waits_for)
            why = f"waits for the finalizer {what}, which nothing removes" if what else "is still there"
            findings.append(Finding("deletion", f"{named(*place)} is marked for deletion and {why}", place))
    return findings


def _finalizers(resource: pb.Resource) -> set[str]:
    return set(resource.metadata.get(FINALIZERS, "").split())


_A_FIGHT = 6
"""The number of changes in a row by which two controllers have undone each other's work."""


def fights(trace: Trace) -> list[Finding]:
    """Check that no two controllers undo each other's changes of a resource again and again, with no other change.

    An engine tells of such a fight after some turns. A run may end sooner, or have only a few turns.
    """
    for event in trace.events:
        if isinstance(event, ControllersFight) and (found := _told(event, trace)) is not None:
            return [found]
    row: list[Committed] = []
    for each in trace.commits:
        if each.old is None or each.new is None or not each.by or _content(each.old) == _content(each.new):
            # A status is written beside the content. A change by a user, or another resource's, may be a reason.
            if not each.by or each.old is None or each.new is None:
                row = []
            continue
        undoes = row and _undoes(row, each)
        row = [*row, each] if undoes else [each]
        if len(row) >= _A_FIGHT:
            one, other = row[-2], row[-1]
            text = (
                f"{one.by} and {other.by} undo each other's changes of {named(other.kind, other.key)} again and again, "
                f"from {row[0].revision} on"
            )
            return [Finding("fight", text, (other.kind, other.key), tuple(row))]
    return []


def _told(event: ControllersFight, trace: Trace) -> Finding | None:
    """Return the finding of a fight that an engine has told of, or None if users are the other writer."""
    kind, key = event.resource.type.unversioned, event.resource.key
    row = [each for each in trace.commits if (each.kind, each.key) == (kind, key) and each.revision <= event.revision]
    if not row or row[-1].revision != event.revision or not row[-1].by:
        return None
    last = row[-1].by
    other = event.by if event.by.startswith("its own") else last
    one = event.controller.rpartition("/")[2]
    fields = ", ".join(map(str, event.fields))
    text = f"{one} and {other} undo each other's changes of {named(kind, key)} again and again: {fields}"
    return Finding("fight", text, (kind, key), tuple(row[-_A_FIGHT:]))


def _undoes(row: Sequence[Committed], each: Committed) -> bool:
    last = row[-1]
    assert last.old is not None
    assert each.new is not None
    same = (last.kind, last.key) == (each.kind, each.key) and last.by != each.by
    return same and _content(each.new) == _content(last.old)


def _content(resource: pb.Resource) -> tuple[object, ...]:
    data = resource.data
    return (b"" if data is None else bytes(data.value), tuple(sorted(resource.metadata.items())))


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
            (kind, key),
        )
        for controller, kind, key in sorted(before - after)
        if (kind, key) not in stored
    ]


def secret_text(value: object) -> str:
    """Return a text for the value of a secret: equal for equal values, and without the value."""
    if not value:
        return shown(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{shown(key)}: {secret_text(of)}' for key, of in value.items())}}}"
    digest = hashlib.sha256(shown(value).encode(errors="backslashreplace")).hexdigest()[:6]
    return f"{REDACTED[:-1]} #{digest})"


OWN_PARTS = ("owner", "metadata", "status")
"""The parts of a resource beside its payload."""
CURRENT, OUTDATED = "of this generation", "of an earlier generation"


def contents(resource: pb.Resource, payload: object) -> Contents:
    """Return the fields of a resource, without what differs from run to run: uids, versions, generations and times."""
    fields = dict(_payload_fields(with_sorted_maps(payload), ""))
    taken = {path.partition(".")[0] for path in fields}
    for path, text in _own_fields(resource):
        part, dot, rest = path.partition(".")
        fields[f"({part}){dot}{rest}" if part in taken else path] = text
    return fields


def _payload_fields(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and not path:
        yield from ((key, shown(each)) for key, each in value.items())
        return
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        yield path or "data", shown(value)
        return
    secret = secret_fields(type(value))
    for field in dataclasses.fields(value):
        if field.name in secret:
            yield f"{path}.{field.name}" if path else field.name, secret_text(getattr(value, field.name))
        elif not field.name.startswith("_"):
            yield from _payload_fields(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)


def _own_fields(resource: pb.Resource) -> Iterator[tuple[str, str]]:
    if resource.owner is not None:
        yield "owner", str(resource_id(resource.owner).without_uid())
    for name, text in sorted(resource.metadata.items()):
        if name not in VARIES:
            yield f"metadata.{name}", " ".join(sorted(text.split())) if name == FINALIZERS else text
    for key, status in sorted(resource.status.items()):
        yield f"status.{key}", CURRENT if _is_current(key, status, resource) else OUTDATED
        for each in sorted(status.conditions, key=lambda condition: condition.type):
            yield f"status.{key}.{each.type}", f"{each.state.name} {each.reason} {each.message}"


def _is_current(key: str, status: pb.Status, resource: pb.Resource) -> bool:
    """Return True if a status is about the present generation, or about the incarnation, as that of steps is."""
    return key.endswith(SUFFIX) or status.observed_generation == resource.generation


_ADVICE = " (let the scenario sleep until no requeue and no timer has work left; quiet=None if they always have)"


def late_writes(oracle: str, when: str, late: Sequence[Committed], trace: Trace, due: Iterable[Scheduled]) -> Finding:
    """Return the finding about these writes.

    Args:
        when: the time of the writes, such as ``after a restart``.
        due: the keys that controllers were to reconcile at a requested time, as of the beginning of that time.
    """
    first = late[0]
    writer = next((step.by for step in trace.steps if step.revision == first.revision), None)
    keys = sorted({f"{named(kind, key)} (by {controller})" for controller, kind, key in due})
    if writer is not None and writer.function:
        # Such a function has a clock of its own, so it may have something to do at any time.
        state = f", made by {writer.about}" + (_ADVICE if oracle == "quiet" else "")
    elif keys:
        state = f", when these were due to be reconciled: {', '.join(keys)}" + (_ADVICE if oracle == "quiet" else "")
    else:
        state = ", when there was nothing to do"
    text = f"{len(late)} {'write' if len(late) == 1 else 'writes'} {when}{state}, such as: {first}"
    return Finding(oracle, text, (first.kind, first.key), (first,))

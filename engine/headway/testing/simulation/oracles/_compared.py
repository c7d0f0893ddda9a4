"""The comparison of a run with those without faults. Pure.

The result of each run without faults is right. The end state of another run must be the same
as one of theirs, apart from what may differ, and no resource may be created or deleted more often.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from headway.resource import Key, Kind, pb, resource_id
from headway.testing.simulation._trace import Trace, named
from headway.testing.simulation.oracles._allowed import OUTSIDE, Allowed
from headway.testing.simulation.oracles._oracles import Contents, Finding, Place, Result
from headway.testing.simulation.oracles._shown import shown
from headway.testing.simulation.oracles._times import aligned, all_aligned

_WORDS = re.compile(r"\w+|\W")
_UNSET = ("", "''", "0", "0.0", "False", "None", "[]", "{}", "b''")


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a run and the right ones.

    Attributes:
        declared: the entry of ``may_differ`` that would allow it.
        place: the resource; None for the world outside and for the resources of a kind as a whole.
        what: its readable name, with the field.
        got, right: the two values.
    """

    declared: str
    place: Place | None
    what: str
    got: str
    right: str


def compared(
    result: Result,
    references: Sequence[Result],
    patient: Sequence[Result] = (),
    *,
    counts: bool,
    allowed: Allowed | None = None,
    slow: Result | None = None,
) -> list[Finding]:
    """Return the differences of a run's result from the results of all runs without faults.

    Faults delay changes: a user's change may come only after the controllers have acted on the one before. In the
    ``patient`` runs, which also have no faults, every change comes that late. Their results and counts are right as
    well. In the ``slow`` run, each look at a clock takes seconds, so that it shows which numbers come from a clock.
    """
    result, rights = all_aligned(result, references, patient, slow)
    allowed = allowed or Allowed()
    findings: list[Finding] = []
    told: set[Place] = set()
    for side, theirs in result.peers.items():
        found = compared(theirs, [each.peers[side] for each in rights], counts=counts, allowed=allowed)
        findings += [Finding(each.oracle, f"{side}: {each.text}") for each in found]
    for each in _differences(result, rights, allowed):
        if each.place is None:
            oracle = "outside" if each.declared.startswith("outside") else "end state"
            findings.append(Finding(oracle, f"{each.what} {each.got}; without faults: {each.right}"))
        elif each.place not in told:
            told.add(each.place)
            got = result.end.get(each.place) or "absent"
            right = next((of.end[each.place] for of in rights if each.place in of.end), "absent")
            text = f"{named(*each.place)} is {got}; without faults: {right}"
            findings.append(Finding("end state", text, each.place))
    return [
        *findings,
        *(_counts(result, rights, allowed) if counts else ()),
        *_queue(result, rights),
    ]


def differences(
    got: Result,
    references: Sequence[Result],
    allowed: Allowed,
    patient: Sequence[Result] = (),
    slow: Result | None = None,
) -> list[Difference]:
    """Return the differences of a result from every right run, without the allowed ones. Arguments as in `compared`."""
    got, rights = all_aligned(got, references, patient, slow)
    found = _differences(got, rights, allowed)
    for side, theirs in got.peers.items():
        of_peer = differences(theirs, [each.peers[side] for each in rights], allowed)
        found += [dataclasses.replace(each, place=None, what=f"{side}: {each.what}") for each in of_peer]
    return found


def _differences(got: Result, rights: Sequence[Result], allowed: Allowed) -> list[Difference]:
    outside = outside_difference(got, rights, allowed)
    return [
        *_named_ones(got, rights, allowed),
        *_unnamed_ones(got, rights, allowed),
        *([Difference(outside[0], None, "the outside world is", *map(shown, outside[1:]))] if outside else ()),
    ]


def _named_ones(got: Result, rights: Sequence[Result], allowed: Allowed) -> Iterator[Difference]:
    """Yield the differences of resources that have the same names in every run, field by field."""
    places = {place for each in (got, *rights) for place in each.contents}
    for kind in sorted({place[0] for place in places}):
        if allowed.names(kind) or (allowed.order(kind) and _same_values(got, rights, kind, allowed)):
            continue
        given = _Given(got, rights, kind, allowed)
        for place in sorted(each for each in places if each[0] == kind and not allowed.resource(kind, each[1][2])):
            mine = got.contents.get(place)
            theirs = [each.contents.get(place) for each in rights]
            if mine not in theirs:
                yield from _of_resource(place, mine, [each for each in theirs if each is not None], given, allowed)


def _of_resource(
    place: Place, mine: Contents | None, theirs: Sequence[Contents], given: _Given, allowed: Allowed
) -> Iterator[Difference]:
    kind, key = place
    if mine is None or not theirs:
        there = "there" if mine is not None else "absent"
        yield Difference(f"{kind[1]} {key[2]}", place, named(kind, key), there, "absent" if mine else "there")
        return
    found = [
        [path for path in sorted({*mine, *each}) if mine.get(path) != each.get(path) and not allowed.field(kind, path)]
        for each in theirs
    ]
    found = [
        [
            path
            for path in paths
            if not ((kind, path) in allowed.random and _alike(mine.get(path), [each.get(path) for each in theirs]))
            and not given.to_others(path)
        ]
        for paths in found
    ]
    if all(found):
        paths = min(found, key=len)
        nearest = theirs[found.index(paths)]
        for path in paths:
            what = f"{named(kind, key)}.{path}"
            declared = f"{kind[1]}.{_declarable(path)}"
            yield Difference(declared, place, what, mine.get(path, "absent"), nearest.get(path, "absent"))


def _declarable(path: str) -> str:
    return path.replace("(", "").replace(")", "")


class _Given:
    """The values of a kind's fields, to see whether they were only given to other resources, in order of arrival."""

    def __init__(self, got: Result, rights: Sequence[Result], kind: Kind, allowed: Allowed) -> None:
        self._got = got
        self._rights = rights
        self._kind = kind
        self._allowed = allowed
        self._known: dict[str, bool] = {}

    def to_others(self, path: str) -> bool:
        """Return True if a run without faults has the same values, and each was kept once it was given."""
        if path not in self._known:
            mine = self._values(self._got, path)
            same = any(mine == self._values(each, path) for each in self._rights)
            self._known[path] = same and (self._allowed.order(self._kind, path) or self._kept(path, set(mine)))
        return self._known[path]

    def _values(self, result: Result, path: str) -> Counter[str]:
        return Counter(fields.get(path, "") for place, fields in result.contents.items() if place[0] == self._kind)

    def _kept(self, path: str, values: set[str]) -> bool:
        """Return True if no controller has replaced one of the values by another."""
        for commit in self._got.trace.commits:
            # Users may write over a value, and a deleted resource gives its value back.
            if commit.kind == self._kind and commit.by and commit.old is not None and commit.new is not None:
                before, after = [self._got.contents_of(self._kind, of).get(path, "") for of in (commit.old, commit.new)]
                if before != after and before in values and before not in _UNSET:
                    return False
        return True


def _same_values(got: Result, rights: Sequence[Result], kind: Kind, allowed: Allowed) -> bool:
    """Return True if the resources of a kind have the same contents as in a right run, whichever has which."""
    mine = _texts(got, kind, allowed)
    return any(mine == _texts(each, kind, allowed) for each in rights)


def _unnamed_ones(got: Result, rights: Sequence[Result], allowed: Allowed) -> Iterator[Difference]:
    """Yield the differences of kinds whose names may differ: in the number and the contents of their resources."""
    kinds = {place[0] for each in (got, *rights) for place in each.contents if allowed.names(place[0])}
    for kind in sorted(kind for kind in kinds if kind[1] not in allowed.declared):
        mine, theirs = _texts(got, kind, allowed), [_texts(each, kind, allowed) for each in rights]
        if mine in theirs:
            continue
        if len(mine) not in map(len, theirs):
            yield Difference(kind[1], None, "there are", f"{len(mine)} {kind[1]}s", str(len(theirs[0])))
        elif all(each == theirs[0] for each in theirs):
            other = sorted((Counter(mine) - Counter(theirs[0])).elements())[0]
            yield Difference(kind[1], None, f"there is an extra {kind[1]} that is", other, ", or ".join(theirs[0]))


def _texts(result: Result, kind: Kind, allowed: Allowed) -> list[str]:
    """Return the contents of a kind's resources, without what may differ."""
    return sorted(
        ", ".join(
            f"{path} {text}"
            for path, text in fields.items()
            if (kind, path) not in allowed.random and not allowed.field(kind, path)
        )
        for place, fields in result.contents.items()
        if place[0] == kind
    )


def _alike(got: str | None, right: Sequence[str | None]) -> bool:
    """Return True if a text has every word that all the others have in common."""
    if got is None:
        return None in right
    mine, *others = [_WORDS.findall(each) for each in (got, *right) if each is not None]
    if any(len(each) != len(mine) for each in others):
        return True
    return all(word in said or len(set(said)) > 1 for word, *said in zip(mine, *others, strict=True))


def random_parts(one: Result, other: Result) -> Allowed:
    """Return what differs between two runs of one schedule, and so is new each time."""
    names = [set(each.contents) | {key[:2] for key in each.counts} for each in (one, other)]
    drawn = {place[0] for place in names[0] ^ names[1]}
    random: set[tuple[Kind, str]] = set()
    for place in names[0] & names[1]:
        mine, theirs = one.contents.get(place, {}), other.contents.get(place, {})
        random |= {(place[0], path) for path in {*mine, *theirs} if mine.get(path) != theirs.get(path)}
    for kind in drawn:
        columns = [_columns(each, kind) for each in (one, other)]
        random |= {(kind, path) for path in {*columns[0], *columns[1]} if columns[0][path] != columns[1][path]}
    return Allowed(random=frozenset(random), drawn=frozenset(drawn), random_outside=one.outside != other.outside)


def _columns(result: Result, kind: Kind) -> defaultdict[str, Counter[str]]:
    columns: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for place, fields in result.contents.items():
        if place[0] == kind:
            for path, text in fields.items():
                columns[path][text] += 1
    return columns


def differing(references: Sequence[Result], allowed: Allowed | None = None) -> list[str]:
    """Return sentences about what differs between the runs without faults."""
    allowed = allowed or Allowed()
    references = [references[0], *(aligned(each, references[:1]) for each in references[1:])]
    kinds = {place[0] for each in references for place in each.contents}
    loose = {kind for kind in kinds if allowed.names(kind)}
    places = sorted({place for each in references for place in each.end if place[0] not in loose})
    found = [f"the names of {kind[1]}s are different in every run" for kind in sorted(loose)]
    for place in places:
        texts = [each.end.get(place) or "absent" for each in references]
        if len(set(texts)) > 1:
            found.append(f"{named(*place)} is {_some(texts)}")
    outside = [shown(each.outside) for each in references]
    if len(set(outside)) > 1:
        found.append(f"the outside world is {_some(outside)}")
    return [f"{each}, without faults" for each in found]


def _some(texts: Sequence[str]) -> str:
    different = list(dict.fromkeys(texts))
    return ", or ".join([*different[:2], *(["another"] if len(different) > 2 else [])])


def _counts(result: Result, references: Sequence[Result], allowed: Allowed) -> list[Finding]:
    findings: list[Finding] = []
    keys = {key for of in (result, *references) for key in of.counts if key[0][1] not in allowed.declared}
    loose = {key[0] for key in keys if allowed.names(key[0])}
    for what in ("created", "deleted"):
        for each in sorted(key for key in keys if key[2] == what and key[0] not in loose):
            if allowed.resource(each[0], each[1][2]):
                continue
            got, right = result.counts.get(each, 0), [of.counts.get(each, 0) for of in references]
            if got > max(right) and not _given_to_others(result, references, each, allowed):
                place = named(each[0], each[1])
                text = f"{place} was {what} {_times(got)}; without faults: {_times(max(right))}"
                findings.append(Finding("counts", text, each[:2]))
        for kind in sorted(loose):
            total = _total(result, kind, what)
            most = max(_total(of, kind, what) for of in references)
            if total > most:
                findings.append(
                    Finding("counts", f"{kind[1]}s were {what} {_times(total)}; without faults: {_times(most)}")
                )
    return findings


def _given_to_others(
    result: Result, references: Sequence[Result], counted: tuple[Kind, Key, str], allowed: Allowed
) -> bool:
    """Return True if a name of a pool was used more often only because another owner got it, in order of arrival.

    When an owner is deleted, its name is given out again. Which name that is depends on who came first. So each owner
    is judged instead of each name: none may get more resources than in a run without faults.
    """
    kind, key, what = counted
    if allowed.any_order(kind):
        return any(_total(result, kind, what) <= _total(each, kind, what) for each in references)
    owners = {owner for of in (result, *references) for name, owner in _owners(of, kind, what) if name == key}
    if len(owners) < 2 or "" in owners:
        return False
    mine = Counter(owner for _, owner in _owners(result, kind, what))
    return any(mine <= Counter(owner for _, owner in _owners(each, kind, what)) for each in references)


def _owners(result: Result, kind: Kind, what: str) -> list[tuple[Key, str]]:
    """Return the name and the first owner of each resource of a kind that a controller has created or deleted.

    If its owner is owned itself, such as the port that a cable belongs to, the first owner is the one of the port.
    """
    owner_of: dict[str, pb.Id] = {}
    found: list[tuple[Key, str]] = []
    for each in result.trace.commits:
        resource = each.new or each.old
        if resource is None:
            continue
        if resource.owner is not None and resource.id is not None:
            owner_of[resource.id.uid] = resource.owner
        if each.kind == kind and each.by and each.what == what:
            owner = resource.owner
            while owner is not None and owner.uid in owner_of:
                owner = owner_of[owner.uid]
            found.append((each.key, "" if owner is None else str(resource_id(owner).without_uid())))
    return found


def _total(result: Result, kind: Kind, what: str) -> int:
    return sum(count for key, count in result.counts.items() if key[0] == kind and key[2] == what)


def _times(count: int) -> str:
    return ("never", "once", "twice")[count] if count < 3 else f"{count} times"


def _queue(result: Result, references: Sequence[Result]) -> list[Finding]:
    """Check that no more keys of resources that existed in no run enter a queue than without faults.

    A fault may prevent what the controllers create, so that a resource of the other runs never exists in this one.
    Keys with a fixed set of names merge in the queue, however often they are added. Names that are new each time never
    merge.
    """
    there = {(each.kind, each.key) for of in (result, *references) for each in of.trace.commits}
    right = [_never_there(each.trace, there) for each in references]
    findings: list[Finding] = []
    for (controller, kind), count in sorted(_never_there(result.trace, there).items()):
        most = max(each[controller, kind] for each in right)
        if count > most:
            text = f"{controller} was to reconcile {count} {kind[1]}s that never existed; without faults: {most}"
            findings.append(Finding("queue", text))
    return findings


def _never_there(trace: Trace, there: AbstractSet[Place]) -> Counter[tuple[str, Kind]]:
    """Return the number of keys that each controller was to reconcile, of resources that are not ``there``."""
    asked = {(each.controller, each.kind, each.key) for each in trace.reconciles if (each.kind, each.key) not in there}
    return Counter(each[:2] for each in asked)


def outside_difference(got: Result, rights: Sequence[Result], allowed: Allowed) -> tuple[str, Any, Any] | None:
    """Return the declaration that would allow the difference, and both states, or None if they agree."""
    if allowed.outside() or got.outside in [each.outside for each in rights]:
        return None
    mine, *theirs = [_without(each.outside, allowed) for each in (got, *rights)]
    several = _by_several(rights[0].trace)
    if mine in theirs or any(_ordered(mine, several, allowed) == _ordered(each, several, allowed) for each in theirs):
        return None
    if allowed.random_outside and _is_like(mine, theirs):
        return None
    parts = _differing_parts(mine, theirs[0], several, allowed)
    return (f"{OUTSIDE}.{parts[0]}" if parts else OUTSIDE, got.outside, rights[0].outside)


def has_more_outside(got: Result, rights: Sequence[Result]) -> bool:
    """Return True if some part of the world outside contains more things than in any of the right runs."""
    mine, *theirs = [_sizes(each.outside) for each in (got, *rights)]
    return any(size > max((each.get(part, 0) for each in theirs), default=0) for part, size in mine.items())


def _sizes(state: Any) -> dict[str, int]:
    parts = state if isinstance(state, Mapping) else {"": state}
    return {str(part): _size(value) for part, value in parts.items() if _is_many(value)}


def _without(state: Any, allowed: Allowed, path: str = "") -> Any:
    """Return a state without its parts that may differ."""
    if not isinstance(state, Mapping):
        return state
    paths = {key: f"{path}.{key}" if path else str(key) for key in state}
    return {key: _without(state[key], allowed, paths[key]) for key in state if not allowed.outside(paths[key])}


def _differing_parts(mine: Any, right: Any, several: bool, allowed: Allowed) -> list[str]:
    if not (isinstance(mine, Mapping) and isinstance(right, Mapping)):
        return []
    if not any(map(_is_many, (*mine.values(), *right.values()))):
        return []
    one, other = _part_by_part(mine, several, allowed), _part_by_part(right, several, allowed)
    return [str(key) for key in {**mine, **right} if one.get(key) != other.get(key)]


def _by_several(trace: Trace) -> bool:
    """Return True if several keys are reconciled outside, so that a list has the order of their arrival."""
    return len({(each.by.controller, each.by.key) for each in trace.steps if not each.kind[1]}) > 1


def _ordered(state: Any, several: bool, allowed: Allowed) -> Any:
    """Return a state without the order of arrival: it makes no difference which key of a part has which value."""
    if isinstance(state, Mapping) and any(map(_is_many, state.values())):
        return _part_by_part(state, several, allowed)
    return _values(state, several or allowed.order_outside(""))


def _part_by_part(state: Mapping[Any, Any], several: bool, allowed: Allowed) -> dict[Any, Any]:
    return {key: _values(value, several or allowed.order_outside(str(key))) for key, value in state.items()}


def _values(value: Any, several: bool) -> Any:
    if isinstance(value, Mapping) and several:
        if value and all(isinstance(each, Mapping) for each in value.values()):
            columns = sorted({str(key) for each in value.values() for key in each})
            rows = [{str(key): _values(of, several) for key, of in each.items()} for each in value.values()]
            return sorted(map(str, value)), [(name, sorted(shown(row.get(name)) for row in rows)) for name in columns]
        return sorted(map(str, value)), sorted(shown(_values(each, several)) for each in value.values())
    if isinstance(value, list | tuple):
        texts = [shown(_values(each, several)) for each in value]
        return sorted(texts) if several else texts
    if isinstance(value, Mapping):
        return {key: _values(each, several) for key, each in value.items()}
    return value


def _is_like(got: Any, right: Sequence[Any]) -> bool:
    """Return True if a state agrees with the runs without faults wherever these agree with each other."""
    if got in right:
        return True
    if all(each == right[0] for each in right):
        return False
    mine, *others = map(_parts, (got, *right))
    if mine and all(set(each) == set(mine) for each in others):
        return all(_is_like(mine[key], [each[key] for each in others]) for key in mine)
    # Random names may still have contents that are not.
    contents, *theirs = [sorted(map(shown, each.values())) for each in (mine, *others)]
    if all(each == theirs[0] for each in theirs):
        return contents == theirs[0]
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

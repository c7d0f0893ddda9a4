"""Cuts of tables do not change during writes, and are cheap to open, keep and close."""

from __future__ import annotations

import weakref
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from headway.resource import Key, pb, resource_key
from headway.storage import SNAPSHOT_CHUNK, Cut, CutSnapshot, ResourceTables, SortedKeys, Within, _sorted_keys
from headway.storage._sorted_keys import Part
from tests.helpers.declared import NOTE, an_id

KIND = NOTE.kind
COUNT = 8_000
MOST_LISTS = 2 * COUNT // _sorted_keys.LOAD + 1


def a_key(number: int) -> Key:
    return ("default", "default", f"n{number:07}")


def a_resource(key: Key, owner: str = "") -> pb.Resource:
    id = an_id(key[2], partition=key[0], namespace=key[1])
    return pb.Resource(id=id, owner=an_id("boss", uid=owner) if owner else None)


def filled(count: int = COUNT, owner: str = "") -> ResourceTables:
    tables = ResourceTables()
    for number in range(count):
        tables.put(KIND, a_key(number), a_resource(a_key(number), owner))
    return tables


def taken(cut: Cut) -> list[pb.Resource]:
    found: list[pb.Resource] = []
    while cut:
        found += cut.take()
    return found


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of resources in each copy of a part, and return the list."""
    sizes: list[int] = []
    read = Part.read

    def counted(part: Part[Key]) -> list[pb.Resource]:
        found = read(part)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(Part, "read", counted)
    return sizes


@pytest.mark.parametrize("owned", [False, True])
def test_opening_a_cut_copies_nothing_and_references_each_list_once(copied: list[int], owned: bool) -> None:
    tables = filled(owner="boss" if owned else "")
    cut = tables.owned("boss") if owned else tables.cut(KIND, Within())
    assert copied == []
    assert len(cut._parts) <= MOST_LISTS
    assert len(taken(cut)) == COUNT
    assert max(copied) <= 2 * _sorted_keys.LOAD


def test_cut_of_a_prefix_reads_only_the_lists_of_the_prefix(copied: list[int]) -> None:
    tables = filled()
    found = taken(tables.cut(KIND, Within("default", "default", "n00063")))
    assert [each.id.name for each in found if each.id] == [a_key(number)[2] for number in range(6_300, 6_400)]
    assert len(copied) <= 2


def test_write_copies_its_list_once_for_all_cuts_that_share_it(copied: list[int]) -> None:
    tables = filled()
    cuts = [tables.cut(KIND, Within()) for _ in range(5)]
    for number in range(600, 700):
        tables.put(KIND, a_key(number), a_resource(a_key(number)))
    assert len(copied) <= 2, "a hundred neighboring keys are in more than two lists"
    before = sum(copied)
    assert before <= 4 * _sorted_keys.LOAD
    cuts.append(tables.cut(KIND, Within()))
    for number in range(650, 655):
        tables.put(KIND, a_key(number), a_resource(a_key(number)))
    assert len(copied) <= 3, "a list was copied for more cuts than the new one"
    assert len({id(cut._parts[0]) for cut in cuts}) == 1, "cuts have different copies of an unchanged part"


def test_write_copies_nothing_for_closed_cuts_or_cuts_past_its_list(copied: list[int]) -> None:
    tables = filled()
    passed = tables.cut(KIND, Within())
    gone = tables.cut(KIND, Within())
    first = passed.take()
    del gone
    copied.clear()
    for resource in first:
        tables.put(KIND, resource_key(resource), a_resource(resource_key(resource)))
    assert copied == []
    tables.remove(KIND, a_key(COUNT - 1))
    assert len(copied) == 1, "the list was not copied for the cut that has yet to read it"
    del passed
    assert not tables._tables[KIND]._cuts, "a closed cut is still registered for writes"


async def test_cut_releases_the_lists_that_it_has_handed_out() -> None:
    tables = filled(3 * SNAPSHOT_CHUNK)
    snapshot = CutSnapshot(tables.cut(KIND, Within()), Within())
    held: list[weakref.ref[pb.Resource]] = []
    seen = 0
    while chunk := await snapshot.next():
        seen += len(chunk)
        held += [weakref.ref(each) for each in chunk[:-1]]
        for resource in chunk:
            tables.remove(KIND, resource_key(resource))
        del resource, chunk
        assert not [each for each in held if each() is not None]
    assert seen == 3 * SNAPSHOT_CHUNK


@pytest.mark.parametrize("left", ["the last of each list", "one in 500", "the newest"])
def test_number_of_lists_stays_bounded_by_their_content(left: str) -> None:
    """Opening a cut looks at every list, so empty lists that stay behind would make it slow."""
    tables = ResourceTables()
    for number in range(COUNT):
        tables.put(KIND, a_key(number), a_resource(a_key(number)))
        if left == "the newest" and number >= 100:
            tables.remove(KIND, a_key(number - 100))
    if left == "one in 500":
        for number in range(COUNT):
            if number % 500:
                tables.remove(KIND, a_key(number))
    if left == "the last of each list":
        runs = tables._tables[KIND]._keys._runs
        for key in [key for run in runs for key in run.keys[:-1]]:
            tables.remove(KIND, key)
    remaining = len(tables.keys(KIND))
    assert remaining <= 100
    assert len(tables.cut(KIND, Within())._parts) <= 2 * remaining // _sorted_keys.LOAD + 1


NUMBERS = st.integers(0, 60)
OWNERS = st.sampled_from(["", "BOSS", "BOSS2"])
WITHINS = st.sampled_from(
    [
        Within(),
        Within("default", "default", "n000001"),
        Within("west"),
        Within("west", "east"),
        Within("*", "east", "n0000002"),
        Within("none"),
    ]
)
PLACES = st.sampled_from([("default", "default"), ("west", "default"), ("west", "east")])


class CutMachine(RuleBasedStateMachine):
    """A comparison of tables with very short lists against a plain dict; each cut must equal a copy of the dict."""

    cuts = Bundle("cuts")

    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(_sorted_keys, "LOAD", 3)
        self.tables = ResourceTables()
        self.model: dict[Key, pb.Resource] = {}

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    @rule(numbers=st.lists(NUMBERS, max_size=20), place=PLACES, owner=OWNERS)
    def put(self, numbers: list[int], place: tuple[str, str], owner: str) -> None:
        for number in numbers:
            key = (*place, a_key(number)[2])
            resource = pb.Resource(
                id=an_id(key[2], partition=key[0], namespace=key[1]), owner=an_id("boss", uid=owner) if owner else None
            )
            self.tables.put(KIND, key, resource)
            self.model[key] = resource

    @rule(numbers=st.lists(NUMBERS, max_size=20), place=PLACES)
    def remove(self, numbers: list[int], place: tuple[str, str]) -> None:
        for number in numbers:
            key = (*place, a_key(number)[2])
            assert self.tables.remove(KIND, key) is self.model.pop(key, None)

    @rule(target=cuts, within=WITHINS, after=st.none() | st.tuples(PLACES, NUMBERS))
    def open(self, within: Within, after: tuple[tuple[str, str], int] | None) -> tuple[Cut, Within, list[pb.Resource]]:
        place = None if after is None else (*after[0], a_key(after[1])[2])
        there = [
            resource
            for key, resource in sorted(self.model.items(), key=lambda item: item[0])
            if within.matches(key) and (place is None or key > place)
        ]
        return self.tables.cut(KIND, within, place), within, there

    @rule(target=cuts, owner=OWNERS.filter(bool))
    def open_owned(self, owner: str) -> tuple[Cut, Within, list[pb.Resource]]:
        there = [
            resource
            for _, resource in sorted(self.model.items(), key=lambda item: item[0])
            if resource.owner is not None and resource.owner.uid == owner
        ]
        assert self.tables.owns(owner) == bool(there)
        return self.tables.owned(owner), Within(), there

    @rule(opened=cuts)
    def take(self, opened: tuple[Cut, Within, list[pb.Resource]]) -> None:
        """Read one part; the rest stays in the list."""
        cut, within, there = opened
        found = [each for each in cut.take() if within.matches(resource_key(each))]
        assert [id(each) for each in found] == [id(each) for each in there[: len(found)]]
        del there[: len(found)]

    @rule(opened=consumes(cuts))
    def read(self, opened: tuple[Cut, Within, list[pb.Resource]]) -> None:
        cut, within, there = opened
        found = [each for each in taken(cut) if within.matches(resource_key(each))]
        assert [id(each) for each in found] == [id(each) for each in there]

    @rule(opened=consumes(cuts))
    def leave(self, opened: tuple[Cut, Within, list[pb.Resource]]) -> None:
        del opened

    @invariant()
    def no_two_lists_side_by_side_would_be_one(self) -> None:
        if not hasattr(self, "tables"):
            return
        kept: list[SortedKeys[Any]] = [self.tables._owned._keys]
        kept += [table._keys for table in self.tables._tables.values()]
        for keys in kept:
            assert keys._maxima == [run.keys[-1] for run in keys._runs]
            sizes = [len(run.keys) for run in keys._runs]
            assert all(size <= 2 * _sorted_keys.LOAD for size in sizes)
            assert all(one + other > _sorted_keys.LOAD for one, other in pairwise(sizes))


TestCutMachine = CutMachine.TestCase

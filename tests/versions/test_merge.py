"""Merging a change with content that its writer could not see."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.base import finished
from headway.protobuf import Payload, field, message
from headway.resource import pb
from headway.versions import merges
from tests.helpers.versions import (
    Band,
    Crew,
    Member,
    Roster,
    Tint,
    crew,
    down,
    roster,
    up,
)

P = TypeVar("P", bound=Payload)


@message
class Choice:
    left: str | None = field(1)
    nested: Tint | None = field(2)
    crews: dict[str, Crew] = field(3)
    numbers: list[int] = field(4)


def merged(before: P, after: P, stored: P) -> P:
    """Return the candidate that has the writer's order of each list."""
    *_, candidate = map(finished, merges(before, after, stored))
    return candidate


def lead(name: str, role: str = "") -> Member:
    return Member(name=name, role=role)


STORED = [lead("ada", "lead"), lead("bea", "bass"), lead("cyd", "drums")]
NAMES: list[tuple[list[str], list[tuple[str, str]]]] = [
    (["ada", "bea", "cyd"], [("ada", "lead"), ("bea", "bass"), ("cyd", "drums")]),
    (["cyd", "ada"], [("cyd", "drums"), ("ada", "lead")]),
    (["dot", "ada", "bea", "cyd"], [("dot", ""), ("ada", "lead"), ("bea", "bass"), ("cyd", "drums")]),
    (["dot", "bea", "cyd"], [("dot", ""), ("bea", "bass"), ("cyd", "drums")]),
    (["ada", "ada"], [("ada", "lead"), ("ada", "")]),
    ([], []),
]


@pytest.mark.parametrize(("names", "expected"), NAMES)
def test_list_elements_keep_their_hidden_content(names: list[str], expected: list[tuple[str, str]]) -> None:
    """Hidden content never moves to another element: no element inherits a role."""
    before = Crew(members=[lead(each.name) for each in STORED])
    after = Crew(members=[lead(name) for name in names])
    result = merged(before, after, Crew(members=STORED, room="B12"))
    assert [(each.name, each.role) for each in result.members] == expected
    assert result.room == "B12"


def test_changed_element_is_identified_by_its_first_field() -> None:
    before = Crew(members=[Member(name="ada", role="a"), Member(role="nameless")])
    after = Crew(members=[Member(name="ada", role="b"), Member(role="changed")])
    first, second = (Choice(crews={"x": each}) for each in (before, after))
    stored = Choice(crews={"x": Crew(members=before.members, room="B12"), "y": Crew(room="C1")}, left="kept")
    wanted = {"x": Crew(members=after.members, room="B12"), "y": stored.crews["y"]}
    assert merged(first, second, stored) == Choice(crews=wanted, left="kept")


def test_map_entries_are_added_and_removed_independently() -> None:
    before, after = Band(notes={"a": "1", "b": "2"}), Band(notes={"b": "3", "c": "4"})
    stored = Band(notes={"a": "1", "b": "2", "hidden": "5"}, room="B12")
    assert merged(before, after, stored) == Band(notes={"b": "3", "c": "4", "hidden": "5"}, room="B12")


def test_added_or_removed_message_is_taken_over_whole() -> None:
    tint = Tint(name="red", shade=7)
    assert merged(Choice(), Choice(nested=Tint(name="red")), Choice(nested=None)).nested == Tint(name="red")
    assert merged(Choice(nested=Tint(name="red")), Choice(), Choice(nested=tint)).nested is None
    kept = merged(Choice(nested=Tint(name="red")), Choice(nested=Tint(name="blue")), Choice(nested=tint))
    assert kept.nested == Tint(name="blue", shade=7)


texts = st.sampled_from(["", "a", "b"])
crews = st.builds(
    lambda members, color, room: crew(*members, color=color, room=room),
    st.lists(st.tuples(texts, texts), max_size=4),
    texts,
    texts,
)
rosters = st.builds(lambda names, color: Roster(names=names, color=color), st.lists(texts, max_size=4), texts)


@given(stored=crews, wanted=rosters)
def test_merged_change_reads_back_as_written(stored: Crew, wanted: Roster) -> None:
    """An empty change changes nothing. These are the laws of a lens."""
    seen = up(down(stored))
    assert merged(seen, seen, stored) == stored
    result = merged(seen, up(wanted), stored)
    assert down(result) == wanted
    assert result.room == stored.room
    roles = {(each.name, each.role) for each in stored.members} | {(name, "") for name in wanted.names}
    assert {(each.name, each.role) for each in result.members} <= roles


def test_merge_does_not_mutate_its_arguments() -> None:
    before, after = crew(("ada", "")), crew(("ada", ""), ("bea", ""))
    stored = crew(("ada", "lead"), room="B12")
    merged(before, after, stored).members[0].role = "changed"
    assert stored == crew(("ada", "lead"), room="B12")


@message
class Seat:
    name: str = field(1)
    row: int = field(2)
    paid: int = field(3)


@message
class Hall:
    seats: list[Seat] = field(1)


def test_changed_element_keeps_its_hidden_content() -> None:
    """An element with another first field is a new one, whatever its place."""
    before = Hall(seats=[Seat(name="a", row=1), Seat(name="b", row=2)])
    after = Hall(seats=[Seat(name="b", row=5), Seat(name="c", row=2)])
    stored = Hall(seats=[Seat(name="a", row=1, paid=10), Seat(name="b", row=2, paid=20)])
    assert merged(before, after, stored) == Hall(seats=[Seat(name="b", row=5, paid=20), Seat(name="c", row=2)])


def visible(new: Crew) -> Roster:
    return Roster(names=[each.name for each in new.members if each.role != "hidden"], color=new.color)


HIDING: list[tuple[str, str, str]] = [
    ("a:lead z:hidden", "a b", "a:lead z:hidden b:"),
    ("z:hidden a:lead", "a b", "z:hidden a:lead b:"),
    ("a:lead z:hidden b:bass", "n a b", "n: a:lead z:hidden b:bass"),
    ("a:lead z:hidden b:bass", "b", "b:bass z:hidden"),
    ("a:lead z:hidden b:bass", "b a", "b:bass a:lead z:hidden"),
    ("a:lead z:hidden", "c", "c: z:hidden"),
    ("a:lead z:hidden", "", "z:hidden"),
    ("y:hidden z:hidden", "a", "y:hidden z:hidden a:"),
    ("z:hidden z:", "b", "z:hidden b:"),
]


@pytest.mark.parametrize(("there", "names", "expected"), HIDING)
def test_hidden_elements_stay(there: str, names: str, expected: str) -> None:
    """Each stays behind its predecessor, and causes no other element to lose a role."""
    stored = crew(*(_pair(each) for each in there.split()))
    result = merged(up(visible(stored)), up(roster(*names.split())), stored)
    assert " ".join(f"{each.name}:{each.role}" for each in result.members) == expected


def _pair(text: str) -> tuple[str, str]:
    name, _, role = text.partition(":")
    return name, role


hiding_crews = st.builds(
    lambda members: crew(*members),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "lead", "hidden"])), max_size=5),
)


@given(stored=hiding_crews, names=st.lists(st.sampled_from("abc"), max_size=4))
def test_no_write_loses_a_hidden_element(stored: Crew, names: list[str]) -> None:
    """Either all hidden elements are kept, or the result reads differently and the write is refused."""
    result = merged(up(visible(stored)), up(roster(*names)), stored)
    if visible(result) == roster(*names):
        assert _hidden(result) == _hidden(stored)


def _hidden(stored: Crew) -> list[str]:
    return sorted(each.name for each in stored.members if each.role == "hidden")


def test_hidden_values_of_a_list_stay() -> None:
    """The writer of one value does not remove the others."""
    assert merged(Choice(numbers=[1]), Choice(numbers=[5]), Choice(numbers=[1, 2, 3])).numbers == [5, 2, 3]
    assert merged(Choice(numbers=[3]), Choice(numbers=[5]), Choice(numbers=[1, 2, 3])).numbers == [1, 2, 5]


def test_indistinguishable_elements_are_not_replaced() -> None:
    """The result has all of them, so it does not read back as written."""
    halls = Hall(seats=[Seat(row=1, paid=1), Seat(row=2, paid=2)])
    result = merged(Hall(seats=[Seat(row=1)]), Hall(seats=[Seat(row=7)]), halls)
    assert [(each.row, each.paid) for each in result.seats] == [(1, 1), (2, 2), (7, 0)]


def test_hidden_entry_is_not_replaced_by_a_new_one() -> None:
    """The result then does not read back as written."""
    result = merged(Band(), Band(notes={"hidden": "new", "a": "1"}), Band(notes={"hidden": "5"}))
    assert result.notes == {"hidden": "5", "a": "1"}


Event = pb.WatchEvent


def upsert(version: str) -> pb.WatchEvent:
    return Event(upsert=pb.WatchEventUpsert(resource=pb.Resource(version=version)))


def delete(version: str) -> pb.WatchEvent:
    return Event(delete=pb.WatchEventDelete(resource=pb.Resource(version=version)))


@pytest.mark.parametrize(
    ("before", "after", "stored", "expected"),
    [
        (upsert("a"), upsert("b"), delete("c"), upsert("b")),
        (upsert("a"), delete("b"), upsert("c"), delete("b")),
        (upsert("a"), delete("b"), delete("c"), delete("b")),
        (Event(), upsert("b"), delete("c"), upsert("b")),
        (upsert("a"), Event(), upsert("c"), Event()),
    ],
)
def test_merged_oneof_keeps_one_arm(before: Any, after: Any, stored: Any, expected: Any) -> None:
    """The arms are merged if all three are the same. Otherwise the writer's arm wins."""
    assert merged(before, after, stored) == expected


def test_same_arm_of_a_oneof_is_merged() -> None:
    stored = upsert("a")
    assert stored.upsert is not None
    assert stored.upsert.resource is not None
    stored.upsert.resource.generation = "kept"
    result = merged(upsert("a"), upsert("b"), stored).upsert
    assert result is not None
    assert result.resource == pb.Resource(version="b", generation="kept")

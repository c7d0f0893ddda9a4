"""Converters: their declaration, chains of them, and the merge of a change into what its writer could not see."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway._together import together
from headway.controller import App
from headway.errors import DeclarationError
from headway.resource import (
    NAMESPACE,
    BadConversion,
    Registry,
    ResourceType,
    Scope,
    VersionChain,
    field,
    merged,
    message,
    pb,
)
from tests.helpers.versions import (
    ALONE,
    V1,
    V2,
    V3,
    Band,
    Crew,
    Member,
    Roster,
    Tint,
    crew,
    down,
    down_again,
    roster,
    up,
    up_again,
    versions,
    without_converters,
)

OTHER = ResourceType("tests", "v2", "Club", Roster)
WIDE = ResourceType("wide", "v2", "Team", Roster, scope=Scope.CLUSTER)
NARROW = ResourceType("wide", "v1", "Team", Roster)
UNITS = ResourceType("tenancy", "v2beta1", "Namespace", Roster, scope=Scope.PARTITION)


async def asynchronous(old: Any) -> Any:
    return old


class Called:
    async def __call__(self, old: Any) -> Any:
        return old


def lazy(old: Any) -> Any:
    yield old


WRONG: list[tuple[Any, Any, Any, Any, str]] = [
    (Roster, V2, up, down, "a converter is between two types, not <class"),
    (V1, OTHER, up, down, "both must be versions of one kind"),
    (V1, V1, up, down, "the versions must differ"),
    (NARROW, WIDE, up, down, "scope CLUSTER must be NAMESPACE, as wide.v1.Team has it"),
    (V1, V2, None, down, "up=None must be a function"),
    (V1, V2, up, asynchronous, "must be a plain function, without async or yield"),
    (V1, V2, up, functools.partial(asynchronous), "must be a plain function, without async or yield"),
    (V1, V2, Called(), down, "must be a plain function, without async or yield"),
    (V1, V2, lazy, down, "must be a plain function, without async or yield"),
    (V1, V2, lambda: Crew(), down, "must take one argument, the payload"),
    (V1, ResourceType("tests", "v8", "Team", Crew), up, down, "tests.v8.Team is not registered here"),
    (NAMESPACE, UNITS, up, down, "versions of Namespace need none"),
]


@pytest.mark.parametrize(("older", "newer", "upward", "downward", "text"), WRONG)
def test_a_wrong_converter_is_refused_where_it_is_declared(
    older: Any, newer: Any, upward: Any, downward: Any, text: str
) -> None:
    app = App("tests")
    for type in (V1, V2, UNITS):
        app.registry.register(type)
    with pytest.raises(DeclarationError) as caught:
        app.converter(older, newer, up=upward, down=downward)
    assert text in str(caught.value)


def test_versions_form_one_chain_in_any_order_that_connects() -> None:
    """The storage version is the newest; a step from the front comes first."""
    known = without_converters()
    known.add_converter(V2, V3, up_again, down_again)
    known.add_converter(V1, V2, up, down)
    chain = known.chain(V1.kind)
    assert chain is not None
    assert (chain.types, chain.storage) == ((V1, V2, V3), V3)
    known.store_as(V1)
    known.store_as(V1)
    again = known.chain(V1.kind)
    assert again is not None
    assert again.storage is V1


@pytest.mark.parametrize(
    ("older", "newer", "text"),
    [
        (V1, V3, "leads from one to the other already; declare one path"),
        (V2, V1, "leads from one to the other already; declare one path"),
        (V2, ALONE, "begin at tests.v3.Team, or end at tests.v1.Team"),
        (ALONE, V2, "begin at tests.v3.Team, or end at tests.v1.Team"),
        (ALONE, ResourceType("tests", "v10", "Team", Roster), "declare first the one that connects them"),
    ],
)
def test_a_second_path_and_a_branch_are_refused(older: Any, newer: Any, text: str) -> None:
    known = versions()
    if newer.name not in known:
        known.register(newer)
    with pytest.raises(DeclarationError) as caught:
        known.add_converter(older, newer, up, down)
    assert text in str(caught.value)


def test_a_storage_version_must_have_a_converter_and_be_named_once() -> None:
    known = versions(V2)
    for type, text in (
        (ALONE, "no converter is declared for it"),
        (OTHER, "tests.v2.Club is not registered here"),
        (V3, "stored as tests.v2.Team already"),
        ("v1", "store_as takes a type"),
    ):
        with pytest.raises(DeclarationError) as caught:
            known.store_as(type)
        assert text in str(caught.value)


def test_apps_that_share_types_share_their_converters() -> None:
    """Each may declare a part of the chain, or the same one; two storage versions don't go together."""
    first, second = App("first"), App("second")
    for app in (first, second):
        for type in (V1, V2, V3):
            app.registry.register(type)
        app.converter(V2, V3, up=up_again, down=down_again)
    second.converter(V1, V2, up=up, down=down)
    second.store_as(V1)
    chain = together([first, second])[0].chain(V1.kind)
    assert chain is not None
    assert (chain.types, chain.storage) == ((V1, V2, V3), V1)
    first.store_as(V2)
    with pytest.raises(DeclarationError, match=r"stored as tests\.v2\.Team already"):
        together([first, second])


async def later(old: Any) -> Any:
    return old


def ends(_: Any) -> Any:
    raise SystemExit(3)


def interrupted(_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("upward", "text"),
    [
        (ends, r"up= of tests\.v1\.Team → tests\.v2\.Team raised SystemExit: 3$"),
        (lambda old: later(old), "which nothing awaits: it must be a plain function, and call none that is async"),
        (lambda old: lazy(old), "which nothing iterates: it must return its answer, without a `yield`"),
    ],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_whatever_a_converter_does_is_a_failed_conversion(upward: Any, text: str) -> None:
    chain = chain_of(upward)
    with pytest.raises(BadConversion, match=text):
        chain.converted(Roster(), "v1", "v2")


def test_an_interrupt_goes_through_a_converter() -> None:
    with pytest.raises(KeyboardInterrupt):
        chain_of(interrupted).converted(Roster(), "v1", "v2")


def chain_of(upward: Any) -> VersionChain:
    known = without_converters()
    known.add_converter(V1, V2, upward, down)
    chain = known.chain(V1.kind)
    assert chain is not None
    return chain


# --- the merge ---


@message
class Choice:
    left: str | None = field(1)
    nested: Tint | None = field(2)
    crews: dict[str, Crew] = field(3)
    numbers: list[int] = field(4)


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
def test_elements_of_a_list_keep_what_the_writer_could_not_see(
    names: list[str], expected: list[tuple[str, str]]
) -> None:
    """What one was is never given to another: nobody inherits a role."""
    before = Crew(members=[lead(each.name) for each in STORED])
    after = Crew(members=[lead(name) for name in names])
    result = merged(before, after, Crew(members=STORED, room="B12"))
    assert [(each.name, each.role) for each in result.members] == expected
    assert result.room == "B12"


def test_a_changed_element_is_known_by_its_first_field() -> None:
    before = Crew(members=[Member(name="ada", role="a"), Member(role="nameless")])
    after = Crew(members=[Member(name="ada", role="b"), Member(role="changed")])
    first, second = (Choice(crews={"x": each}) for each in (before, after))
    stored = Choice(crews={"x": Crew(members=before.members, room="B12"), "y": Crew(room="C1")}, left="kept")
    wanted = {"x": Crew(members=after.members, room="B12"), "y": stored.crews["y"]}
    assert merged(first, second, stored) == Choice(crews=wanted, left="kept")


def test_entries_of_a_map_go_and_come_alone() -> None:
    before, after = Band(notes={"a": "1", "b": "2"}), Band(notes={"b": "3", "c": "4"})
    stored = Band(notes={"a": "1", "b": "2", "hidden": "5"}, room="B12")
    assert merged(before, after, stored) == Band(notes={"b": "3", "c": "4", "hidden": "5"}, room="B12")


def test_a_message_that_comes_or_goes_is_taken_over_whole() -> None:
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
def test_a_merged_change_reads_back_as_it_was_written(stored: Crew, wanted: Roster) -> None:
    """And no change leaves all as it is: the laws of a lens."""
    seen = up(down(stored))
    assert merged(seen, seen, stored) == stored
    result = merged(seen, up(wanted), stored)
    assert down(result) == wanted
    assert result.room == stored.room
    roles = {(each.name, each.role) for each in stored.members} | {(name, "") for name in wanted.names}
    assert {(each.name, each.role) for each in result.members} <= roles


def test_a_merge_changes_none_of_its_arguments() -> None:
    before, after = crew(("ada", "")), crew(("ada", ""), ("bea", ""))
    stored = crew(("ada", "lead"), room="B12")
    merged(before, after, stored).members[0].role = "changed"
    assert stored == crew(("ada", "lead"), room="B12")


def test_a_registry_without_converters_has_no_chain() -> None:
    assert Registry().chain(V1.kind) is None
    assert versions().chain(OTHER.kind) is None


@message
class Seat:
    name: str = field(1)
    row: int = field(2)
    paid: int = field(3)


@message
class Hall:
    seats: list[Seat] = field(1)


def test_a_changed_element_keeps_what_its_writer_could_not_see() -> None:
    """One that has another first field is a new one, in whatever place it stands."""
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
def test_elements_that_the_writer_never_saw_stay(there: str, names: str, expected: str) -> None:
    """Each behind the element that it stood behind, and nobody loses a role because of them."""
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
def test_no_write_loses_an_element_that_its_writer_never_saw(stored: Crew, names: list[str]) -> None:
    """Either all hidden elements are there, or the result reads differently, for which the write is refused."""
    result = merged(up(visible(stored)), up(roster(*names)), stored)
    if visible(result) == roster(*names):
        assert _hidden(result) == _hidden(stored)


def _hidden(stored: Crew) -> list[str]:
    return sorted(each.name for each in stored.members if each.role == "hidden")


def test_values_of_a_list_that_the_writer_never_saw_stay() -> None:
    """The writer of one value does not remove the others."""
    assert merged(Choice(numbers=[1]), Choice(numbers=[5]), Choice(numbers=[1, 2, 3])).numbers == [5, 2, 3]
    assert merged(Choice(numbers=[3]), Choice(numbers=[5]), Choice(numbers=[1, 2, 3])).numbers == [1, 2, 5]


def test_elements_that_cannot_be_told_apart_are_not_replaced() -> None:
    """The result has all of them, so it does not read back as written."""
    halls = Hall(seats=[Seat(row=1, paid=1), Seat(row=2, paid=2)])
    result = merged(Hall(seats=[Seat(row=1)]), Hall(seats=[Seat(row=7)]), halls)
    assert [(each.row, each.paid) for each in result.seats] == [(1, 1), (2, 2), (7, 0)]


def test_an_entry_that_the_writer_never_saw_is_not_replaced_by_a_new_one() -> None:
    """The result does not read back as written then."""
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
def test_a_oneof_keeps_one_arm(before: Any, after: Any, stored: Any, expected: Any) -> None:
    """The arms are merged if all three have the same one; otherwise the writer's counts."""
    assert merged(before, after, stored) == expected


def test_the_same_arm_of_a_oneof_is_merged() -> None:
    stored = upsert("a")
    assert stored.upsert is not None
    assert stored.upsert.resource is not None
    stored.upsert.resource.generation = "kept"
    result = merged(upsert("a"), upsert("b"), stored).upsert
    assert result is not None
    assert result.resource == pb.Resource(version="b", generation="kept")

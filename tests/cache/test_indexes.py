"""Indexes: they follow the entries, and report functions that raise."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway import field, indexes
from headway.cache import Applied, Index, IndexTable, Isolation
from headway.errors import DeclarationError
from headway.resource import LOOKING, Key, Resource, ResourceType, pb
from tests.helpers.resources import ACCOUNT, TEAM, Team, key, stored

ADA, GRACE = key("ada"), key("grace")


class Failures:
    """A collector of the resources for which an index function raised."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Key]] = []
        self.errors: list[BaseException] = []

    def __call__(self, name: str, key: Key, error: BaseException) -> None:
        self.heard.append((name, key))
        self.errors.append(error)


def table_of(
    index: Index[Any, Any], *resources: pb.Resource, isolation: Isolation | None = None
) -> tuple[IndexTable, Failures]:
    failures = Failures()
    table = IndexTable(index, failures, isolation)
    table.build({key(resource.id.name): resource for resource in resources if resource.id})
    return table, failures


def content(table: IndexTable) -> dict[Hashable, set[Key]]:
    return {value: set(table.keys(value)) for value in table.values()}


def colour(resource: Resource[Team]) -> str | None:
    text = resource.metadata.get("colour")
    if text == "broken":
        raise ValueError(text)
    return text


def members(resource: Resource[Team]) -> Iterable[str]:
    for member in resource.data.members:
        if member == "broken":
            raise ValueError(member)
        yield member


COLOUR = indexes.by(TEAM, "colour", colour)
MEMBERS = indexes.by_many(TEAM, "members", members)


def painted(name: str, version: int, text: str | None) -> pb.Resource:
    return stored(name, version, metadata={} if text is None else {"colour": text})


def team(name: str, version: int, *people: str) -> pb.Resource:
    return stored(name, version, data=Team(members=list(people)))


# --- kinds of indexes --------------------------------------------------------


def test_index_gives_each_resource_one_value_or_none() -> None:
    """None leaves the resource out."""
    table, _ = table_of(COLOUR, painted("ada", 1, "red"), painted("grace", 2, "red"), painted("mary", 3, None))
    assert content(table) == {"red": {ADA, GRACE}}


def test_index_of_many_gives_each_resource_any_number_of_values() -> None:
    """A repeated value counts once."""
    table, _ = table_of(MEMBERS, team("ada", 1, "x", "y", "x"), team("grace", 2, "y"), team("mary", 3))
    assert content(table) == {"x": {ADA}, "y": {ADA, GRACE}}


def test_metadata_index_reads_the_stored_message() -> None:
    """A resource without the entry is left out."""
    table, _ = table_of(indexes.by_metadata(TEAM, "colour"), painted("ada", 1, "red"), painted("grace", 2, None))
    assert content(table) == {"red": {ADA}}
    assert [indexes.by_metadata(TEAM, "colour", name=name).name for name in ("", "hue")] == ["colour", "hue"]


def test_owner_index_is_by_uid() -> None:
    """The owner is an incarnation, not a name."""
    owner = ACCOUNT.id("boss", uid="boss7")
    table, _ = table_of(indexes.by_owner(TEAM), stored("ada", 1, owner=owner), stored("grace", 2))
    assert content(table) == {"boss7": {ADA}}


def starting(table: IndexTable, prefix: Any) -> list[tuple[Hashable, set[Key]]]:
    return [(value, set(keys)) for value, keys in table.starting(prefix)]


def test_path_prefix_matches_whole_parts() -> None:
    """In a string, one part may begin with another part. In a path they are different parts."""
    table, _ = table_of(
        indexes.by(TEAM, "path", lambda team: ("root", team.name)), painted("ada", 1, None), painted("adam", 1, None)
    )
    assert starting(table, ("root", "ada")) == [(("root", "ada"), {ADA})]


@pytest.mark.parametrize(
    ("type", "name", "function", "says"),
    [
        (TEAM, "", colour, "needs a name, not ''"),
        (TEAM, 3, colour, "name must be a string, not 3"),
        (TEAM, "colour", "colour", "must be a function, not 'colour'"),
        ("Team", "colour", colour, "type must be a type from app.type(...), not 'Team'"),
        ("colour", colour, colour, "type must be a type from app.type(...), not 'colour'"),
    ],
)
@pytest.mark.parametrize("declare", [indexes.by, indexes.by_many])
def test_invalid_index_declaration_is_refused(declare: Any, type: Any, name: Any, function: Any, says: str) -> None:
    """The error comes at the declaration, not at the first use, and shows a valid form."""
    with pytest.raises(DeclarationError, match=re.escape(says)) as caught:
        declare(type, name, function)
    assert "headway.indexes.by" in str(caught.value)


# --- updates -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "make"), [(COLOUR, painted), (MEMBERS, team), (indexes.by_metadata(TEAM, "colour"), painted)]
)
def test_update_moves_and_deletion_removes_an_entry(
    declared: Index[Any, Any], make: Callable[..., pb.Resource]
) -> None:
    """A value without any remaining resource is removed as well."""
    first, second = make("ada", 1, "red"), make("ada", 2, "blue")
    table, _ = table_of(declared, first)
    table.apply([Applied(ADA, first, second, 2)])
    assert content(table) == {"blue": {ADA}}
    table.apply([Applied(ADA, second, None, 3)])
    assert content(table) == {}


def test_index_function_that_looks_at_a_status_is_no_look_of_the_task() -> None:
    """A reconcile's write is applied in its own task."""

    looks = Mock()
    by_status = headway.indexes.by(TEAM, "statuses", lambda team: len(team.status))
    core, web = team("core", 1), team("web", 3)
    table, _ = table_of(by_status, core)
    token = LOOKING.set(looks)
    try:
        table.apply([Applied(key("core"), core, None, 2), Applied(key("web"), None, web, 3)])
    finally:
        LOOKING.reset(token)
    assert content(table) == {0: {key("web")}}
    assert not looks.mock_calls


def test_inconsistent_index_function_leaves_no_stale_entry() -> None:
    """The function must depend on the resource alone. If it doesn't, the old value is searched for everywhere."""
    answers = iter(["red", "green", "blue"])
    table, _ = table_of(indexes.by(TEAM, "fickle", lambda _: next(answers)), painted("ada", 1, None))
    table.apply([Applied(ADA, painted("ada", 1, None), painted("ada", 2, None), 2)])
    assert content(table) == {"blue": {ADA}}


# --- functions that raise ----------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        (COLOUR, painted("ada", 1, "red"), painted("ada", 2, "broken")),
        (MEMBERS, team("ada", 1, "x", "y"), team("ada", 2, "x", "z", "broken")),
    ],
)
def test_index_function_that_raises_removes_its_resource_from_that_index_only(
    declared: Index[Any, Any], good: pb.Resource, bad: pb.Resource
) -> None:
    """The failure is reported.

    The other indexes keep the resource. The next good state, or a deletion, ends the failure.
    """
    table, failures = table_of(declared, good)
    other, _ = table_of(indexes.by(TEAM, "name", lambda resource: resource.name), good)
    for each in (table, other):
        each.apply([Applied(ADA, good, bad, 2)])
    assert content(table) == {}
    assert table.failed == {ADA}
    assert failures.heard == [(declared.name, ADA)]
    assert content(other) == {"ada": {ADA}}
    table.apply([Applied(ADA, bad, good, 3)])
    assert table.failed == set()
    assert content(table) == content(table_of(declared, good)[0])
    table.apply([Applied(ADA, good, bad, 4), Applied(ADA, bad, None, 5)])
    assert table.failed == set()
    assert content(table) == {}


@headway.message
class Door:
    code: str = field(1, secret=True)


DOOR = ResourceType("sites", "v1", "Door", Door)


def reveal(door: Any) -> str:
    raise ValueError(f"{door.name} is opened by {door.data.code}")


@pytest.mark.parametrize(
    "type", [DOOR, DOOR.within(namespace="default"), headway.projection(DOOR, Door, lambda door: door.data)], ids=repr
)
def test_error_of_an_index_function_shows_no_secret(type: Any) -> None:
    table, failures = table_of(indexes.by(type, "code", reveal), stored("front", 1, type=DOOR, data=Door(code="4711")))
    assert table.failed == {key("front")}
    assert [str(each) for each in failures.errors] == ["front is opened by (redacted)"]


@pytest.mark.parametrize("value", [["a", "list"], {"a": "dict"}])
@pytest.mark.parametrize("declare", [indexes.by, indexes.by_many])
def test_unhashable_value_is_an_index_failure_of_its_resource(declare: Any, value: object) -> None:
    """This holds when the index is built and when it is updated."""
    declared = declare(TEAM, "odd", lambda _: value if declare is indexes.by else [value])
    table, failures = table_of(declared, painted("ada", 1, None))
    assert table.failed == {ADA}
    table.apply([Applied(GRACE, None, painted("grace", 2, None), 2)])
    assert table.failed == {ADA, GRACE}
    assert failures.heard == [("odd", ADA), ("odd", GRACE)]
    (note,) = failures.errors[0].__notes__
    assert f"<lambda> ({__file__}, line " in note
    assert "return a tuple instead of a list" in note


def test_resource_as_a_value_is_named_as_the_program_knows_it() -> None:
    table, failures = table_of(indexes.by(TEAM, "odd", lambda team: team), painted("ada", 1, None))
    assert table.failed == {ADA}
    assert str(failures.errors[0]) == "unhashable type: 'Resource'"


@pytest.mark.parametrize("checked", [None, Isolation()])
def test_text_in_place_of_several_values_is_explained(checked: Isolation | None) -> None:
    """Each of its letters would be a value."""
    declared = indexes.by_many(TEAM, "odd", lambda team: team.name)
    table, failures = table_of(declared, painted("ada", 1, None), isolation=checked)
    assert table.failed == {ADA}
    assert list(table.values()) == []
    assert str(failures.errors[0]) == "it returned 'ada': return a list of values, such as ['ada']"
    # It needs no further explanation, unlike a value that is not hashable.
    assert not hasattr(failures.errors[0], "__notes__")


def test_none_in_place_of_several_values_is_explained() -> None:
    """Such a function lacks a return statement. Python would only say that None can't be iterated."""
    nothing: Any = None
    table, failures = table_of(indexes.by_many(TEAM, "odd", lambda _: nothing), painted("ada", 1, None))
    assert table.failed == {ADA}
    assert "it returned None: return a list of values" in str(failures.errors[0])


# --- updates compared with a rebuild -------------------------------------------

states = st.lists(
    st.tuples(st.sampled_from(["ada", "grace", "mary"]), st.none() | st.lists(st.sampled_from(["x", "y", "broken"]))),
    max_size=12,
)


@given(before=states, after=states)
def test_incremental_updates_match_a_rebuild(
    before: list[tuple[str, list[str] | None]], after: list[tuple[str, list[str] | None]]
) -> None:
    """This holds for any sequence of changes and failures."""

    def first(resource: Resource[Team]) -> str | None:
        return next(iter(members(resource)), None)

    entries: dict[Key, pb.Resource] = {}
    declared = [MEMBERS, indexes.by(TEAM, "first", first)]
    tables: list[IndexTable] = []
    for number, (name, people) in enumerate([*before, *after]):
        if number == len(before):
            tables = [IndexTable(each, Failures()) for each in declared]
            for table in tables:
                table.build(entries)
        old = entries.pop(key(name), None)
        new = None if people is None else team(name, number + 1, *people)
        if new is not None:
            entries[key(name)] = new
        for table in tables:
            assert [value for value, _ in starting(table, "")] == sorted(map(str, table.values()))
            table.apply([Applied(key(name), old, new, number + 1)])
    for each, table in zip(declared, tables, strict=False):
        anew = IndexTable(each, Failures())
        anew.build(entries)
        assert content(table) == content(anew)
        assert starting(table, "") == starting(anew, "")
        assert table.failed == anew.failed


@pytest.mark.parametrize("declare", [indexes.by, indexes.by_many])
def test_coroutine_or_generator_is_refused_as_an_index_value(declare: Any) -> None:
    """A lambda doesn't show at its declaration that it calls an async function. The value could never be looked up."""

    async def waits(_: object) -> str:
        return "red"

    failed: list[str] = []
    made = declare(TEAM, "colour", lambda team: waits(team))
    table = IndexTable(made, lambda _, __, error: failed.append(str(error)))
    table.build({("default", "default", "core"): stored("core", 1)})
    table.apply([Applied(("default", "default", "ops"), None, stored("ops", 2), 2)])
    assert len(failed) == 2
    assert not list(table.values())

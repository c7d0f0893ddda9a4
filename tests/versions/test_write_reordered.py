"""Writes in a version whose converter sorts, deduplicates or maps a list. Each is stored exactly or refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from grpclib.const import Status

from headway.protobuf import field, message
from headway.resource import Registry, ResourceType
from headway.storage import Backend
from headway.versions import add_converter
from tests.helpers.calls import Calls, refused
from tests.helpers.versions import Crew, Member, a_team, crew
from tests.versions.test_write_versions import read


@message(name="tests.v1.Sorted")
class Names:
    names: list[str] = field(1)


@message(name="tests.v1.Rooms")
class Person:
    name: str = field(1)
    room: str = field(2)


@message(name="tests.v1.People")
class People:
    people: list[Person] = field(1)


@message(name="tests.v1.Roles")
class Roles:
    roles: dict[str, str] = field(1)


@message(name="tests.v2.Seats")
class Seat:
    name: str = field(1)
    room: str = field(2)
    role: str = field(3)


@message(name="tests.v2.Plan")
class Plan:
    seats: list[Seat] = field(1)


def program(
    old: type[Any], new: type[Any], up: Callable[[Any], Any], down: Callable[[Any], Any], backend: Backend
) -> tuple[Calls, ResourceType[Any], ResourceType[Any]]:
    known = Registry()
    older: ResourceType[Any] = ResourceType("tests", "v1", "Team", old)
    newer: ResourceType[Any] = ResourceType("tests", "v2", "Team", new)
    known.register(older)
    known.register(newer)
    add_converter(known, older, newer, up, down)
    return Calls(backend, known), older, newer


def seat(name: str, room: str, role: str) -> Seat:
    return Seat(name=name, room=room, role=role)


def person(name: str, room: str) -> Person:
    return Person(name=name, room=room)


def members(names: Any) -> Crew:
    return crew(*((name, "") for name in names))


def sorting(backend: Backend) -> tuple[Calls, ResourceType[Any], ResourceType[Any]]:
    def down(new: Crew) -> Names:
        return Names(names=sorted(member.name for member in new.members))

    return program(Names, Crew, lambda old: members(old.names), down, backend)


@pytest.mark.parametrize("names", ["ada bea", "bea cyd", "ada", "", "ada bea cyd dot", "aaa ada cyd", "bea bob cyd"])
async def test_sorting_converter_accepts_every_sorted_write(backend: Backend, names: str) -> None:
    """Roles stay with their names, and the elements keep the stored order."""
    calls, old, new = sorting(backend)
    for there in permutations([("ada", "lead"), ("bea", "bass"), ("cyd", "drums")]):
        await calls.write(a_team(new, crew(*there)))
        await calls.write(a_team(old, Names(names=names.split())))
        assert await read(calls, old) == Names(names=names.split())
        after = [(member.name, member.role) for member in (await read(calls, new)).members]
        assert [each for each in after if each[1]] == [each for each in there if each[0] in names.split()]


async def test_sorting_converter_refuses_unsorted_writes(backend: Backend) -> None:
    calls, old, new = sorting(backend)
    unsorted = a_team(old, Names(names=["zoe", "ada"]))
    await refused(calls.write(unsorted), Status.INVALID_ARGUMENT, "names would not be read back", "stored as tests.v2")
    await calls.write(a_team(new, crew(("zoe", "lead"))))
    await refused(
        calls.write(unsorted), Status.INVALID_ARGUMENT, "names would not be read back", "keeps fields that tests.v1"
    )
    assert await read(calls, new) == crew(("zoe", "lead"))


async def test_changed_element_of_a_sorted_list_changes_the_stored_element(backend: Backend) -> None:
    def down(plan: Plan) -> People:
        people = [Person(name=each.name, room=each.room) for each in plan.seats]
        return People(people=sorted(people, key=lambda each: each.name))

    calls, old, new = program(
        People, Plan, lambda each: Plan(seats=[Seat(name=p.name, room=p.room) for p in each.people]), down, backend
    )
    await calls.write(a_team(new, Plan(seats=[seat("zoe", "1", "lead"), seat("ada", "2", "bass")])))
    await calls.write(a_team(old, People(people=[person("ada", "3"), person("mia", "5"), person("zoe", "1")])))
    assert await read(calls, new) == Plan(
        seats=[seat("zoe", "1", "lead"), seat("ada", "3", "bass"), seat("mia", "5", "")]
    )
    await calls.write(a_team(old, People(people=[person("ada", "3"), person("zoe", "4")])))
    assert await read(calls, new) == Plan(seats=[seat("zoe", "4", "lead"), seat("ada", "3", "bass")])


@pytest.mark.parametrize("steps", [sorted, list])
async def test_deduplicating_converter_accepts_writes_that_remove_no_duplicates(
    backend: Backend, steps: Callable[[Any], list[str]]
) -> None:
    """A write that would remove one of two equal elements is refused, because it does not say which one."""
    calls, old, new = program(
        Names,
        Crew,
        lambda each: members(each.names),
        lambda each: Names(names=steps(dict.fromkeys(m.name for m in each.members))),
        backend,
    )
    there = crew(("bea", "drums"), ("ada", "lead"), ("ada", "bass"), ("dot", ""))
    await calls.write(a_team(new, there))
    seen = (await read(calls, old)).names
    await calls.write(a_team(old, Names(names=[*seen, "eve"])))
    assert (await read(calls, new)).members == [*there.members, Member(name="eve")]
    await calls.write(a_team(old, Names(names=[each for each in seen if each != "bea"])))
    assert (await read(calls, new)).members == there.members[1:]
    before = await read(calls, new)
    await refused(
        calls.write(a_team(old, Names(names=["dot"]))),
        Status.INVALID_ARGUMENT,
        "names would not be read back as written, because the resource is stored as tests.v2.Team and keeps "
        "fields that tests.v1.Team does not show",
    )
    assert await read(calls, new) == before


async def test_map_made_from_a_list_keeps_the_lists_order(backend: Backend) -> None:
    """A map has no order, so its writer cannot request another order."""

    def up(old: Roles) -> Plan:
        return Plan(seats=[Seat(name=name, role=role) for name, role in old.roles.items()])

    calls, old, new = program(
        Roles, Plan, up, lambda plan: Roles(roles={each.name: each.role for each in plan.seats}), backend
    )
    there = Plan(seats=[seat("cyd", "1", "lead"), seat("bea", "2", "bass"), seat("ada", "3", "drums")])
    roles = {"ada": "voice", "bea": "bass", "dot": "harp"}
    for order in permutations(roles):
        await calls.write(a_team(new, there))
        await calls.write(a_team(old, Roles(roles={name: roles[name] for name in order})))
        assert await read(calls, old) == Roles(roles=roles)
        seats = (await read(calls, new)).seats
        assert [each for each in seats if each.room] == [seat("bea", "2", "bass"), seat("ada", "3", "voice")]
        assert [each for each in seats if not each.room] == [seat("dot", "", "harp")]


async def test_list_made_from_a_map_is_accepted_or_refused(backend: Backend) -> None:
    """The newer version has a map by name, and the older version a list."""
    calls, old, new = program(
        People,
        Roles,
        lambda people: Roles(roles={each.name: each.room for each in people.people}),
        lambda roles: People(people=[person(name, room) for name, room in sorted(roles.roles.items())]),
        backend,
    )
    await calls.write(a_team(new, Roles(roles={"zoe": "1", "ada": "2"})))
    await calls.write(a_team(old, People(people=[person("ada", "3"), person("bea", "4")])))
    assert await read(calls, new) == Roles(roles={"ada": "3", "bea": "4"})
    for wrong in ([person("bea", "4"), person("ada", "3")], [person("ada", "3"), person("ada", "5")]):
        await refused(calls.write(a_team(old, People(people=wrong))), Status.INVALID_ARGUMENT, "people would not be")


async def test_reordering_a_plain_list_reorders_the_stored_list(backend: Backend) -> None:
    calls, old, new = program(
        Names, Crew, lambda each: members(each.names), lambda each: Names(names=[m.name for m in each.members]), backend
    )
    await calls.write(a_team(new, crew(("ada", "lead"), ("bea", "bass"))))
    await calls.write(a_team(old, Names(names=["bea", "eve", "ada"])))
    assert await read(calls, new) == crew(("bea", "bass"), ("eve", ""), ("ada", "lead"))

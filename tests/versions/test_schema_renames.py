"""Fields that were renamed and then removed: which programs fit a store, and which clients fit which servers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from headway.protobuf import field, message
from headway.resource import ResourceType, describe, types_pb
from headway.versions import compare_schemas, merge_schemas


def schema(payload: type[Any]) -> types_pb.ListResponse:
    return describe([ResourceType("staff", "v1", "Team", payload)])


@message
class Lead:
    login: str = field(1)
    email: str = field(2)


@message(renamed={1: "login"})
class Leader:
    name: str = field(1)
    email: str = field(2)


@message
class Nameless:
    email: str = field(2)


@message(reserved={1: "login"})
class Removed:
    email: str = field(2)


@message(reserved={1: "name"})
class RemovedUnderItsNewName:
    email: str = field(2)


@pytest.mark.parametrize(("server", "client"), [*itertools.permutations([Lead, Leader, Removed], 2)])
def test_programs_before_and_after_a_rename_and_a_removal_fit_together(server: type[Any], client: type[Any]) -> None:
    assert compare_schemas(schema(server), schema(client), both_ways=True) == []


def test_client_that_has_removed_a_field_fits_a_server_that_has_it_under_another_name() -> None:
    """The client neither reads nor writes the number."""
    assert compare_schemas(schema(Lead), schema(RemovedUnderItsNewName), both_ways=True) == []


def test_client_cannot_use_a_number_that_the_server_reserves_for_another_field() -> None:
    (found,) = compare_schemas(schema(RemovedUnderItsNewName), schema(Lead), both_ways=True)
    assert str(found) == (
        "staff.v1.Team.login (field 1): expected no field, since 'name' of this number was removed; if it is the same "
        "field under an older name, declare reserved={1: 'login'} in the server's program; otherwise use "
        "a new number, such as field(3)"
    )


def test_store_recognizes_a_removed_field_by_each_of_its_names() -> None:
    record = schema(Lead)
    for each in (Leader, RemovedUnderItsNewName):
        assert compare_schemas(record, schema(each)) == []
        record = merge_schemas(record, schema(each))

    @message
    class Longer:
        login: str = field(1)
        email: str = field(2)
        phone: str = field(3)

    @message(reserved={3: "phone"})
    class Reused:
        age: str = field(1)
        email: str = field(2)

    assert compare_schemas(record, schema(Longer)) == []
    (reused,) = compare_schemas(record, schema(Reused))
    assert reused.problem == "expected no field, since 'name' of this number was removed"


def test_advice_for_a_removed_field_gives_its_oldest_name() -> None:
    """Programs from before a rename know no other name."""
    record = merge_schemas(schema(Lead), schema(Leader))
    (found,) = compare_schemas(record, schema(Nameless))
    assert found.problem == "expected 'name' as stored, got no such field"
    assert "reserved={1: 'login'}" in found.right

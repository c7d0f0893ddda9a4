"""Changes of a message: which can read stored data, and the errors for the others."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import DeclarationError, SchemaMismatch, SchemaProblem
from headway.protobuf import decode, encode, field, message
from headway.resource import ResourceType, Scope, describe, pb, types_pb
from headway.versions import compare_schemas, merge_schemas

Schema = types_pb.ListResponse


def schema(payload: type[Any], scope: Scope = Scope.NAMESPACE) -> Schema:
    return describe([ResourceType("staff", "v1", "Team", payload, scope=scope)])


def differences(stored: type[Any], declared: type[Any]) -> list[str]:
    return [str(each) for each in compare_schemas(schema(stored), schema(declared))]


def of(annotation: Any, number: int = 1, **rest: Any) -> type[Any]:
    """Return a message with one field, called value."""

    class Team:
        value = field(number, **rest)

    Team.__annotations__ = {"value": annotation}
    return message(Team)


class Color(enum.IntEnum):
    NONE = 0
    RED = 1
    GREEN = 2


class Crimson(enum.IntEnum):
    NONE = 0
    RED = 1
    CRIMSON = 1
    BLUE = 3


class Swapped(enum.IntEnum):
    NONE = 0
    GREEN = 1


class Moved(enum.IntEnum):
    NONE = 0
    RED = 5


@message
class Lead:
    login: str = field(1)


@message(renamed={1: "login"})
class Leader:
    name: str = field(1)
    email: str = field(2)


@message
class Nameless:
    email: str = field(2)


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        (of(str), of(str | None)),
        (of(str | None), of(str)),
        (of(bool), of(int)),
        (of(int, kind="int32"), of(int)),
        (of(int, kind="uint32"), of(int)),
        (of(int, kind="uint32"), of(int, kind="uint64")),
        (of(int, kind="sint32"), of(int, kind="sint64")),
        (of(Color), of(int)),
        (of(int, kind="int32"), of(Color)),
        (of(Color), of(Crimson)),
        (of(Lead), of(Leader)),
        (of(list[Lead]), of(list[Leader])),
        (of(dict[str, Lead]), of(dict[str, Leader])),
    ],
)
def test_compatible_changes_are_accepted(stored: type[Any], declared: type[Any]) -> None:
    """All stored data still reads as the same values."""
    assert differences(stored, declared) == []


@pytest.mark.parametrize(
    ("stored", "declared", "said"),
    [
        (
            of(str),
            of(bytes),
            "expected string as stored, got bytes; keep string, or use a new number, such as field(2)",
        ),
        (of(str), of(int), "expected string as stored, got int64"),
        (of(int), of(int, kind="int32"), "expected int64 as stored, got int32"),
        (of(int), of(int, kind="uint64"), "expected int64 as stored, got uint64"),
        (of(int), of(int, kind="sint64"), "expected int64 as stored, got sint64"),
        (of(int), of(bool), "expected int64 as stored, got bool"),
        (of(int), of(float), "expected int64 as stored, got double"),
        (of(str), of(list[str]), "expected string as stored, got list of string"),
        (of(list[str]), of(str), "expected list of string as stored, got string"),
        (of(Lead), of(bytes), "expected message as stored, got bytes"),
        (
            of(dict[str, int]),
            of(dict[int, int]),
            "expected map of string to int64 as stored, got map of int64 to int64",
        ),
        (
            of(Color),
            of(Swapped),
            "expected RED for 1 of Swapped as stored, got GREEN; use a new number for GREEN, or keep",
        ),
        (of(Color), of(Moved), "expected 1 for RED of Moved as stored, got 5; write RED = 1"),
    ],
)
def test_incompatible_changes_are_reported(stored: type[Any], declared: type[Any], said: str) -> None:
    """Each problem names the type, the field, the old declaration and a valid one."""
    found = differences(stored, declared)
    assert len(found) == 1
    assert found[0].startswith(f"staff.v1.Team.value (field 1): {said}")


def test_removed_field_must_be_reserved() -> None:
    """This holds for nested messages, too. A wrong reserved name means a wrong number."""
    said = "staff.v1.Team.value.login (field 1): expected 'login' as stored, got no such field; declare "
    assert differences(of(Lead), of(Nameless)) == [f"{said}@headway.message(reserved={{1: 'login'}}) for Nameless"]

    @message(reserved={1: "login"})
    class Declared:
        email: str = field(2)

    @message(reserved={1: "logout"})
    class Wrong:
        email: str = field(2)

    assert differences(of(Lead), of(Declared)) == []
    found = differences(of(Lead), of(Wrong))
    assert len(found) == 1
    assert "expected 'login' as stored, got reserved={1: 'logout'}" in found[0]
    assert "give value this number again; the program gives it 3" in differences(of(str), of(str, 3))[0]


def test_field_number_with_another_name_must_be_declared_a_rename() -> None:
    """Nothing else distinguishes a renamed field from another one of the same kind."""

    @message
    class Silent:
        name: str = field(1)

    assert differences(of(Lead), of(Silent)) == [
        "staff.v1.Team.value.name (field 1): expected the name 'login' as stored, got 'name'; if it is the same field, "
        "declare @headway.message(renamed={1: 'login'}) for Silent; otherwise use a new number, such as field(2)"
    ]


def test_merged_schema_keeps_all_numbers() -> None:
    """The store knows reserved numbers and earlier names, whatever later programs declare."""

    @message
    class First:
        title: str = field(1)
        color: str = field(2)
        lead: Lead = field(3)

    @message(reserved={2: "color"}, renamed={1: "title"})
    class Second:
        name: str = field(1)
        lead: Leader = field(3)
        deputies: list[Leader] = field(4)

    @message
    class Third:
        name: str = field(1)
        lead: Leader = field(3)
        deputies: list[Leader] = field(4)

    @message
    class Again:
        name: str = field(1)
        size: str = field(2)
        lead: Leader = field(3)
        deputies: list[Lead] = field(4)

    @message
    class Back:
        name: str = field(1)
        color: str = field(2)
        lead: Leader = field(3)
        deputies: list[Leader] = field(4)

    first = schema(First)
    second = merge_schemas(first, schema(Second))
    assert first == schema(First)
    assert compare_schemas(second, schema(Third)) == []
    said = [str(each) for each in compare_schemas(second, schema(Again))]
    assert said[0] == (
        "staff.v1.Team.size (field 2): expected no field, since 'color' of this number was removed; "
        "use a new number, such as field(5)"
    )
    # A store that knows a field in one place of a class knows it in every place.
    assert [each.split(" ")[0] for each in said[1:]] == ["staff.v1.Team.deputies.email"]
    assert compare_schemas(second, schema(Back)) == []
    assert merge_schemas(second, schema(Back)).messages[0].reserved == []


def test_stored_fields_cannot_enter_or_leave_a_oneof() -> None:
    """The program with the oneof would read one of two fields that the other has written, and remove the other."""

    def contact(way: str | None) -> Schema:
        class Team:
            email: str | None = field(1, oneof=way)
            phone: str | None = field(2, oneof=way)

        return schema(message(Team))

    def alone(way: str | None) -> Schema:
        class Team:
            email: str | None = field(1, oneof=way)

        return schema(message(Team))

    apart, together = contact(None), contact("way")
    entered = "expected it to be independent of phone {}, got both in the oneof way"
    left = "expected it to exclude phone {}, got two fields that can both be set"
    for stored, declared, problem in ((apart, together, entered), (together, apart, left)):
        for both_ways, where in ((False, "as stored"), (True, "as the server has it")):
            (found,) = compare_schemas(stored, declared, both_ways=both_ways)
            assert (found.field, found.problem) == ("email", problem.format(where))
    assert "keep both in one oneof, or for one of them use a new number, such as field(3)" in found.right
    assert compare_schemas(together, contact("path")) == []
    # A new field may stand beside a stored one, and a single field excludes no other.
    assert compare_schemas(alone(None), together) == []
    assert compare_schemas(alone("way"), alone(None)) == []


def test_client_and_server_schemas_are_compared_without_direction() -> None:
    """A difference is only what neither side could have become. A field that one side lacks is not a difference."""
    for one, other in ((of(int), of(int, kind="int32")), (of(Lead), of(Nameless)), (of(Lead), of(Leader))):
        for stored, declared in ((one, other), (other, one)):
            assert compare_schemas(schema(stored), schema(declared), both_ways=True) == []
    for stored, declared in ((of(str), of(bytes)), (of(bytes), of(str))):
        assert len(compare_schemas(schema(stored), schema(declared), both_ways=True)) == 1


def test_different_scope_is_a_difference() -> None:
    (found,) = compare_schemas(schema(of(str)), schema(of(str), Scope.CLUSTER))
    assert (found.type, found.field) == ("staff.v1.Team", "")
    assert "expected the scope NAMESPACE as stored, got CLUSTER" in str(found)


@pytest.mark.parametrize(
    ("server", "client", "said"),
    [
        (
            schema(of(str)),
            schema(of(str), Scope.CLUSTER),
            "staff.v1.Team: expected the scope NAMESPACE as the server has it, got CLUSTER; declare Scope.NAMESPACE, "
            "or change the server's program",
        ),
        (schema(of(str)), schema(of(bytes)), "expected string as the server has it, got bytes; keep string"),
        (schema(of(Color)), schema(of(Swapped)), "expected RED for 1 of Swapped as the server has it, got GREEN"),
        (schema(of(Color)), schema(of(Moved)), "expected 1 for RED of Moved as the server has it, got 5"),
    ],
)
def test_difference_from_a_server_names_the_server_and_not_the_store(server: Any, client: Any, said: str) -> None:
    """A client cannot see what is stored, and can delete nothing to make its own scope valid."""
    (found,) = compare_schemas(server, client, both_ways=True)
    assert said in str(found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reserved": {1: "old"}}, "reserved={1: 'old'} reserves the number of 'value': use 2 for that field"),
        ({"reserved": {0: "old"}}, "must map field numbers to names"),
        ({"reserved": {2: ""}}, "must map field numbers to names"),
        (
            {"renamed": {2: "old"}},
            "renamed={2: 'old'} refers to no field: for a removed field use reserved={2: 'old'}",
        ),
        ({"renamed": {2: ("oldest", "old")}}, "for a removed field use reserved={2: 'oldest'}"),
        ({"renamed": {1: ()}}, "must map field numbers to names"),
        ({"reserved": [2]}, 'reserved=[2] must map field numbers to names, such as reserved={3: "old_name"}'),
        ({"reserved": {2}}, "reserved={2} must map field numbers to names"),
        ({"reserved": ()}, "reserved=() must map field numbers to names"),
        ({"reserved": 0}, "reserved=0 must map field numbers to names"),
        ({"reserved": {1: "old", "x": "y"}}, "reserved={'x': 'y'} must map field numbers to names"),
        ({"reserved": {2**31: "old"}}, "must map field numbers to names"),
        ({"reserved": {2: ["old"]}}, "must map field numbers to names"),
        ({"renamed": "x"}, "renamed='x' must map field numbers to names, such as renamed={3: \"old_name\"}"),
        ({"renamed": ""}, "renamed='' must map field numbers to names"),
        ({"renamed": {1: 5}}, "renamed={1: 5} must map field numbers to names"),
        ({"name": 5}, "name=5 is not a valid protobuf name; use a name such as 'acme.v1.Team'"),
    ],
)
def test_contradictory_declared_changes_are_refused(options: dict[str, Any], said: str) -> None:
    class Team:
        value: str = field(1)

    with pytest.raises(DeclarationError) as caught:
        message(**options)(Team)
    assert said in str(caught.value)


def test_generated_class_can_declare_its_changes() -> None:
    """The class is unchanged, and its name is the one in its .proto file."""

    class Generated(pb.Fence):
        """A class for this test alone: a declaration for a class affects all of its uses."""

    assert message(reserved={99: "old"})(Generated) is Generated
    assert describe([ResourceType("staff", "v1", "Team", Generated)]).messages[0].reserved == [
        types_pb.Reserved(99, "old")
    ]
    with pytest.raises(DeclarationError, match="is not allowed"):
        message(reserved={99: "old"}, name="staff.Fence")(Generated)


def test_schema_mismatch_carries_its_problems() -> None:
    problem = SchemaProblem("staff.v1.Team", "name", 1, "expected a, got b", "write a")
    error = SchemaMismatch("the store", [problem])
    assert error.problems == (problem,)
    assert str(error).splitlines()[1:] == ["staff.v1.Team.name (field 1): expected a, got b; write a"]
    made, arguments = error.__reduce__()
    assert str(made(*arguments)) == str(error)


NUMBERS = st.one_of(
    st.integers(-(1 << 63), (1 << 64) - 1), st.sampled_from([0, 1, -1, 1 << 31, (1 << 31) - 1, 1 << 32, -(1 << 31)])
)
WHOLE = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
OF_KIND = {kind: of(int, kind=kind) for kind in WHOLE} | {"bool": of(bool)}


@given(st.sampled_from(sorted(OF_KIND)), st.sampled_from(sorted(OF_KIND)), NUMBERS)
def test_compatible_kinds_read_each_others_values(before: str, now: str, number: int) -> None:
    """The other kind reads every value of the one as the same value."""
    if differences(OF_KIND[before], OF_KIND[now]):
        return
    signed, bits = not before.startswith(("u", "fixed")), 64 if "64" in before else 32
    if before == "bool":
        number = number & 1
    elif not (-(1 << (bits - 1)) <= number < 1 << (bits - 1) if signed else 0 <= number < 1 << bits):
        return
    value = bool(number) if before == "bool" else number
    assert decode(OF_KIND[now], encode(OF_KIND[before](value=value))).value == number

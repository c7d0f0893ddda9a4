"""Ids, type names, keys and positions, and their conversion to messages and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.protobuf import decode, encode
from headway.resource import (
    Position,
    ResourceId,
    TypeName,
    pb,
    position,
    resource_id,
    resource_key,
    same_owner,
    type_name,
)

TEAM = TypeName("staff", "v1", "Team")

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
types = st.builds(TypeName, texts, texts, texts)
ids = st.builds(ResourceId, types, texts, texts, texts, texts)


@given(ids)
def test_id_survives_a_round_trip_through_its_message(id: ResourceId) -> None:
    """This holds for its bytes, too, and for ids with empty parts."""
    message = id.message()
    assert resource_id(message) == id
    assert resource_id(decode(pb.Id, encode(message))) == id
    assert type_name(message.type) == id.type


@given(ids)
def test_id_makes_a_new_message_each_time(id: ResourceId) -> None:
    """The message shares no mutable part with another."""
    first, second = id.message(), id.message()
    assert first == second
    assert first is not second
    assert first.type is not second.type
    assert first.tenancy is not second.tenancy


@given(ids, texts)
def test_reference_is_an_id_without_uid(id: ResourceId, section: str) -> None:
    """It names a section or the whole resource."""
    reference = id.reference(section)
    assert reference.type is not None
    assert reference.tenancy is not None
    assert type_name(reference.type) == id.type
    tenancy = reference.tenancy
    assert (tenancy.partition, tenancy.namespace, reference.name) == id.key
    assert reference.section == section


def test_absent_parts_are_empty() -> None:
    """A missing id, type or tenancy is not an error here."""
    nothing = ResourceId(TypeName("", "", ""), "")
    assert resource_id(None) == resource_id(pb.Id()) == nothing
    assert type_name(None) == type_name(pb.Type()) == TypeName("", "", "")
    assert resource_id(pb.Id(name="core", uid="u", type=TEAM.message())) == ResourceId(TEAM, "core", uid="u")


def test_key_is_partition_namespace_and_name() -> None:
    """Ids and stored resources have the same key."""
    id = ResourceId(TEAM, "core", "p", "n", "u")
    assert id.key == resource_key(pb.Resource(id=id.message())) == ("p", "n", "core")
    assert id.without_uid() == ResourceId(TEAM, "core", "p", "n")
    assert TEAM.unversioned == ("staff", "Team")


def test_ids_print_short_and_unambiguously() -> None:
    """Default units are left out if the rest identifies them."""
    printed = {
        str(ResourceId(TEAM, "core", *units))
        for units in (("default", "default"), ("p", "default"), ("default", "n"), ("p", "n"), ("p", ""))
    }
    assert printed == {"Team core", "Team p/default/core", "Team n/core", "Team p/n/core", "Team p/core"}
    assert str(ResourceId(TEAM, "core")) == "Team core"
    assert str(TEAM) == "staff.v1.Team"


@given(st.builds(Position, texts, texts, st.integers(0, 2**64 - 1)))
def test_position_survives_a_round_trip_through_its_message(given: Position) -> None:
    """This includes the absence of a position."""
    assert position(decode(pb.Position, encode(given.message()))) == given
    assert position(None) is None


@pytest.mark.parametrize(
    ("given", "is_same"),
    [
        (ResourceId(TEAM, "core", "p", "n", "u"), True),
        (ResourceId(TEAM, "core", "p", "n"), True),
        (ResourceId(TEAM._replace(version="v2"), "core", "p", "n", "u"), True),
        (ResourceId(TEAM, "core", "p", "n", "other"), False),
        (ResourceId(TEAM, "other", "p", "n", "u"), False),
        (ResourceId(TEAM, "core", "other", "n", "u"), False),
        (ResourceId(TEAM, "core", "p", "other", "u"), False),
        (ResourceId(TEAM._replace(kind="Other"), "core", "p", "n", "u"), False),
        (ResourceId(TEAM._replace(group="other"), "core", "p", "n", "u"), False),
    ],
)
def test_same_owner_is_in_every_version_and_in_every_incarnation_if_none_is_named(
    given: ResourceId, is_same: bool
) -> None:
    stored = ResourceId(TEAM, "core", "p", "n", "u").message()
    assert same_owner(given.message(), stored) is is_same
    assert same_owner(stored, stored)
    assert not same_owner(None, stored)
    assert not same_owner(given.message(), None)
    assert same_owner(None, None)

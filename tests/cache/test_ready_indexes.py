"""Ready-made indexes of references. Those by metadata and by owner are in `test_indexes.py`."""

from __future__ import annotations

import pytest

import headway
from headway import field, indexes
from headway.cache import Cache, Index, Informer
from headway.errors import DeclarationError, IndexIncomplete, InvalidArgument
from headway.events import ignore
from headway.resource import Key, Reference, Resource, ResourceId, ResourceType, pb
from tests.helpers.resources import ACCOUNT, TEAM, Team, chunk, end, stored


@headway.message
class Rule:
    target: str = field(1)
    bound_references: list[Reference] = field(2)


RULE = ResourceType("staff", "v1", "Rule", Rule)
BY_TARGET = indexes.by_reference(RULE, "target", lambda rule: TEAM.id(rule.data.target) if rule.data.target else None)
BY_BOUND = indexes.by_bound_references(RULE)
BY_WHOLE = indexes.by_references(RULE, "whole", lambda rule: [TEAM.id(rule.data.target, uid="its-uid")])


def _ignore_failure(name: str, key: Key, error: BaseException) -> None:
    """Ignore the failure, which these tests don't check."""


def names(found: list[Resource[Rule]]) -> list[str]:
    return [each.name for each in found]


def reader_of(there: list[pb.Resource], *indexes: Index[Resource[Rule], ResourceId]) -> Cache:
    informer = Informer(RULE, ignore)
    informer.feed(chunk(*there))
    informer.feed(end(30))
    reader = Cache("rules", RULE, [])
    reader.open({RULE.name: informer.subscribe(indexes, _ignore_failure)})
    return reader


def rules() -> Cache:
    references = [TEAM.id("b").reference(), TEAM.id("c", namespace="apart").reference("section")]
    there = [
        stored("one", 1, type=RULE, data=Rule(target="a", bound_references=references)),
        stored("two", 2, type=RULE, data=Rule(target="a", bound_references=references[:1])),
        stored("none", 3, type=RULE, data=Rule()),
    ]
    return reader_of(there, BY_TARGET, BY_BOUND)


def test_reference_index_finds_referring_resources() -> None:
    """The index takes the references of each resource, or all bound references.

    The same name in another tenancy is another resource.
    """
    assert names(rules().index(BY_TARGET, TEAM.id("a"))) == ["one", "two"]
    assert names(rules().index(BY_BOUND, TEAM.id("b"))) == ["one", "two"]
    assert names(rules().index(BY_BOUND, TEAM.id("c", namespace="apart"))) == ["one"]
    assert names(rules().index(BY_BOUND, TEAM.id("c"))) == []
    assert names(rules().index(BY_TARGET, ACCOUNT.id("a"))) == []


def test_reference_ignores_uid_and_type_version() -> None:
    """This holds for the values in the index and for the value that is looked up."""
    newer: ResourceType[Team] = ResourceType("staff", "v2", "Team", Team)
    assert names(rules().index(BY_TARGET, TEAM.id("a", uid="a7"))) == ["one", "two"]
    assert names(rules().index(BY_TARGET, newer.id("a"))) == ["one", "two"]
    rule = stored("one", 1, type=RULE, data=Rule(target="a"))
    reader = reader_of([rule], BY_WHOLE)
    assert names(reader.index(BY_WHOLE, TEAM.id("a"))) == ["one"]


def test_name_alone_is_refused_as_a_reference() -> None:
    """A name alone lacks the type."""
    with pytest.raises(InvalidArgument, match=r"'a' is not a reference: return TYPE.id"):
        rules().index(BY_TARGET, "a")  # type: ignore[misc]  # what is tested


def test_invalid_reference_is_an_index_failure_of_its_resource() -> None:
    """A name alone lacks the type."""
    wrong: Index[Resource[Rule], ResourceId] = indexes.by_reference(RULE, "wrong", lambda rule: rule.name)  # type: ignore[arg-type, return-value]  # what is tested
    reader = reader_of([stored("one", 1, type=RULE)], wrong)
    with pytest.raises(IndexIncomplete):
        reader.index(wrong, TEAM.id("a"))


def test_bound_references_need_a_payload_with_that_field() -> None:
    """A payload without the field is refused at the declaration of the index."""
    with pytest.raises(DeclarationError, match="Team has no field 'bound_references'"):
        indexes.by_bound_references(TEAM)

"""Scopes of types: checked where they are declared, immutable, and the same object for the same arguments."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headway
from headway.errors import InvalidArgument
from headway.resource import Key, Within, pb
from tests.helpers.declared import NOTE, PLANET, REGION

GOLD = (("tier", "gold"),)


def test_scope_has_the_identity_of_its_type_and_the_given_filter() -> None:
    scope = NOTE.within(partition="p", namespace="n", name_prefix="a-", metadata=" b = 2, a=1=1 ,b=2")
    assert (scope.of, scope.name, scope.kind, scope.scope) == (NOTE, NOTE.name, NOTE.kind, NOTE.scope)
    assert scope.range == Within("p", "n", "a-", (("a", "1=1"), ("b", "2")))
    assert scope.range.selector == "a=1=1,b=2"
    assert repr(scope) == (
        f"<ScopedType {NOTE.name} within partition='p', namespace='n', name_prefix='a-', metadata='a=1=1,b=2'>"
    )
    assert repr(NOTE.within(namespace="n")) == f"<ScopedType {NOTE.name} within namespace='n'>"


def test_equal_scopes_are_one_hashable_object_that_cannot_be_changed() -> None:
    scope = NOTE.within(metadata="a=1,b=2")
    assert NOTE.within(metadata="b=2, a=1") is scope
    assert {scope: 1}[NOTE.within(metadata="a=1,b=2")] == 1
    assert copy.deepcopy([scope, copy.copy(scope)]) == [scope, scope]
    assert NOTE.within(metadata="a=1") is not scope
    with pytest.raises(AttributeError, match="cannot be changed: declare another scope"):
        scope.range = Within()
    with pytest.raises(AttributeError, match="cannot be changed: declare another scope"):
        del scope.of


def test_scopes_that_are_not_used_take_no_memory() -> None:
    """A program may declare one for each request."""
    for number in range(100):
        NOTE.within(name_prefix=f"unused-{number}")
    gc.collect()
    assert not [each for each in NOTE._scopes if each.name_prefix.startswith("unused-")]


def test_ids_of_a_scope_have_its_tenancy() -> None:
    assert NOTE.within(namespace="n").id("x").namespace == "n"
    assert NOTE.within(namespace="n").id("x", namespace="m").namespace == "m"
    assert NOTE.within(partition="p", namespace="n").id("x").key == ("p", "n", "x")
    assert NOTE.within(metadata="a=1").id("x") == NOTE.id("x")
    assert PLANET.within(name_prefix="e").id("earth") == PLANET.id("earth")


@example([("a", "a", "a"), ("a", "b", "a"), ("b", "a", "a")], Within("*", "a"))
@example([("a", "a", "a"), ("a", "a", "b")], Within("a", "a", "a"))
@example([("a", "a", "ab"), ("a", "b", "a"), ("a", "b", "ab")], Within("a", "*", "ab"))
@given(
    st.lists(st.tuples(*[st.sampled_from("ab")] * 2, st.sampled_from(["a", "ab", "b"])), unique=True, max_size=6),
    st.builds(Within, *[st.sampled_from("*a")] * 2, st.sampled_from(["", "a", "ab"])),
)
def test_sorted_resources_are_selected_like_any(keys: list[Key], within: Within) -> None:
    """The ends may match although something between them does not."""
    stored = [
        pb.Resource(id=pb.Id(name=name, tenancy=pb.Tenancy(partition=partition, namespace=namespace)))
        for partition, namespace, name in sorted(keys)
    ]
    assert within.select_sorted(stored) == within.select(stored)
    if keys and within.matches_all(min(keys), max(keys)):
        assert all(map(within.matches, keys))


def test_prefix_may_be_any_beginning_of_a_name() -> None:
    for prefix in ("a", "a-", "0", "team-1-", "x" * 62, "x" * 63):
        assert NOTE.within(name_prefix=prefix).range.name_prefix == prefix


WRONG: list[tuple[headway.ResourceType[Any], dict[str, Any], str]] = [
    (NOTE, {}, "expected a partition, a namespace, a name_prefix or metadata, such as TEAM.within"),
    (NOTE, {"namespace": "*"}, "expected a partition"),
    (NOTE, {"namespace": ""}, "namespace is required"),
    (NOTE, {"namespace": "A b"}, "namespace 'A b' is not a valid name: use 1 to 63 lower-case letters"),
    (NOTE, {"partition": 7}, "partition must be a string, such as 'default', not 7"),
    (REGION, {"namespace": "n"}, "namespace 'n' must be left out: resources of this type have no namespace"),
    (PLANET, {"partition": "p"}, "partition 'p' must be left out: resources of this type have no partition"),
    (NOTE, {"name_prefix": "Core"}, "name_prefix 'Core' must be lower case"),
    (NOTE, {"name_prefix": "x" * 100}, "must have at most 63 characters"),
    (NOTE, {"name_prefix": "team-*"}, "name_prefix 'team-*' is not the beginning of a name: names have lower-case"),
    (NOTE, {"name_prefix": "*"}, "name_prefix '*' is not the beginning of a name"),
    (NOTE, {"name_prefix": "-a"}, "name_prefix '-a' is not the beginning of a name"),
    (NOTE, {"name_prefix": "x" * 62 + "-"}, "is not the beginning of a name"),
    (NOTE, {"name_prefix": "\ud800"}, "name_prefix '\\ud800' is not the beginning of a name"),
    (NOTE, {"name_prefix": None}, "name_prefix must be a string, such as 'team-', not None"),
    (NOTE, {"metadata": {"tier": "gold"}}, "metadata must be a string, such as 'tier=gold', not {'tier': 'gold'}"),
    (NOTE, {"metadata": "tier"}, "metadata 'tier': 'tier' is not key=value: use key=value, with commas"),
    (NOTE, {"metadata": "tier!=gold"}, "'tier!=gold' is not key=value"),
    (NOTE, {"metadata": "!tier=gold"}, "'!tier=gold' is not key=value"),
    (NOTE, {"metadata": "ti!er=gold"}, "'ti!er=gold' is not key=value"),
    (NOTE, {"metadata": "tier=\ud800"}, "metadata 'tier=\\ud800' must be Unicode text without surrogates"),
    (NOTE, {"metadata": "tier==gold"}, "'tier==gold' is not key=value"),
    (NOTE, {"metadata": "size>=3"}, "'size>=3' is not key=value"),
    (NOTE, {"metadata": "tier:=gold"}, "'tier:=gold' is not key=value"),
    (NOTE, {"metadata": "=gold"}, "'=gold' is not key=value"),
    (NOTE, {"metadata": "a=1,,b=2"}, "metadata 'a=1,,b=2' has an empty entry"),
    (NOTE, {"metadata": "a=1,a=2"}, "selects two values of 'a', and a resource has one"),
    (NOTE, {"metadata": ",".join(f"k{number}=1" for number in range(33))}, "has 33 entries: it must have at most 32"),
    (NOTE, {"metadata": "a=" + "x" * 5000}, "has 5002 characters: it must have at most 4096"),
]


@pytest.mark.parametrize(("type", "given", "said"), WRONG)
def test_invalid_scope_is_refused_with_the_field(
    type: headway.ResourceType[Any], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        type.within(**given)
    assert str(refused.value).startswith((f"{type.name}.within: ", "within(): "))
    assert said in str(refused.value)


def tiered(name: str, **metadata: str) -> pb.Resource:
    return NOTE.new(name, metadata=metadata).message()


def test_resource_matches_a_scope_by_every_field() -> None:
    resource = tiered("core", tier="gold", region="eu")
    for within in (
        Within(),
        Within(metadata=GOLD),
        Within("default", "default", "co", (("region", "eu"), *GOLD)),
    ):
        assert within.admits(resource)
        assert within.select([resource]) == [resource]
    for within in (
        Within(metadata=(("tier", "silver"),)),
        Within(metadata=(*GOLD, ("zone", ""))),
        Within(partition="p", metadata=GOLD),
        Within(name_prefix="x"),
    ):
        assert not within.admits(resource)
        assert within.select([resource]) == []


def test_range_of_keys_without_a_match_is_recognized() -> None:
    """It is never wrong about keys that match: compared with all keys of some small ranges."""
    units = ["a", "b", "c"]
    keys = [(p, n, name) for p in units for n in units for name in ("x", "xy", "y", "z")]
    skipped = 0
    for within in (Within(namespace="b"), Within(name_prefix="x"), Within(namespace="b", name_prefix="y"), Within("b")):
        for begin in range(len(keys)):
            for end in range(begin, len(keys)):
                some = [key for key in keys[begin : end + 1] if within.matches(key)]
                assert within.may_hold(keys[begin], keys[end]) or not some
                skipped += not within.may_hold(keys[begin], keys[end])
    assert skipped > 100

"""The requests that a policy allows, and the errors of an invalid policy."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.access import GROUPS, VERBS, Policy, Rights, Rule, Verb
from headway.errors import InvalidArgument
from headway.resource import TypeName

TEAM = TypeName("staff", "v1", "Team")


def rule(**changed: object) -> Rule:
    fields: dict[str, object] = {"verbs": ["*"], "type": "*", "partition": "*", "namespace": "*"}
    return Rule(**{**fields, **changed})  # type: ignore[arg-type]  # wrong ones are given on purpose


def allows(verb: Verb, asked: tuple[TypeName, str, str, str], *rules: Rule) -> bool:
    return Policy("under-test", rules).allows(verb, *asked)


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["read"], {"read"}),
        (["list"], {"list"}),
        (["watch"], {"watch"}),
        (["write"], {"write"}),
        (["write_status"], {"write_status"}),
        (["delete"], {"delete"}),
        (["view"], {"read", "list", "watch"}),
        (["edit"], {"write", "write_status", "delete"}),
        (["*"], set(VERBS)),
        (["view", "write_status"], {"read", "list", "watch", "write_status"}),
    ],
)
def test_rule_allows_the_verbs_that_its_words_mean(words: list[str], allowed: set[str]) -> None:
    """A verb means itself, and a group means the verbs that are listed for it. No verb implies another."""
    asked = (TEAM, "default", "default", "core")

    assert {verb for verb in VERBS if allows(verb, asked, rule(verbs=words))} == allowed


def test_no_group_has_the_name_of_a_verb() -> None:
    """Otherwise, a word in a rule could have two meanings."""
    assert GROUPS.keys().isdisjoint(VERBS)


@pytest.mark.parametrize(
    ("pattern", "type", "covered"),
    [
        ("staff.v1.Team", "staff.v1.Team", True),
        ("staff.v1.Team", "staff.v2.Team", False),
        ("staff.v1.Team", "staff.v1.Teams", False),
        ("staff.v1.Team", "staffing.v1.Team", False),
        ("staff.*.Team", "staff.v2.Team", True),
        ("staff.*.Team", "staff.v2.Account", False),
        ("staff.*.*", "staff.v2.Account", True),
        ("staff.*.*", "mesh.v2.Account", False),
        ("*.v1.*", "mesh.v1.Route", True),
        ("*.v1.*", "mesh.v2.Route", False),
        ("*.*.Team", "mesh.v2.Team", True),
        ("*", "mesh.v2.Route", True),
    ],
)
def test_each_part_of_a_type_is_compared(pattern: str, type: str, covered: bool) -> None:
    """Each part is equal or a wildcard. It never matches as a prefix."""
    asked = (TypeName(*type.split(".")), "default", "default", "core")

    assert allows("read", asked, rule(type=pattern)) is covered


@pytest.mark.parametrize(
    ("partition", "namespace", "asked", "covered"),
    [
        ("default", "default", ("default", "default"), True),
        ("default", "default", ("default", "other"), False),
        ("default", "default", ("other", "default"), False),
        ("default", "*", ("default", "other"), True),
        ("default", "*", ("other", "other"), False),
        ("default", "*", ("default", ""), True),
        ("default", "default", ("default", ""), False),
        ("default", "", ("default", ""), True),
        ("default", "", ("default", "default"), False),
        ("*", "*", ("", ""), True),
        ("", "", ("", ""), True),
        ("", "", ("default", "default"), False),
        ("default", "default", ("", ""), False),
        # These are scopes of a List or WatchList.
        ("*", "*", ("*", "*"), True),
        ("default", "*", ("default", "*"), True),
        ("default", "*", ("*", "*"), False),
        ("default", "default", ("default", "*"), False),
        ("", "", ("*", "*"), False),
    ],
)
def test_each_unit_of_a_tenancy_is_compared(
    partition: str, namespace: str, asked: tuple[str, str], covered: bool
) -> None:
    """Each unit is equal or a wildcard. A request for any unit needs a rule for any unit."""
    assert allows("list", (TEAM, *asked, ""), rule(partition=partition, namespace=namespace)) is covered


@pytest.mark.parametrize(
    ("prefix", "name", "covered"),
    [
        ("", "core", True),
        ("", "", True),
        ("co", "core", True),
        ("core", "core", True),
        ("core", "co", False),
        ("core", "", False),
        ("re", "core", False),
    ],
)
def test_prefix_of_a_rule_matches_names_and_list_prefixes(prefix: str, name: str, covered: bool) -> None:
    """The name of a resource, or the prefix of a list, must start with the rule's prefix. A wider list is denied."""
    assert allows("list", (TEAM, "default", "default", name), rule(name_prefix=prefix)) is covered


def test_nothing_is_allowed_without_a_rule() -> None:
    """A request is denied without a policy, with a policy without rules, or with an unknown verb."""
    asked = (TEAM, "default", "default", "core")
    everything = Rights([Policy("all", [rule()])])

    assert not any(Rights().allows(verb, *asked) for verb in VERBS)
    assert not any(allows(verb, asked) for verb in VERBS)
    assert not any(everything.allows(word, *asked) for word in ("", "*", "view", "edit", "READ"))  # type: ignore[arg-type]


def test_policies_add_up_and_rules_do_not_mix() -> None:
    """A single rule must allow the request. A verb of one rule and a type of another do not combine."""
    reads_teams, writes_routes = rule(verbs=["read"], type="staff.v1.Team"), rule(verbs=["write"], type="mesh.v1.Route")
    rights = Rights([Policy("one", [reads_teams]), Policy("two", [writes_routes])])
    route = TypeName("mesh", "v1", "Route")
    units = ("default", "default", "core")

    assert rights.allows("read", TEAM, *units)
    assert rights.allows("write", route, *units)
    assert not rights.allows("write", TEAM, *units)
    assert not rights.allows("read", route, *units)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"verbs": ["raed"]}, "verbs: 'raed' is not a verb; did you mean 'read'?"),
        ({"verbs": ["Read"]}, "verbs: 'Read' is not a verb; did you mean 'read'?"),
        ({"verbs": [7]}, "verbs: 7 is not a verb; known: "),
        (
            {"verbs": []},
            "verbs is empty: use any of read, list, watch, write, write_status, delete, observe, view, edit, *",
        ),
        ({"verbs": "read"}, "verbs 'read' must be a list of words, such as ['view', 'write_status']"),
        ({"verbs": None}, "verbs None must be a list of words"),
        ({"type": "Team"}, "type 'Team' must have three parts: use group.version.Kind, such as 'staff.v1.Team'"),
        ({"type": "staff.v1.Team.x"}, "type 'staff.v1.Team.x' must have three parts: "),
        ({"type": "staff.v1.team"}, "type 'staff.v1.team': kind 'team' must be PascalCase"),
        ({"type": "*.1.Team"}, "type '*.1.Team': version '1' must be 'v', "),
        ({"type": "st*.v1.Team"}, "type 'st*.v1.Team': group 'st*' must be snake_case"),
        ({"type": 7}, "type must be a string, not 7: use group.version.Kind"),
        ({"partition": "Default"}, "partition 'Default' is not a valid name: "),
        ({"partition": None}, "partition must be a string, not None; or '*' for any, or '' for types that have none"),
        ({"namespace": "a*"}, "namespace 'a*' is not a valid name: "),
        ({"name_prefix": "*"}, "name_prefix '*' is invalid: use up to 63 lower-case letters, digits and hyph"),
        ({"name_prefix": "-a"}, "name_prefix '-a' is invalid"),
        ({"name_prefix": "a\n"}, "name_prefix 'a\\n' is invalid"),
        ({"name_prefix": "a" * 64}, "is invalid"),
        ({"name_prefix": None}, "name_prefix None is invalid"),
    ],
)
def test_invalid_rule_is_refused_with_the_valid_form(changed: dict[str, object], message: str) -> None:
    """The message has the field, the value and the valid form."""
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        rule(**changed)


def test_policy_has_a_valid_name() -> None:
    """The name follows the same rules as other names."""
    with pytest.raises(InvalidArgument, match="policy: name 'Not This' is not a valid name"):
        Policy("Not This", [])


def test_equivalent_rules_are_equal() -> None:
    """A list and a tuple are equivalent, and a policy is hashable."""
    one, other = rule(verbs=["read"]), rule(verbs=("read",))

    assert one == other
    assert len({Policy("same", [one]), Policy("same", (other,))}) == 1
    assert rule(verbs=["list"]) != one


GROUP_NAMES, VERSIONS, KINDS = ("staff", "mesh"), ("v1", "v2"), ("Team", "Route")
UNITS, NAMES = ("", "default", "other"), ("", "a", "ab", "b")


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    parts = [draw(st.sampled_from(["*", *values])) for values in (GROUP_NAMES, VERSIONS, KINDS)]
    return rule(
        verbs=draw(st.lists(st.sampled_from([*VERBS, *GROUPS]), min_size=1, max_size=3)),
        type=".".join(parts),
        partition=draw(st.sampled_from(["*", *UNITS])),
        namespace=draw(st.sampled_from(["*", *UNITS])),
        name_prefix=draw(st.sampled_from(NAMES)),
    )


def as_expressions(one: Rule) -> set[str]:
    """Return rules as regular expressions over requests, where each request is a line of text."""
    words: dict[str, list[str]] = {
        "view": ["read", "list", "watch"],
        "edit": ["write", "write_status", "delete"],
        "*": list(VERBS),
    }
    anything = "[^ ]*"
    places = [*one.type.split("."), one.partition, one.namespace]
    rest = " ".join(anything if place == "*" else re.escape(place) for place in places)
    verbs = [verb for word in one.verbs for verb in words.get(word, [word])]
    return {f"{verb} {rest} {re.escape(one.name_prefix)}{anything}" for verb in verbs}


@given(st.lists(st.lists(rules(), max_size=3), max_size=3))
def test_rights_agree_with_a_simple_model(each: list[list[Rule]]) -> None:
    """In a small world, each request, scopes included, is allowed exactly if an expression matches it."""
    rights = Rights(Policy(f"policy-{number}", held) for number, held in enumerate(each))
    expressions = {expression for held in each for one in held for expression in as_expressions(one)}
    model = re.compile("|".join(expressions)) if expressions else None
    units = ["*", *UNITS]
    world = list(itertools.product(GROUP_NAMES, VERSIONS, KINDS, units, units, NAMES))

    for verb in VERBS:
        for asked in world:
            group, version, kind, partition, namespace, name = asked
            expected = model is not None and model.fullmatch(" ".join((verb, *asked))) is not None
            allowed = rights.allows(verb, TypeName(group, version, kind), partition, namespace, name)
            assert allowed is expected, (verb, asked)


@pytest.mark.parametrize("rule", [{"verbs": ["view"], "type": "*"}, "view", None])
def test_rule_of_a_policy_must_be_a_rule(rule: Any) -> None:
    """It would fail at the first request instead."""
    with pytest.raises(InvalidArgument, match=r"policy 'p': .* is not a rule: use Rule\("):
        Policy("p", [rule])

"""Valid names, and the errors for invalid ones."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.resource import did_you_mean, name_problem, type_problem

LETTERS = string.ascii_lowercase + string.digits


def is_name(text: str) -> bool:
    """Return True if the text is a DNS label, by an independent implementation of the rule."""
    if not 1 <= len(text) <= 63:
        return False
    if any(each not in LETTERS + "-" for each in text):
        return False
    return text[0] != "-" and text[-1] != "-"


@given(st.text(alphabet=LETTERS + "-_.A Ä٣\n", max_size=66) | st.text(max_size=4))
@example("a" * 63)
@example("a" * 64)
@example("a\n")
@example("-")
@example("٣")
def test_name_must_be_a_dns_label(text: str) -> None:
    """Any other text is refused, and the error quotes it."""
    problem = name_problem("name", text)
    assert (problem is None) is is_name(text)
    if problem:
        assert problem.startswith("name ")
        assert not text or repr(text) in problem


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "partition is required"),
        (None, "partition must be a string, not None"),
        (7, "partition must be a string, not 7"),
        (
            "Up",
            "partition 'Up' is not a valid name: use 1 to 63 lower-case letters, digits and hyphens, with a letter or "
            "digit at both ends",
        ),
    ],
)
def test_invalid_name_error_has_field_value_and_rule(value: object, said: str) -> None:
    assert name_problem("partition", value) == said


@pytest.mark.parametrize(
    "parts",
    [("staff", "v1", "Team"), ("my_group2", "v2beta1", "T2"), ("ab", "v10", "HTTPRoute"), ("a_", "v0", "Ab")],
)
def test_type_name_has_a_snake_case_group_a_version_and_a_pascal_case_kind(parts: tuple[str, str, str]) -> None:
    assert type_problem(*parts) is None


GROUP, VERSION, KIND = (
    "must be snake_case",
    "must be 'v', optional lower-case letters and a number",
    "must be PascalCase",
)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        *(((group, "v1", "Team"), GROUP) for group in ("", "s", "Staff", "2staff", "_staff", "my-group", "a\n", "a٣")),
        *(((("staff", version, "Team")), VERSION) for version in ("", "v", "1", "vX1", "v1beta", "v1.2", "v1\n", "v٣")),
        *((("staff", "v1", kind), KIND) for kind in ("", "T", "team", "My_Team", "My-Team", "2Team", "Te\n", "T٣")),
        (("staff", 1, "Team"), "version must be a string, not 1"),
        ((None, "v1", "Team"), "group must be a string, not None"),
        (("staff", "v1", ["Team"]), "kind must be a string, not ['Team']"),
    ],
)
def test_invalid_type_name_error_names_the_part(parts: tuple[object, object, object], said: str) -> None:
    """Digits must be ASCII."""
    problem = type_problem(*parts)
    assert problem is not None
    assert said in problem


def test_did_you_mean_proposes_a_close_name_or_lists_all() -> None:
    """A typo gets its correction, and a wild guess the list. Without known names the hint is empty."""
    assert did_you_mean("tema", ["team", "account"]) == "; did you mean 'team'?"
    assert did_you_mean("zzz", ["team", "account"]) == "; known: account, team"
    assert did_you_mean("zzz", []) == ""

"""WS-5: the filter of a selector, and W-24, the entries that a resource lacks."""

from __future__ import annotations

import time

import pytest

from catalog.metadata_filter import LONGEST, parse

RED = {"color": "red", "env": "prod-1", "a.b": "dots"}

TRUE = [
    'metadata.color == "red"',
    "metadata.color == red",
    "metadata.color==red",
    "metadata.color == `red`",
    'metadata["a.b"] == dots',
    'metadata["env"] matches "^prod"',
    'metadata.env matches "[0-9]$"',
    'metadata.env not matches "^test"',
    "metadata.color != blue",
    "metadata.env contains prod",
    "metadata.env not contains test",
    '"prod" in metadata.env',
    '"test" not in metadata.env',
    "color in metadata",
    "canary not in metadata",
    "metadata contains color",
    "metadata not contains canary",
    "metadata is not empty",
    "not metadata is empty",
    "metadata.color == blue or metadata.color == red",
    "metadata.color == red and metadata.env != x",
    "not (metadata.color == blue or metadata.env == x)",
    "not not metadata.color == red",
    "metadata.color == blue and metadata.color == blue or metadata.color == red",
    r'metadata.color == "\u0072\x65d"',
]


# The metadata and the filters that go-bexpr 0.1.2, the parser of Consul, has been asked about.
WORDS = {
    "in": "x",
    "not": "y",
    "a": "not in or",
    "and": "empty",
    "metadata": "m",
    "k8s/x": "1",
    "é": "é",
    "color": "red",
}
WORDS_TRUE = [
    'metadata.in == "x"',
    "metadata.not == y",
    "metadata.and == empty",
    "not in metadata.a",
    "in in metadata",
    "not in metadata",
    "or in metadata.a and and in metadata",
    "not not in metadata.color",
    "not in not in metadata",
    "metadata in metadata",
    "not metadata.in in metadata",
    'metadata["k8s/x"] == 1',
    r'metadata.color == "\162\x65\U00000064"',
    r'metadata["é"] == "\xc3\xa9"',
    r'metadata["é"] != "\xe9"',
    "metadata.color == `r\red`",
    "metadata.color==red\n",
    "( metadata.color == red )",
]
WORDS_REFUSED = [
    "not(metadata.a == b)",
    r'metadata.a == "x\"y"',
    "metadata.k8s/x == 1",
    'metadata. not matches "x"',
    "metadata .color == red",
    'metadata ["color"] == red',
    '"color"in metadata',
    "(metadata.a == b)or(metadata.color == red)",
    "metadata.color contains`e`",
    r'metadata.color == "\ud800"',
    r'metadata.color == "\400"',
    'metadata.color == "re\nd"',
    "metadata.color\u00a0== red",
    "metadata.port == 080",
    "metadata.a.b == c",
    "metadata.color == red or or",
]


@pytest.mark.parametrize("text", WORDS_TRUE)
def test_word_of_the_grammar_is_a_key_and_a_value(text: str) -> None:
    assert parse(text)(WORDS)


@pytest.mark.parametrize("text", WORDS_REFUSED)
def test_form_that_consul_refuses_is_refused(text: str) -> None:
    """A filter that was tried here would otherwise not be accepted by Consul."""
    with pytest.raises(ValueError, match=r"."):
        parse(text)


@pytest.mark.parametrize("text", TRUE)
def test_filter_that_holds(text: str) -> None:
    assert parse(text)(RED)
    assert not parse(f"not ({text})")(RED)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "expected a value"),
        ("service.color == red", "unknown field 'service.color' at character 0: a filter reads only metadata"),
        ('"x" in service', "expected 'metadata'"),
        ("metadata == red", "'==' reads one entry, not the whole of metadata"),
        ('metadata matches "x"', "'matches' reads one entry"),
        ("metadata.color is empty", "'is empty' reads the whole of metadata"),
        ("metadata.color", "expected an operator"),
        ("metadata.color ==", "expected a value"),
        ("metadata.color == red blue", "expected 'and', 'or' or the end"),
        ("metadata.color == red and", "expected a value"),
        ("(metadata.color == red", r"expected '\)'"),
        ("metadata[color] == red", "expected a quoted key"),
        ("metadata.color = red", "unexpected '='"),
        ('metadata.color == "red', "unexpected '\"'"),
        ('metadata.color matches "("', "is not a pattern of RE2"),
        (r'metadata.color == "\q"', "unknown escape"),
        (r'metadata.color == "\é"', "unknown escape"),
        ('metadata.color matches "(?=x)"', "is not a pattern of RE2"),
        (f"metadata.color == {'x' * LONGEST}", "has 4114 characters"),
        ("(" * 1000, "nested more than"),
        ("not " * 1000 + "metadata.color == red", "nested more than"),
    ],
)
def test_text_that_is_no_filter(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse(text)


def test_hostile_pattern_costs_linear_time() -> None:
    pattern = parse('metadata.text matches "(a*)*b"')
    began = time.process_time()
    assert not pattern({"text": "a" * 20_000})
    # Python's own `re` needs longer than the universe exists.
    assert time.process_time() - began < 10

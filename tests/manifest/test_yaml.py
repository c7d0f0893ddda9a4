"""YAML itself: limits of its syntax, tags and aliases, reported in Headway's words with the place."""

import time

import pytest

from headway.manifest import ManifestError, load
from tests.manifest.messages import REGISTRY


def problem_of(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        load(text, REGISTRY, source="f")
    return str(caught.value.problems[-1])


SYNTAX = {
    "name: a: b": "1:8: unexpected ': ': quote the text that contains it, or fix the indentation",
    "type: App\n name: b": "2:6: unexpected ': ': quote the text that contains it, or fix the indentation",
    "name: - b": "1:7: unexpected '- ': start the list on its own line",
    "name: @b": "1:7: a value can't begin with this character: quote the value (tabs can't indent)",
    "data:\n\tname: b": "2:1: a value can't begin with this character: quote the value (tabs can't indent)",
    "a: [1, 2\nb: c": "2:2: expected ',' or ']' in a list in brackets (it began at line 1, column 4)",
    "a: {b: c": "1:9: expected ',' or '}' in a map in braces (it began at line 1, column 4)",
    "a: {b: c\n": "2:1: expected ',' or '}' in a map in braces (it began at line 1, column 4)",
    "{a:, b: c}": "1:3: unexpected ':': quote the text that contains it, or write a space after it "
    "(it began at line 1, column 2)",
    "a: 'b": "1:6: the text ends inside quotes (it began at line 1, column 4)",
    "- a\nb: c": "2:1: expected '- ' for the next item of a list, or the indentation differs from the lines above "
    "(it began at line 1, column 1)",
    "a: 'b' c": "1:8: unexpected key: the indentation differs from the lines above, or a quote is missing "
    "(it began at line 1, column 1)",
    "a: ]": "1:4: expected a value",
    'a: "\\q"': '1:5: unknown escape in "double quotes": write \\\\ for a backslash, or use single quotes '
    "(it began at line 1, column 4)",
    "a: *": "1:5: expected a name after '&' or '*': quote the text (it began at line 1, column 4)",
    "a: !b!c d": "1:4: only plain values are allowed: remove the tag, or quote the text",
    "--- a\n... b": "2:5: expected '---' on its own line before a new document",
    "%YAML 3.0\n---\na": "1:1: this version of YAML is not supported: remove the line with %YAML",
    "a: é\nb: \0": "2:4: the character U+0000 is not allowed: write it as an escape in double quotes",
    "a: \ud800": "1:4: the character U+D800 is not allowed: write it as an escape in double quotes",
}

MEANING = {
    "a: !!python/object:os.system {}": "1:4: a: a tag is not allowed: "
    "remove it, or put text that begins with '!' in quotes",
    "a: [!!python/name:os.system x]": "1:5: a[0]: a tag is not allowed: "
    "remove it, or put text that begins with '!' in quotes",
    "a: !secret x": "1:4: a: a tag is not allowed: remove it, or put text that begins with '!' in quotes",
    "a: !!set {}": "1:4: a: a tag is not allowed: remove it, or put text that begins with '!' in quotes",
    "a: !!int x": "1:4: a: a tag is not allowed: remove it, or put text that begins with '!' in quotes",
    "a: *b": "1:4: a: this alias has no anchor before it: put text that begins with '*' in quotes",
    "a: &b [*b]": "1:8: a[0]: this alias is inside the value that it refers to",
    "? [a]\n: b": "1:3: a list can't be a key; use text, a number or a boolean",
    "a: &b {c: d}\ne:\n  <<: *b": "3:3: e: merging with '<<' is not supported: write the fields out",
    "a: {b: 1, b: 2}": "1:11: a.b: the key 'b' was already given at line 1, column 5: keep one of them",
    "type: App\nname: a\ntype: Node": "3:1: type: the key 'type' was already given at line 1, column 1: "
    "keep one of them",
}


@pytest.mark.parametrize("text", SYNTAX)
def test_yaml_syntax_errors_have_a_place_and_a_plain_message(text: str) -> None:
    """The error has the place of the problem, and the beginning of the broken construct."""
    assert problem_of(text) == f"f:{SYNTAX[text]}"


@pytest.mark.parametrize("text", MEANING)
def test_unsupported_yaml_features_are_refused_with_their_place(text: str) -> None:
    """Tags that construct objects, recursive aliases, keys other than text, and duplicate keys."""
    with pytest.raises(ManifestError) as caught:
        load(text, REGISTRY, source="f")
    assert f"f:{MEANING[text]}" in str(caught.value).splitlines()


def test_billion_laughs_are_refused_at_once() -> None:
    """Aliases are counted before they are followed."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    began = time.process_time()
    problem = problem_of("\n".join(lines))
    assert problem.endswith("aliases add more than 10000 values to this text")
    assert problem.startswith("f:5:")
    assert time.process_time() - began < 5


@pytest.mark.parametrize("opening", ["[", "- ", "{a: ", "? "])
def test_yaml_nesting_is_bounded(opening: str) -> None:
    """A text of brackets alone fails without exhausting the stack."""
    assert "nested deeper than 100 levels" in problem_of(opening * 20_000)


def test_nesting_by_aliases_is_bounded() -> None:
    """Each level is short, but together they could have any depth."""
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 120)]
    assert "with its aliases this is nested deeper than 100 levels" in problem_of("\n".join(lines))


def test_lines_are_counted_with_any_line_ending() -> None:
    """Windows files have the same lines."""
    assert problem_of("type: App\r\nname: a\r\nnmae: b\r\n").startswith("f:3:1: ")

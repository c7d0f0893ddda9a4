"""What a text can cost that a stranger has written: few problems are kept of it, and short ones."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable

import pytest

from headway.access import read_access
from headway.access._tokens import redacted
from headway.base import did_you_mean
from headway.documents import Format, Problems, below, parse
from headway.manifest import ManifestError, load
from tests.manifest.messages import REGISTRY

LONG = "k" * 100_000
TWICE: dict[Format, str] = {
    "JSON": f'{{"{LONG}":{{' + ",".join(['"a":1'] * 2_000) + "}}",
    "YAML": f"{LONG[:1000]}:\n" + " a: 1\n" * 2_000,
    "HCL": f"{LONG} {{\n" + " a = 1\n" * 2_000 + "}\n",
}


@pytest.mark.parametrize("format", TWICE)
def test_only_some_problems_of_a_text_are_kept(format: Format) -> None:
    """A key that is given 2,000 times below a long one makes 100 problems, and a number for the others."""
    problems = Problems("f")
    parse(TWICE[format], format, problems)
    assert len(problems) == 1_999
    with pytest.raises(ManifestError) as caught:
        problems.raise_if_any()
    assert (len(caught.value.problems), caught.value.more) == (100, 1_899)
    assert str(caught.value).endswith("\nand 1899 more problems")
    assert len(str(caught.value)) < 50_000
    # The first ones in the text.
    assert [each.line for each in caught.value.problems] == sorted(each.line for each in caught.value.problems)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.problems, again.more, str(again)) == (caught.value.problems, 1_899, str(caught.value))


def test_message_and_path_of_a_problem_are_bounded() -> None:
    """A problem quotes the beginning of a long value, and the end of a deep path."""
    with pytest.raises(ManifestError) as caught:
        load(f'{{"type": "{LONG}", "name": "a"}}', REGISTRY, format="JSON")
    [problem] = caught.value.problems
    assert len(problem.message) < 1_100
    assert problem.message.endswith(" more)")
    deep = Problems("f")
    parse('{"%s":' % ("k" * 90) * 60 + '{"last":1,"last":2}' + "}" * 60, "JSON", deep)
    with pytest.raises(ManifestError) as caught:
        deep.raise_if_any()
    [problem] = caught.value.problems
    assert len(problem.path) < 410
    assert problem.path.endswith("k.last")


def test_long_key_costs_as_much_as_a_long_text() -> None:
    """The processor time for a list of 11,000 numbers does not depend on the length of the key above it."""

    def seconds(document: dict[str, object]) -> float:
        text, problems = json.dumps(document, separators=(",", ":")), Problems("f")
        began = time.process_time()
        parse(text, "JSON", problems)
        return time.process_time() - began

    many, long = [1] * 11_000, LONG * 20
    # It would be ten times as much if each path had the key.
    assert min(seconds({long: many}) for _ in range(3)) < 4 * min(seconds({"a": many, "b": long}) for _ in range(3))


ONE_LINE: dict[Format, Callable[[int], str]] = {
    "HCL": lambda count: "a = {" + ", ".join(f'k{number} = "é"' for number in range(count)) + "}",
    "JSON": lambda count: "{" + ", ".join(f'"k{number}": "é"' for number in range(count)) + "}",
    "YAML": lambda count: "{" + ", ".join(f'k{number}: "é"' for number in range(count)) + "}",
}


@pytest.mark.wide
@pytest.mark.parametrize("format", ONE_LINE)
def test_line_of_many_values_costs_no_more_for_each_of_them(format: Format) -> None:
    """The place of a value is counted from the one before, not from the beginning of the line."""

    def seconds(count: int) -> float:
        problems = Problems("")
        began = time.process_time()
        documents = parse(ONE_LINE[format](count), format, problems)
        taken = time.process_time() - began
        assert (len(documents), len(problems)) == (1, 0)
        return taken

    # With a decoding of the line for each value, four times as many values took 15 times as long.
    assert seconds(16_000) < 24 * min(seconds(2_000) for _ in range(3))


def test_long_unknown_name_is_not_compared_with_known_ones() -> None:
    """A comparison takes time for its length. The hint lists the known names."""
    name = "k" * 200
    assert did_you_mean(name, [name + "x"]) == f"; did you mean {name + 'x'!r}?"
    assert did_you_mean(name + "k", [name + "x"]) == f"; known: {name}x"
    with pytest.raises(ManifestError, match=r"has no field .*; known: command, environment"):
        load('{"type": "App", "name": "a", "data": {"%s": 1}}' % ("replcas" * 20_000), REGISTRY, format="JSON")


def test_key_that_is_cut_off_shows_no_token() -> None:
    """A token that someone has pasted as a key stays secret, wherever the key is cut off."""
    token = f"hw_{'0' * 16}_{'c0ffee' * 11}"
    for before in range(130):
        with pytest.raises(ManifestError) as caught:
            read_access(f'"{" " * before}{token}": 1\n"{" " * before}{token}": 2\n')
        assert "c0ffee" not in str(caught.value), before
        assert any(each.path for each in caught.value.problems)
        assert "c0ffee" not in redacted(below("", " " * before + token))

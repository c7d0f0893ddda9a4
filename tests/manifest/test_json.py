"""JSON: documents one after the other or in lists, what a server has said of one, and what is wrong with its place."""

import json
import time

import pytest
from hypothesis import given

from headway.manifest import ManifestError, as_object, load
from headway.manifest._nodes import DEPTH_LIMIT
from tests.manifest.messages import APP, NODE, REGISTRY, App, Every, Policy, every

WEB = '{"type": "App", "name": "web", "data": {"replicas": 3}}'


def problems_of(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(text, REGISTRY, source="f", format="JSON")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("between", ["", "\n", " \t\r\n"])
def test_documents_follow_one_another_or_stand_in_a_list(between: str) -> None:
    """A line each, a stream without lines, lists, and empty text."""
    node = '{"type": "Node", "name": "a"}'
    both = [APP.new("web", App(replicas=3)), NODE.new("a")]
    assert load(f"{WEB}{between}{node}{between}", REGISTRY, format="JSON") == both
    assert load(f"[{WEB},{between}{node}]", REGISTRY, format="JSON") == both
    assert load(f"[{WEB}]{between}[]{between}{node}", REGISTRY, format="JSON") == both
    assert load(f"\ufeff{between}", REGISTRY, format="JSON") == []


def test_what_a_server_has_said_can_be_given_back() -> None:
    """What the store assigns changes nothing; the form with a whole id is another way to write one."""
    text = """{"id": {"type": {"group": "fleet", "groupVersion": "v1", "kind": "App"}, "name": "web", "uid": "01",
      "tenancy": {"partition": "default", "namespace": "prod"}}, "version": "7", "generation": "8", "uid": "9",
      "status": {"x": {"conditions": []}}, "owner": {"type": "Node", "name": "n", "uid": "2"}}"""
    assert load(text, REGISTRY, format="JSON") == [APP.new("web", App(), namespace="prod", owner=NODE.id("n"))]


@given(every)
def test_protobufs_own_json_is_read_back(payload: Every) -> None:
    """Long numbers, endless ones and keys in quotes, base64, moments, durations, arms that hold nothing."""
    document = {"type": "fleet.v1.Every", "name": "a", "data": as_object(payload)}
    for ascii_only in (True, False):
        [read] = load(json.dumps(document, ensure_ascii=ascii_only), REGISTRY, format="JSON")
        assert read.data == payload


VALUES = {
    '{"replicas": 1.0}': "{}: data.replicas: 1.0 is read as a number; write a whole number from -2147483648 "
    "to 2147483647 (int32)",
    '{"replicas": "x"}': "{}: data.replicas: 'x' is text; write a whole number from -2147483648 to 2147483647 (int32)",
    '{"note": 8080}': '{}: data.note: 8080 is read as a whole number, not text; quote it: "8080"',
    '{"paused": "true"}': "{}: data.paused: 'true' is text; write true or false: remove the quotes",
    '{"grace_period": 5}': '{}: data.grace_period: 5 is read as a whole number without a unit; write "5s"',
    '{"replcas": 3}': "{}: data.replcas: App has no field 'replcas'; did you mean 'replicas'?",
    '{"ports": {"http": {}}}': "{}: data.ports.http: as a key, 'http' is text; write a whole number from "
    "-9223372036854775808 to 9223372036854775807 (int64)",
    '{"note": "a", "note": "b"}': "{}: data.note: the key 'note' was already given at line 2, column 2: "
    "keep one of them",
    '{"note": "\\ud800"}': "{}: data.note: half of a surrogate pair is not a character: write "
    r"both, such as \ud83d\ude00",
    '{"replicas": 123456789012345678901234567890}': "{}: data.replicas: 123456789012345678901234567890 is out of "
    "range; write a whole number from -2147483648 to 2147483647 (int32)",
    f'{{"replicas": {"9" * 5000}}}': "{}: data.replicas: " + "9" * 60 + "… is out of range; write a whole number from "
    "-2147483648 to 2147483647 (int32)",
    f'{{"replicas": "{"9" * 5000}"}}': "{}: data.replicas: " + "9" * 60,
}
SYNTAX = {
    "{": '1:2: expected a key in "double quotes"',
    '{"a"': "1:5: a: expected ':' after the key",
    '{"a": ': "1:7: a: expected a value, got the end of the text",
    '{"a": 1 "b": 2}': "1:9: expected ',' or '}'",
    '{"a": [1 2]}': "1:10: a: expected ',' or ']'",
    '{"a": 1,}': "1:9: unexpected ',' before '}': remove it",
    '{"a": [1,\n]}': "2:1: a: unexpected ',' before ']': remove it",
    "{'a': 1}": '1:2: expected a key in "double quotes"',
    "{a: 1}": '1:2: expected a key in "double quotes"',
    '{"a": x}': "1:7: a: 'x' is not a valid value: write text in \"double quotes\"",
    '{"a": True}': "1:7: a: 'True' is not JSON: write true",
    '{"a": NaN}': "1:7: a: 'NaN' is not JSON: write \"NaN\"",
    '{"a": 010}': "1:7: a: '010' is not a valid number in JSON: write it in decimal, without leading zeros "
    "and with digits around a point",
    '{"a": .5}': "1:7: a: '.5' is not a valid number in JSON: write it in decimal, without leading zeros "
    "and with digits around a point",
    '{"a": "\\q"}': r"1:8: a: unknown escape: write \\ for a backslash",
    '{"a": "\\u12"}': r"1:9: a: \u must be followed by four hexadecimal digits",
    '{"a": "b\nc"}': r"1:9: a: a line break or another control character is not allowed in quotes: write it as \n",
    '{"a":\n "b': "2:2: a: the text ends inside quotes",
    '{"é😀": 1,\t"b" 2}': "1:15: b: expected ':' after the key",
    "// a\n{}": "1:1: JSON has no comments: remove it, or write YAML",
    "}": "1:1: expected a value, got '}'",
    "\ufeff}": "1:1: expected a value, got '}'",
}


@pytest.mark.parametrize("value", VALUES)
def test_a_wrong_value_is_named_with_its_place_and_what_would_be_right(value: str) -> None:
    """As in YAML, in the words and quotes of JSON."""
    [problem] = problems_of(f'{{"type": "App", "name": "web", "data":\n{value}}}')
    place, _, message = problem.partition(": ")
    line, column = map(int, place.removeprefix("f:").split(":"))
    assert line == 2
    assert message.startswith(VALUES[value].removeprefix("{}: "))
    assert value[column - 1] not in " :,"


@pytest.mark.parametrize("text", SYNTAX)
def test_a_syntax_error_is_told_with_its_place(text: str) -> None:
    """What should stand there, in our words."""
    assert problems_of(text)[-1] == f"f:{SYNTAX[text]}"


@pytest.mark.parametrize("opening", ["[", '{"a": '])
def test_nesting_is_bounded(opening: str) -> None:
    """A text of brackets alone ends in a problem, not in the end of the stack."""
    assert f"nested deeper than {DEPTH_LIMIT} levels" in problems_of(opening * 20_000)[-1]


def test_a_problem_in_a_later_document_has_its_own_line() -> None:
    """Each of them is told."""
    text = f"{WEB}\n{WEB.replace('web', 'b').replace('replicas', 'x')}\n[{WEB.replace('web', 'B')}]"
    assert [problem.split(": ")[0] for problem in problems_of(text)] == ["f:2:39", "f:3:26"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_endless_numbers_are_text(value: float) -> None:
    """JSON has no other way to say them."""
    document = {"type": "Every", "name": "a", "data": as_object(Every(double=value, single=value))}
    [read] = load(json.dumps(document, allow_nan=False), REGISTRY, format="JSON")
    assert repr(read.data.double) == repr(read.data.single) == repr(value)


def test_it_is_the_json_that_protobuf_has() -> None:
    """Names in camel case, long numbers as text."""
    payload = Every(int64=1 << 60, int32=5, by_flag={True: Policy.NEVER}, maybe_text="", by_int={7: 1.0})
    written = {"int64": str(1 << 60), "int32": 5, "byFlag": {"true": "NEVER"}, "maybeText": "", "byInt": {"7": 1.0}}
    assert as_object(payload) == written


def test_one_long_line_is_read_as_fast_as_many() -> None:
    """As programs write JSON. The place of a value is found without going through all of its line."""
    text = json.dumps({"type": "App", "name": "web", "data": {"command": ["x"] * 100_000}}, separators=(",", ":"))
    began = time.process_time()
    [web] = load(text, REGISTRY, format="JSON")
    # Half a minute, were the line gone through for every value.
    assert time.process_time() - began < 10
    assert len(web.data.command) == 100_000
    assert problems_of(text.replace('"web"', "[]")) == ["f:1:22: name: expected text, got a list"]

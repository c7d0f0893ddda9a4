"""JSON: documents in sequence or in lists, a server's output as input, and errors with their place."""

import json

import pytest
from hypothesis import given

from headway.manifest import ManifestError, as_object, load
from tests.manifest.messages import APP, NODE, REGISTRY, App, Every, Policy, every

WEB = '{"type": "App", "name": "web", "data": {"replicas": 3}}'


def problems_of(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(text, REGISTRY, source="f", format="JSON")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("between", ["", "\n", " \t\r\n"])
def test_json_documents_are_a_sequence_or_a_list(between: str) -> None:
    """Cases: a document per line, a stream without lines, lists, and empty text."""
    node = '{"type": "Node", "name": "a"}'
    both = [APP.new("web", App(replicas=3)), NODE.new("a")]
    assert load(f"{WEB}{between}{node}{between}", REGISTRY, format="JSON") == both
    assert load(f"[{WEB},{between}{node}]", REGISTRY, format="JSON") == both
    assert load(f"[{WEB}]{between}[]{between}{node}", REGISTRY, format="JSON") == both
    assert load(f"\ufeff{between}", REGISTRY, format="JSON") == []


def test_json_output_of_a_server_can_be_loaded() -> None:
    """Values that the store assigns are ignored. A whole id is another form of its parts."""
    text = """{"id": {"type": {"group": "fleet", "groupVersion": "v1", "kind": "App"}, "name": "web", "uid": "01",
      "tenancy": {"partition": "default", "namespace": "prod"}}, "version": "7", "generation": "8", "uid": "9",
      "status": {"x": {"conditions": []}}, "owner": {"type": "Node", "name": "n", "uid": "2"}}"""
    assert load(text, REGISTRY, format="JSON") == [APP.new("web", App(), namespace="prod", owner=NODE.id("n"))]


@given(every)
def test_protobuf_json_round_trips(payload: Every) -> None:
    """Long numbers, infinities and quoted keys, base64, timestamps, durations, and empty oneof arms."""
    document = {"type": "fleet.v1.Every", "name": "a", "data": as_object(payload)}
    for ascii_only in (True, False):
        [read] = load(json.dumps(document, ensure_ascii=ascii_only), REGISTRY, format="JSON")
        assert read.data == payload


VALUES = {
    '{"replicas": 1.5}': "{}: data.replicas: 1.5 is read as a number; write a whole number from -2147483648 "
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
    '{"a": x}': '1:7: a: this is not a valid value: write text in "double quotes"',
    '{"a": True}': "1:7: a: 'True' is not JSON: write true",
    '{"a": NaN}': "1:7: a: 'NaN' is not JSON: write \"NaN\"",
    '{"a": 010}': "1:7: a: this is not a valid number in JSON: write it in decimal, without leading zeros "
    "and with digits around a point",
    '{"a": .5}': "1:7: a: this is not a valid number in JSON: write it in decimal, without leading zeros "
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
def test_json_value_errors_have_a_place_and_a_valid_form(value: str) -> None:
    """The errors are the same as in YAML, with the words and quotes of JSON."""
    [problem] = problems_of(f'{{"type": "App", "name": "web", "data":\n{value}}}')
    place, _, message = problem.partition(": ")
    line, column = map(int, place.removeprefix("f:").split(":"))
    assert line == 2
    assert message.startswith(VALUES[value].removeprefix("{}: "))
    assert value[column - 1] not in " :,"


@pytest.mark.parametrize("text", SYNTAX)
def test_json_syntax_errors_have_a_place(text: str) -> None:
    """Headway's own message names the expected token."""
    assert problems_of(text)[-1] == f"f:{SYNTAX[text]}"


@pytest.mark.parametrize("opening", ["[", '{"a": '])
def test_json_nesting_is_bounded(opening: str) -> None:
    """A text of brackets alone fails without exhausting the stack."""
    assert "nested deeper than 100 levels" in problems_of(opening * 20_000)[-1]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_infinite_numbers_are_text_in_json(value: float) -> None:
    """JSON has no other form for them."""
    document = {"type": "Every", "name": "a", "data": as_object(Every(double=value, single=value))}
    [read] = load(json.dumps(document, allow_nan=False), REGISTRY, format="JSON")
    assert repr(read.data.double) == repr(read.data.single) == repr(value)


def test_json_has_the_form_of_protobuf_json() -> None:
    """Names are in camel case, and long numbers are text."""
    payload = Every(int64=1 << 60, int32=5, by_flag={True: Policy.NEVER}, maybe_text="", by_int={7: 1.0})
    written = {"int64": str(1 << 60), "int32": 5, "byFlag": {"true": "NEVER"}, "maybeText": "", "byInt": {"7": 1.0}}
    assert as_object(payload) == written


def test_two_spellings_of_a_number_are_one_key_given_twice() -> None:
    """One of the values would otherwise be lost."""
    text = '{"type": "App", "name": "a", "data": {"ports": {"1": {}, "01": {}}}}'
    with pytest.raises(ManifestError, match=r"data.ports.01: 1 was already given at .* in another spelling"):
        load(text, REGISTRY, format="JSON")

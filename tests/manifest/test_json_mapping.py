"""Payloads in JSON are read as by protobuf's own parser, except where that guesses."""

from __future__ import annotations

import base64
from fractions import Fraction

import pytest
from google.protobuf.json_format import Parse, ParseError
from hypothesis import given
from hypothesis import strategies as st

from headway.manifest import RANGES, ManifestError, load
from headway.protobuf import encode
from tests.manifest.messages import REGISTRY, Every
from tests.protobuf.test_files import THEIRS

WHOLE = """0 1 -1 -0 1.0 -0.0 1.5 1e2 1E2 1e-2 100e-2 1e19 1e30 1e400 1e-400 "1" "-1" "1.0" "1e2" "1.5" "+1" "01"
"0x1" "" "NaN" true "true" null [] {} [1] 18446744073709551615 9223372036854775807 9223372036854775808 4294967295
4294967296 -2147483648 -2147483649 2147483648 9223372036854775807.0 -9223372036854775808e0 1e999999999
1e-999999999"""
NUMBER = """0 -0.0 1 1.5 1e2 1e400 "1.5" "1e2" "NaN" "Infinity" "-Infinity" "nan" "" "x" "true" null [] {}"""
BASE64 = """"" "aGVsbG8=" "aGVsbG8" "-_8=" "+/8=" "-_8" "+/8" "-/8" "aa" "aa==" "a-b" "a" null 1"""
ENUM = '"ALWAYS" "NO" "no" 1 2 7 -1 1.0 2e0 null "X" "" 2147483648 []'
FORMS: dict[str, str] = {
    **dict.fromkeys(RANGES, WHOLE),
    **dict.fromkeys(("single", "double"), NUMBER),
    "blob": BASE64,
    "blobs": '["-_8"] [null] null "aGVsbG8="',
    **dict.fromkeys(("policy", "maybe_policy"), ENUM),
    **dict.fromkeys(("flag", "maybe_flag"), 'true false null 0 1 "true" "false"'),
    **dict.fromkeys(("text", "maybe_text"), '"" "a" 1 null true ["a"]'),
    "moment": '"2024-02-29T12:30:00+01:00" "0001-01-01T00:00:00Z" "0001-01-01T00:00:00+01:00" "2024-02-29" null "" 0',
    "span": '"1s" "1.5s" "-1.5s" ".5s" "1" "1S" 1 null "315576000000s" "315576000001s" "1e2s" "" "s" "01s"',
    "maybe_int": "null 1 1.0",
    "maybe_limits": "null {}",
    "ints": '[] [1.0] ["1e2"] [null] null 1 {}',
    "policies": '["NO",7,1.0] [null] null',
    "parts": "[{}] [null] null",
    "by_text": '{} {"a":"b"} {"a":null} null []',
    "by_int": '{"1":1} {"1.0":1} {"1e2":2} {"+1":2} {"a":1} {"1":null} {"1":"1.5"} null',
    "by_flag": '{"true":1} {"True":1} {"1":1} {"true":"NO"} {"false":null} null',
    "limits_of": '{"a":{}} {"a":null} null',
    "choice": 'null {} {"path":null} {"port":null,"path":"a"} {"port":1,"path":null} {"wrapped":null}',
}
EXACT = {"1e-400": "0.5", "1e-999999999": "0.5", "9223372036854775807.0": "9223372036854775807"}
"""Numbers that protobuf's parser for Python first rounds to a float, and what they are read like here."""


def ours(text: str) -> bytes | None:
    try:
        [resource] = load(f'{{"type": "Every", "name": "a", "data": {text}}}', REGISTRY, format="JSON")
    except ManifestError:
        return None
    return encode(resource.data)


def theirs(text: str) -> bytes | None:
    try:
        return bytes(Parse(text, THEIRS()).SerializeToString(deterministic=True))
    except ParseError:
        return None


@pytest.mark.parametrize("name", FORMS)
def test_form_is_read_as_by_protobuf_or_refused_by_both(name: str) -> None:
    for form in FORMS[name].split():
        text = f'{{"{name}": {form}}}'
        if name in RANGES and form in EXACT:
            assert ours(text) == ours(f'{{"{name}": {EXACT[form]}}}')
        else:
            assert ours(text) == theirs(text), text


@given(st.integers(-(1 << 53), 1 << 53), st.integers(0, 6), st.sampled_from(sorted(RANGES)))
def test_whole_number_is_read_in_every_form_of_a_number(number: int, zeros: int, name: str) -> None:
    """Exactly: protobuf's own library takes 1073741824.0000001 for the float beside it, which is whole."""
    for form in (f"{number}", f"{number}.{'0' * zeros}1", f"{number}.0{'0' * zeros}", f"{number}e-{zeros}"):
        exact = Fraction(form)
        expected = theirs(f'{{"{name}": {exact}}}') if exact.denominator == 1 else None
        for text in (f'{{"{name}": {form}}}', f'{{"{name}": "{form}"}}'):
            assert ours(text) == expected, text


@given(st.binary(max_size=20))
def test_bytes_are_read_in_both_alphabets_with_and_without_padding(blob: bytes) -> None:
    """In every format: no other text could be meant."""
    for encoded in (base64.b64encode(blob).decode(), base64.urlsafe_b64encode(blob).decode()):
        for each in (encoded, encoded.rstrip("=")):
            assert ours(f'{{"blob": "{each}"}}') == theirs(f'{{"blob": "{each}"}}') == encode(Every(blob=blob))
            [resource] = load(f"{{type: Every, name: a, data: {{blob: '{each}'}}}}", REGISTRY)
            assert resource.data == Every(blob=blob)

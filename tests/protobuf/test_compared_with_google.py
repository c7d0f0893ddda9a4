"""Every scalar, at its ends and beyond them, as protobuf's own library encodes it and writes it in JSON."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson, SerializeToJsonError
from hypothesis import example, given
from hypothesis import strategies as st

from headway.errors import PayloadError
from headway.manifest import RANGES, as_object, dump, load
from headway.protobuf import LONGEST_DURATION, decode, encode, equal, varint
from headway.versions import different_fields
from tests.manifest.messages import EVERY, REGISTRY, Every
from tests.protobuf.test_files import THEIRS

LARGEST = 3.4028234663852886e38
"""The largest number of 32 bits."""
FLOATS = [
    *(0.0, -0.0, 0.1, 1 / 3, 1e-7, 1e16, 1e22, 16777217.0, 123456789.0, 1e300, 5e-324, math.inf, -math.inf, math.nan),
    *(1e-45, 1e-46, -1e-46, 1e-60, -1e-60, 1.17549435e-38, LARGEST, -LARGEST, 3.4028235677973362e38),
]
BITS = (7, 14, 31, 32, 63, 64)


ENDS: dict[str, list[Any]] = {
    **{
        kind: [sign * (1 << bits) + more for bits in BITS for sign in (1, -1) for more in (-1, 0, 1)] for kind in RANGES
    },
    "double": FLOATS,
    "single": [value for value in FLOATS if not LARGEST * 1.1 < abs(value) < math.inf],
    "policy": [0, 1, 2, 3, -1, (1 << 31) - 1, -(1 << 31), 1 << 31, -(1 << 31) - 1],
    "text": ["", "\0", "\ufeff", "\U0010ffff", "\ud800"],
    "blob": [b"", b"\0", b"\xff\xfe"],
    "flag": [True, False],
}


def check_same(ours: Every, encoded: bytes) -> None:
    """Check that a decoded message has these bytes, protobuf's JSON, and survives both of its texts.

    Neither text has the sign of a NaN.
    """
    assert encode(ours) == encoded
    written = MessageToJson(THEIRS.FromString(encoded))
    # By their texts, because equality takes the two zeros for one, and NaN for none.
    assert json.dumps(as_object(ours), sort_keys=True) == json.dumps(json.loads(written), sort_keys=True)
    kept = THEIRS.FromString(encoded)
    for name in ("double", "single"):
        if math.isnan(getattr(kept, name)):
            setattr(kept, name, math.nan)
    document = {"type": "Every", "name": "a", "data": json.loads(written)}
    for [back] in (load(json.dumps(document), REGISTRY, format="JSON"), load(dump(EVERY.new("a", ours)), REGISTRY)):
        assert encode(back.data) == kept.SerializeToString()


@pytest.mark.parametrize("name", ENDS)
def test_scalar_is_encoded_as_by_protobuf_or_refused_by_both(name: str) -> None:
    for value in ENDS[name]:
        theirs = THEIRS()
        try:
            setattr(theirs, name, value)
            encoded = theirs.SerializeToString()
        except ValueError:
            with pytest.raises(PayloadError, match=f"Every.{name} has the invalid value"):
                encode(Every(**{name: value}))
        else:
            assert encode(Every(**{name: value})) == encoded
            check_same(decode(Every, encoded), encoded)


@given(st.floats(), st.floats(width=32), st.floats())
@example(0.0, 0.0, 1006071829233665.0)
@example(0.0, -math.nan, 0.0)
def test_numbers_are_encoded_as_by_protobuf(double: float, single: float, small: float) -> None:
    """A number of 64 bits in a field of 32 is rounded first, so that it may become zero. It may need nine digits."""
    for each in (single, small if abs(small) < LARGEST else 0.0):
        encoded = THEIRS(double=double, single=each).SerializeToString()
        assert encode(Every(double=double, single=each)) == encoded
        check_same(decode(Every, encoded), encoded)


@pytest.mark.parametrize("value", sorted({(1 << bits) + more & (1 << 64) - 1 for bits in BITS for more in (-1, 0, 1)}))
def test_varint_of_any_length_is_read_as_by_protobuf(value: int) -> None:
    """A foreign program may send more bits than a field has."""
    for field in THEIRS.DESCRIPTOR.fields:
        if field.type in VARINTS:
            data = varint(field.number << 3) + varint(value)
            assert encode(decode(Every, data)) == THEIRS.FromString(data).SerializeToString(), field.name


VARINTS = {
    getattr(THEIRS.DESCRIPTOR.fields[0], f"TYPE_{kind}")
    for kind in ("INT32", "INT64", "UINT32", "UINT64", "SINT32", "SINT64", "BOOL", "ENUM")
}


@pytest.mark.parametrize("seconds", [LONGEST_DURATION, LONGEST_DURATION + 1, 86_399_999_913_599])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("microseconds", [0, 999_999])
def test_duration_that_is_stored_has_a_text_that_is_read(seconds: int, sign: int, microseconds: int) -> None:
    """Beyond ten thousand years protobuf has no text for it: neither a program nor a foreign client can write it."""
    span = sign * datetime.timedelta(seconds=seconds, microseconds=microseconds)
    theirs = THEIRS()
    theirs.span.seconds, theirs.span.nanos = sign * seconds, sign * microseconds * 1000
    encoded = theirs.SerializeToString()
    if seconds <= LONGEST_DURATION:
        assert encode(Every(span=span)) == encoded
        check_same(decode(Every, encoded), encoded)
        return
    with pytest.raises(SerializeToJsonError):
        MessageToJson(theirs)
    for refused in (lambda: encode(Every(span=span)), lambda: decode(Every, encoded)):
        with pytest.raises(PayloadError, match=rf"span.* a duration has at most {LONGEST_DURATION} seconds"):
            refused()


def test_messages_that_differ_in_the_sign_of_zero_are_not_equal() -> None:
    """Otherwise a write of one over the other would be dropped as unchanged."""
    assert not equal(Every(double=0.0), Every(double=-0.0))
    assert different_fields(Every(double=0.0), Every(double=-0.0)) == ["double"]
    assert not equal(Every(by_int={1: 0.0}), Every(by_int={1: -0.0}))
    assert equal(Every(double=-0.0, single=math.nan), Every(double=-0.0, single=math.nan))

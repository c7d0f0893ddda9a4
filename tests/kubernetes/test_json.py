"""Payloads of message classes and the JSON of Kubernetes objects are converted without loss."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import field, message
from headway.errors import DeclarationError, PayloadError
from headway.kubernetes._json import KEPT, body_of, payload_of
from headway.protobuf import decode, encode
from tests.manifest.messages import Choice


class Phase(IntEnum):
    Pending = 0
    Ready = 1
    Failed = -2


@message
class Port:
    name: str = field(1)
    port: int = field(2, kind="int32")
    weight: float = field(3, kind="float")


@message
class Probe:
    path: str = field(1)
    every: timedelta = field(2)


@message
class Everything:
    kubernetes_names: ClassVar = {"cluster_ip": "clusterIP"}

    title: str = field(1)
    size: int = field(2)
    count: int = field(3, kind="uint64")
    delta: int = field(4, kind="sint32")
    hash: int = field(5, kind="fixed64")
    ratio: float = field(6)
    part: float = field(7, kind="float")
    paused: bool = field(8)
    data: bytes = field(9)
    begun_at: datetime = field(10)
    timeout: timedelta = field(11)
    phase: Phase = field(12)
    replicas: int | None = field(13)
    note: str | None = field(14)
    ended_at: datetime | None = field(15)
    probe: Probe = field(16)
    other: Probe | None = field(17)
    ports: list[Port] = field(18)
    probes: list[Probe] = field(19)
    words: list[str] = field(20)
    numbers: list[int] = field(21)
    waits: list[timedelta] = field(22)
    labels: dict[str, str] = field(23)
    by_number: dict[int, Phase] = field(24)
    by_flag: dict[bool, Probe] = field(25)
    file: str | None = field(26, oneof="source")
    url: str | None = field(27, oneof="source")
    cluster_ip: str = field(28)
    next: Everything | None = field(29)
    password: str = field(30, secret=True)
    key: bytes = field(31, secret=True)


EVERYTHING: dict[str, Any] = {
    "title": "Größe \U0001f680",
    "size": (1 << 63) - 1,
    "count": (1 << 63) - 1,
    "delta": -3,
    "hash": 7,
    "ratio": 1.5,
    "part": 0.1,
    "paused": True,
    "data": "aGVsbG8=",
    "begunAt": "2024-02-29T12:30:00.123456789Z",
    "timeout": "1h2m3.5s",
    "phase": "Failed",
    "replicas": 0,
    "note": "",
    "endedAt": "1969-12-31T23:59:59Z",
    "probe": {"path": "/ready", "every": "100ms"},
    "other": {},
    "ports": [{"name": "http", "port": 80, "weight": 0.3}, {"name": "dns", "port": 53}],
    "probes": [{"path": "/a"}, {"every": "1m0s"}],
    "words": ["", "a", "x" * 300, "b"],
    "numbers": [0, -1, 1 << 40],
    "waits": ["90s", "1m30s", "0s"],
    "labels": {"app": "web", "long": "y" * 300, "empty": ""},
    "byNumber": {"-7": "Ready", "0": "Pending"},
    "byFlag": {"true": {"path": "/t"}, "false": {}},
    "url": "https://example.org",
    "clusterIP": "10.0.0.1",
    "next": {"title": "inner", "next": {"size": 1}},
}


def test_every_kind_of_field_survives() -> None:
    payload = payload_of(Everything, EVERYTHING)
    assert body_of(Everything, payload) == EVERYTHING
    made = decode(Everything, payload)
    assert made.title == EVERYTHING["title"]
    assert made.size == made.count == (1 << 63) - 1
    assert (made.delta, made.hash, made.ratio, made.paused, made.data) == (-3, 7, 1.5, True, b"hello")
    assert made.begun_at == datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)
    assert made.ended_at == datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert made.timeout == timedelta(hours=1, minutes=2, seconds=3.5)
    assert made.phase is Phase.Failed
    assert made.replicas == 0
    assert made.note == ""
    assert made.other is not None
    assert [each.port for each in made.ports] == [80, 53]
    assert made.words == EVERYTHING["words"]
    assert made.waits == [timedelta(seconds=90), timedelta(seconds=90), timedelta(0)]
    assert made.labels == EVERYTHING["labels"]
    assert made.by_number == {-7: Phase.Ready, 0: Phase.Pending}
    assert made.by_flag[True].path == "/t"
    assert (made.file, made.url) == (None, "https://example.org")
    assert made.cluster_ip == "10.0.0.1"
    assert made.next is not None
    assert made.next.next is not None
    assert made.next.next.size == 1


def test_new_message_is_written_without_its_unset_fields() -> None:
    made = Everything(title="a", timeout=timedelta(milliseconds=1.5), probe=Probe(every=-timedelta(seconds=90)))
    made.ports = [Port(weight=1.0)]
    made.waits = [timedelta(hours=26), timedelta(microseconds=7)]
    made.begun_at = datetime(2024, 2, 29, 12, 30, 0, 120000, tzinfo=UTC)
    assert body_of(Everything, encode(made)) == {
        "title": "a",
        "begunAt": "2024-02-29T12:30:00.12Z",
        "timeout": "1.5ms",
        "probe": {"every": "-1m30s"},
        "ports": [{"weight": 1}],
        "waits": ["26h0m0s", "7µs"],
    }


@pytest.mark.parametrize(
    "body",
    [
        {"title": "", "size": 0, "paused": False, "phase": "Pending", "timeout": "0s", "data": ""},
        {"begunAt": "1970-01-01T00:00:00Z", "probe": {}, "ports": [], "words": [], "labels": {}, "numbers": []},
        {"ports": [{}], "byFlag": {}, "probe": {"path": ""}},
    ],
)
def test_zeros_of_an_object_are_kept(body: dict[str, Any]) -> None:
    assert body_of(Everything, payload_of(Everything, body)) == body
    assert decode(Everything, payload_of(Everything, body)).title == ""


@pytest.mark.parametrize(
    "body",
    [
        {"timeout": "90s", "waits": ["1000ms", "1h"]},
        {"begunAt": "2024-02-29T12:30:00.500Z", "endedAt": "2024-02-29t14:30:00.1234567+02:00"},
        {"byNumber": {"1": "Ready"}, "other": {"every": "+1.5h"}},
    ],
)
def test_other_forms_of_a_value_are_kept_until_it_changes(body: dict[str, Any]) -> None:
    payload = payload_of(Everything, body)
    assert body_of(Everything, payload) == body
    made = decode(Everything, payload)
    made.timeout = timedelta(seconds=91)
    assert body_of(Everything, encode(made)) == body | {"timeout": "1m31s"}


def test_null_is_absent_and_numbers_may_have_a_point() -> None:
    payload = payload_of(
        Everything, {"title": None, "size": 1e3, "replicas": 1.0, "probe": None, "labels": {"a": None}}
    )
    assert body_of(Everything, payload) == {"size": 1000, "replicas": 1}


UNKNOWN = {
    "color": "red",
    "deep": {"a": [1, None, {"b": 2.5}]},
    "probe": {"path": "/ready", "port": 8080},
    "ports": [{"name": "http", "port": 80, "hostPort": 8080}, {"name": "dns", "port": 53, "nodePort": 30053}],
    "probes": [{"path": "/a", "x": 1}, {"path": "/b", "y": 2}],
    "byFlag": {"true": {"path": "/t", "z": 3}},
}


def test_unknown_fields_survive_an_edit_at_their_places() -> None:
    made = decode(Everything, payload_of(Everything, UNKNOWN))
    assert bytes([0xFA, 0xFF, 0xFF, 0xFF, 0x0F]) in encode(made), KEPT
    made.title = "new"
    made.ports = [made.ports[1], Port(name="metrics", port=9090)]
    made.probes[0].path = "/c"
    expected = copy.deepcopy(UNKNOWN) | {"title": "new"}
    expected["ports"] = [{"name": "dns", "port": 53, "nodePort": 30053}, {"name": "metrics", "port": 9090}]
    expected["probes"] = [{"path": "/c", "x": 1}, {"path": "/b", "y": 2}]
    assert body_of(Everything, encode(made)) == expected
    # Without names, an item that has left makes the places unclear.
    made.probes.pop(0)
    made.by_flag = {}
    body = body_of(Everything, encode(made))
    assert body["probes"] == [{"path": "/b"}]
    assert "byFlag" not in body


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"size": "5"}, 'size: "5" is not a whole number; expected a number such as 3, without quotes'),
        ({"size": 1.5}, "size: 1.5 is not a whole number"),
        ({"size": True}, "size: true is not a whole number"),
        ({"size": 1 << 63}, "size: 9223372036854775808 is out of range; expected a number from -9223372036854775808"),
        ({"count": -1}, "count: -1 is out of range; expected a number from 0 to 18446744073709551615"),
        ({"part": 1e300}, r"part: 1e\+300 is out of range; expected a number of 32 bits"),
        ({"ratio": float("nan")}, "ratio: nan is not a number in JSON"),
        ({"title": 5}, 'title: 5 is not text; expected text in quotes, such as "blog"'),
        ({"title": "\ud800"}, "title: .* is not valid Unicode"),
        ({"paused": "yes"}, 'paused: "yes" is not a boolean; expected true or false'),
        ({"data": "%"}, 'data: "%" is not base64'),
        ({"begunAt": "today"}, 'begunAt: "today" is not a time; expected text such as "2024-02-29T12:30:00Z"'),
        ({"begunAt": "2023-02-29T12:30:00Z"}, "begunAt: .* is not a time"),
        ({"timeout": "1d"}, 'timeout: "1d" is not a duration; expected text such as "1h30m" or "1.5s"'),
        ({"timeout": "3"}, 'timeout: "3" is not a duration'),
        ({"timeout": ""}, 'timeout: "" is not a duration'),
        ({"timeout": "99999999h"}, "timeout: .* the longest is 292 years"),
        ({"phase": "ready"}, 'phase: "ready" is not one of Failed, Pending, Ready'),
        ({"probe": []}, r"probe: \[\] is not an object"),
        ({"ports": {}}, "ports: {} is not a list"),
        ({"ports": [{}, {"port": "x"}]}, r'ports\[1\]\.port: "x" is not a whole number'),
        ({"ports": [None]}, r"ports\[0\]: null is not an object"),
        ({"words": ["a", 3]}, r"words\[1\]: 3 is not text"),
        ({"labels": {"a": 1}}, r'labels\["a"\]: 1 is not text'),
        ({"byNumber": {"x": "Ready"}}, r'byNumber\["x"\]: "x" is not a whole number'),
        ({"next": {"probe": {"path": 1}}}, "next.probe.path: 1 is not text"),
        ({"file": "a", "url": "b"}, "file and url are both set; expected at most one of file, url"),
        ({"key": "hunter2!"}, "key: the value, which is secret, is not base64"),
        ({"password": 12345}, "password: the value, which is secret, is not text"),
    ],
)
def test_wrong_values_are_named_with_their_path(body: dict[str, Any], problem: str) -> None:
    with pytest.raises(PayloadError, match=f"^{problem}") as raised:
        payload_of(Everything, body)
    assert "hunter2" not in str(raised.value)
    assert "12345" not in str(raised.value)


def test_nothing_is_kept_of_a_secret() -> None:
    body = {"password": "", "key": "AB=="}
    assert body_of(Everything, payload_of(Everything, body)) == {"password": "", "key": "AA=="}
    assert b"AB==" not in payload_of(Everything, body)


def test_value_without_a_form_in_json_is_named() -> None:
    with pytest.raises(PayloadError, match="ratio: inf is not a number in JSON"):
        body_of(Everything, encode(Everything(ratio=float("inf"))))
    with pytest.raises(PayloadError, match=r"probes\[0\].every: .* is too long; the longest duration"):
        body_of(Everything, encode(Everything(probes=[Probe(every=timedelta(days=200_000))])))
    with pytest.raises(PayloadError, match="phase: 9 has no name; expected one of Failed, Pending, Ready"):
        body_of(Everything, b"\x60\x09")


def test_wrappers_are_refused() -> None:
    with pytest.raises(DeclarationError, match=r"Choice\.wrapped: wrappers have no form in Kubernetes"):
        payload_of(Choice, {})


def test_name_that_is_a_keyword_in_python() -> None:
    @message
    class Rule:
        from_: str = field(1)

    assert body_of(Rule, payload_of(Rule, {"from": "a"})) == {"from": "a"}
    assert decode(Rule, payload_of(Rule, {"from": "a"})).from_ == "a"


def test_two_fields_with_one_name_are_refused() -> None:
    @message
    class Twice:
        kubernetes_names: ClassVar = {"a": "b"}
        a: str = field(1)
        b: str = field(2)

    with pytest.raises(DeclarationError, match="a and b are both 'b' in JSON"):
        payload_of(Twice, {})


SURROGATES = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(SURROGATES, max_size=6)
PHASES = st.sampled_from(["Pending", "Ready", "Failed"])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
DURATIONS = st.sampled_from(["0s", "90s", "1h2m3.5s", "-5ms", "1234567h", "0.5h", "3ns", "1.0000001s"])
TIMES = st.datetimes(timezones=st.just(UTC)).map(lambda at: at.isoformat().replace("+00:00", "Z")) | st.sampled_from(
    [
        "2024-02-29T12:30:00.123456789Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "2024-01-01T00:00:00+01:00",
    ]
)
BYTES = st.sampled_from(["", "aGVsbG8=", "AA==", "AB=="])
JSON = st.recursive(
    st.none() | st.booleans() | INT64 | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
UNKNOWNS = st.dictionaries(st.sampled_from(["x", "yZ", "unknown"]), JSON, max_size=2)


def objects(**known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda known, unknown: known | unknown, st.fixed_dictionaries({}, optional=known), UNKNOWNS)


PROBES = objects(path=TEXTS, every=DURATIONS)
PORTS = objects(name=TEXTS, port=st.integers(-(1 << 31), (1 << 31) - 1))
BODIES = objects(
    title=TEXTS,
    size=INT64,
    ratio=FLOATS,
    paused=st.booleans(),
    data=BYTES,
    begunAt=TIMES,
    timeout=DURATIONS,
    phase=PHASES,
    replicas=INT64,
    note=TEXTS,
    endedAt=TIMES,
    probe=PROBES,
    other=PROBES,
    ports=st.lists(PORTS, max_size=3),
    probes=st.lists(PROBES, max_size=3),
    words=st.lists(TEXTS, max_size=3),
    waits=st.lists(DURATIONS, max_size=3),
    labels=st.dictionaries(TEXTS, TEXTS, max_size=3),
    byNumber=st.dictionaries(st.integers(-9, 9).map(str), PHASES, max_size=3),
    byFlag=st.dictionaries(st.sampled_from(["true", "false"]), PROBES, max_size=2),
    file=TEXTS,
)


def reread(made: Any) -> dict[str, Any]:
    """Return the JSON of a message as a server would send it back."""
    return body_of(type(made), payload_of(type(made), json.loads(json.dumps(body_of(type(made), encode(made))))))


@given(BODIES)
def test_every_object_comes_back_as_it_was(body: dict[str, Any]) -> None:
    before = copy.deepcopy(body)
    payload = payload_of(Everything, body)
    assert body == before
    assert body_of(Everything, payload) == body
    assert reread(decode(Everything, payload)) == body


@given(BODIES, TEXTS, DURATIONS, PHASES)
def test_unknown_fields_survive_an_edit_of_known_ones(
    body: dict[str, Any], title: str, timeout: str, phase: str
) -> None:
    edit = decode(Everything, payload_of(Everything, {"timeout": timeout}))
    made = decode(Everything, payload_of(Everything, body))
    made.title, made.timeout, made.phase = title or "x", edit.timeout, Phase[phase]
    made.probe.path = "edited"
    if made.ports:
        made.ports[0].port = 4711
    found = body_of(Everything, encode(made))
    for path in ((), ("probe",), ("other",)):
        theirs, ours = body, found
        for step in path:
            theirs, ours = theirs.get(step, {}), ours.get(step, {})
        for name in ("x", "yZ", "unknown"):
            assert theirs.get(name) == ours.get(name)
    for name in body.keys() - {"title", "timeout", "phase", "probe", "ports"}:
        assert found[name] == body[name]
    assert found["title"] == (title or "x")
    assert found["probe"]["path"] == "edited"
    # The edited port is the first; the unknown fields of the others stay in any case.
    for theirs, ours in list(zip(body.get("ports", []), found.get("ports", []), strict=True)):
        assert theirs.get("unknown") == ours.get("unknown")
    assert decode(Everything, payload_of(Everything, found)).timeout == edit.timeout

"""The text of a token, and the bound on failed exchanges."""

from __future__ import annotations

import base64
import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidArgument
from headway.peering import PeeringToken, read_token
from headway.peering._failures import MOST, MOST_HOSTS, SECONDS, Failures

TOKEN = PeeringToken(
    peer_id="01J00000000000000000000000",
    peer_name="west",
    store_id="s",
    addresses=("10.0.0.1:9000", "unix:/run/h.sock"),
    server_name="engine.example.com",
    ca="-----BEGIN CERTIFICATE-----\n",
    plain_text=False,
    secret="s3cret",
    expires_at=datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC),
)
CONTENT = json.loads(base64.b64decode(TOKEN.text()))


def encoded(content: object) -> str:
    return base64.b64encode(json.dumps(content).encode()).decode()


def test_token_is_read_as_it_was_written() -> None:
    """Blanks around it do not matter, and its repr does not show the secret."""
    assert read_token(f"  {TOKEN.text()}\n") == TOKEN
    assert "s3cret" not in repr(TOKEN)
    assert CONTENT["version"] == 1


def test_fields_of_a_later_release_are_ignored() -> None:
    assert read_token(encoded(CONTENT | {"colour": "blue"})) == TOKEN


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the token is empty"),
        ("s3cret!", "the token is not valid base64 of JSON: copy all of it, on one line"),
        (TOKEN.text()[:-9], "the token is not valid base64 of JSON"),
        (encoded(["s3cret"]), "the token is not a JSON object"),
        (encoded(CONTENT | {"version": 2}), "the token has version 2, and this program reads version 1"),
        (encoded({"secret": "s3cret"}), "the token has version None"),
        (encoded({"version": 1, "secret": "s3cret"}), "the token lacks addresses, ca, expires_at, peer_id"),
        (encoded(CONTENT | {"peer_id": 7}), "the token's peer_id must be a string"),
        (encoded(CONTENT | {"addresses": []}), "the token's addresses must be a list of addresses"),
        (encoded(CONTENT | {"addresses": "10.0.0.1:9000"}), "the token's addresses must be a list of addresses"),
        (encoded(CONTENT | {"plain_text": "no"}), "the token's plain_text must be true or false"),
        (encoded(CONTENT | {"expires_at": 5}), "the token's expires_at must be a time with its zone"),
        (encoded(CONTENT | {"expires_at": "2026-01-31T12:00:00"}), "the token's expires_at must be a time with its"),
        ("A" * 40_000, "the token has 40000 characters: it must have at most 32768"),
    ],
)
def test_invalid_token_is_refused_without_quoting_it(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_token(text)
    assert str(caught.value).startswith(said)
    assert "s3cret" not in str(caught.value)


@given(st.one_of(st.text(), st.recursive(st.none() | st.text() | st.integers(), st.lists).map(encoded)))
def test_any_text_is_a_token_or_invalid(text: str) -> None:
    with pytest.raises(InvalidArgument):
        read_token(text)


def test_host_that_fails_too_often_is_refused_for_a_minute() -> None:
    """Each failure counts for a minute. Other hosts are not affected."""
    failures = Failures()
    for number in range(MOST):
        assert not failures.refuses("a", number)
        failures.add("a", number)
    assert failures.refuses("a", MOST)
    assert not failures.refuses("b", MOST)
    assert failures.refuses("a", SECONDS - 0.1)
    assert not failures.refuses("a", SECONDS)


def test_failures_of_many_hosts_take_bounded_memory() -> None:
    """The host whose failure was the longest ago is forgotten first."""
    failures = Failures()
    for number in range(MOST_HOSTS + 1):
        for _ in range(MOST):
            failures.add(str(number), 0.0)
    assert not failures.refuses("0", 1.0)
    assert failures.refuses("1", 1.0)
    assert len(failures._times) == MOST_HOSTS

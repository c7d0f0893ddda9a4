"""Logins for any text, any claims, any set of keys and any course of time: compared with what plain functions say."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headway.access import Keys, Login, read_keys
from headway.access._key_ring import SHORTEST_PAUSE, KeyRing
from headway.errors import InvalidArgument, PermissionDenied
from headway.rpc import TOKEN_HEADER
from tests.access.logins import ISS, KEYS, authorizer, issuer
from tests.helpers.login_issuer import ED_KEY, b64, public_jwk, signed

NOW = 2_000_000_000.0
LEEWAY = 30

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
TIMES = st.sampled_from([NOW - 31, NOW - 30, NOW - 29, NOW, NOW + 29, NOW + 30, NOW + 31, NOW + 3600]) | JSON
CLAIMS = st.fixed_dictionaries(
    {},
    optional={
        "iss": st.sampled_from([ISS, ISS, ISS, "https://other.example.com"]) | JSON,
        "aud": st.sampled_from(["headway", ["headway"], ["x", "headway"], "x", []]) | JSON,
        "sub": st.sampled_from(["ada", "ada", "", "a\nb"]) | JSON,
        "exp": TIMES,
        "nbf": TIMES,
        "iat": TIMES,
        "groups": st.sampled_from(["ops", ["ops"], ["guests", "ops"], "guests"]) | JSON,
    },
)
GOOD = {"iss": ISS, "aud": "headway", "sub": "ada", "exp": NOW + 3600, "groups": ["ops"]}


def is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2**40


def is_good(claims: dict[str, Any]) -> bool:
    """Return True for the claims of a login, by the plainest code possible."""
    audiences, groups, subject = claims.get("aud"), claims.get("groups"), claims.get("sub")
    if isinstance(audiences, str):
        audiences = [audiences]
    if not isinstance(groups, list):
        groups = [groups]
    early = [claims[name] for name in ("nbf", "iat") if name in claims]
    return (
        claims.get("iss") == ISS
        and isinstance(audiences, list)
        and all(isinstance(each, str) for each in audiences)
        and "headway" in audiences
        and isinstance(subject, str)
        and 0 < len(subject) <= 255
        and subject.isprintable()
        and "exp" in claims
        and is_time(claims["exp"])
        and claims["exp"] + LEEWAY > NOW
        and all(is_time(each) and each <= NOW + LEEWAY for each in early)
        and any(each == "ops" for each in groups)
    )


def accepted(text: str) -> Login | None:
    """Return the login of a text, or None if it is refused. Any other error is a failure."""
    access = authorizer(clock=lambda: NOW)
    try:
        login = access.identify({TOKEN_HEADER: text}).token
    except PermissionDenied:
        assert access.refusal({TOKEN_HEADER: text}).why
        return None
    assert isinstance(login, Login)
    return login


@given(st.text() | st.lists(st.text("ab=-_.", max_size=9), min_size=3, max_size=3).map(".".join))
def test_any_text_is_refused(text: str) -> None:
    """A stranger can send anything."""
    if text:
        assert accepted(text) is None


@given(JSON, JSON, st.binary(max_size=70))
def test_any_json_is_refused_without_a_signature(header: object, payload: object, signature: bytes) -> None:
    """Odd values of odd types raise no other error."""
    assert accepted(f"{b64(json.dumps(header).encode())}.{b64(json.dumps(payload).encode())}.{b64(signature)}") is None


@given(st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "jwk", "x5t"]), JSON, max_size=4))
def test_any_header_that_the_issuer_signs_is_refused_or_harmless(header: dict[str, Any]) -> None:
    """Only these values of these parameters are accepted."""
    login = accepted(signed({"alg": "EdDSA", "kid": "d", **header}, GOOD, ED_KEY))

    whole = {"alg": "EdDSA", "kid": "d", "typ": "JWT", **header}
    harmless = whole["alg"] in ("EdDSA", "Ed25519") and whole["kid"] in ("d", None) and whole["typ"] == "JWT"
    if isinstance(whole["typ"], str) and whole["typ"].lower() in ("jwt", "at+jwt"):
        return
    assert (login is not None) is (harmless and not {"crit", "jwk"} & set(header))


@given(CLAIMS, st.booleans())
def test_claims_are_accepted_exactly_if_they_are_those_of_a_login(claims: dict[str, Any], whole: bool) -> None:
    """The issuer's signature is right each time. NaN and infinity are not JSON."""
    claims = {**GOOD, **claims} if whole else claims
    login = accepted(signed({"alg": "EdDSA", "kid": "d"}, claims, ED_KEY))

    written = json.dumps(claims)
    is_json = not any(word in written for word in ("NaN", "Infinity"))
    assert (login is not None) is (is_json and is_good(claims))
    if login is not None:
        assert (login.subject, login.expires_at) == (claims["sub"], claims["exp"] + LEEWAY)


MEMBERS = dict.fromkeys(("crv", "n", "e", "x", "y", "use", "alg", "kid", "key_ops"), JSON)
ENTRIES = st.fixed_dictionaries({"kty": st.sampled_from(["RSA", "EC", "OKP"])}, optional=MEMBERS)


@given(JSON | st.lists(ENTRIES, max_size=3).map(lambda keys: {"keys": keys}))
def test_any_set_of_keys_is_used_or_refused(document: object) -> None:
    """An issuer can answer anything."""
    try:
        keys = read_keys(json.dumps(document))
    except InvalidArgument:
        return
    assert len(keys) > 0


STEPS = st.lists(st.tuples(st.sampled_from(["want", "read", "fail"]), st.floats(0, 400, allow_nan=False)), max_size=60)


@given(STEPS)
def test_readings_are_apart_and_keys_are_fresh(steps: list[tuple[str, float]]) -> None:
    """Whatever tokens ask for and whatever the issuer answers: no two readings follow closely, no key is too old."""
    ring = KeyRing(issuer(refresh_interval=60, stale_limit=900))
    keys, now, tried, fresh = read_keys(json.dumps({"keys": [public_jwk(ED_KEY)]})), 1000.0, -math.inf, -math.inf
    for what, seconds in steps:
        now += seconds
        ring.drop_if_stale(now)
        assert len(ring.keys) == 0 or now - fresh < 900
        assert len(ring.keys) > 0 or now - fresh >= 900
        if what == "want":
            ring.want()
        elif ring.due() <= now:
            assert now - tried >= (SHORTEST_PAUSE if ring.failures == 0 else 1)
            ring.begin(now)
            tried = now
            if what == "read":
                ring.loaded(keys, now)
                fresh = now
            else:
                ring.failed(now)
        assert ring.due() <= now + 60
    assert isinstance(ring.keys, Keys)
    assert len(read_keys(KEYS)) == 3


def test_issuer_that_is_back_is_noticed_within_a_minute() -> None:
    """However long it was away, and however rarely its keys are read otherwise."""
    ring, now = KeyRing(issuer(refresh_interval=86_400, stale_limit=86_400)), 0.0
    pauses = []
    for _ in range(20):
        ring.begin(now)
        ring.failed(now)
        pauses.append(ring.due() - now)
        now = ring.due()
    assert pauses == [1, 2, 4, 8, 16, 32, *[60] * 14]

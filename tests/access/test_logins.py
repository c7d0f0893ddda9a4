"""The logins of an authorizer: those that are kept, the refusals, and what asks for other keys. Without an issuer."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric import ed25519
from trio.testing import MockClock

from headway.access import Authorizer, Issuer, read_keys
from headway.access import _logins as logins_module
from headway.access._jwt_text import JwtRefused
from headway.access._login import verified
from headway.access._logins import Logins
from tests.access.logins import ISS, KEYS, access, issuer
from tests.helpers.login_issuer import ED_KEY, claims, signed

NOW = 2_000_000_000


def opened(*, reading: bool = False, **changes: Any) -> Logins:
    """Return the logins of an issuer whose keys have been read just now, or are being read."""
    logins = Authorizer(access(issuer(**changes))).logins
    ring = logins.rings["corp"]
    logins.keepers = 1
    if reading:
        ring.drop()
        ring.begin(trio.current_time())
    else:
        ring.begin(0.0)
        ring.loaded(ring.keys, 0.0)
    return logins


def token(kid: str | None = "d", key: ed25519.Ed25519PrivateKey = ED_KEY, **changes: Any) -> str:
    header = {"alg": "EdDSA"} if kid is None else {"alg": "EdDSA", "kid": kid}
    return signed(header, claims(ISS, **{"iat": NOW - 60, "nbf": NOW - 60, "exp": NOW + 3600, **changes}), key)


def reason(logins: Logins, text: str) -> str:
    with pytest.raises(JwtRefused) as refused:
        logins.find(text, NOW)
    return refused.value.reason


def asks_for_keys(logins: Logins, text: str) -> bool:
    """Return True if finding the login of a token asks for another reading of the keys."""
    wanted = logins.wanted
    reason(logins, text)
    return wanted.is_set()


def test_login_that_was_not_used_for_longest_is_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of those that are kept is bounded."""
    monkeypatch.setattr(logins_module, "MOST_KEPT", 3)
    found: list[str] = []

    def counted(presented: Any, *rest: Any) -> Any:
        found.append(presented.claims["sub"])
        return verified(presented, *rest)

    monkeypatch.setattr(logins_module, "verified", counted)
    logins = opened()
    texts = {name: token(sub=name) for name in "abcd"}
    for name in "abcabdab":
        logins.find(texts[name], NOW)
    assert found == ["a", "b", "c", "d"]
    logins.find(texts["c"], NOW)
    assert found[4:] == ["c"]


def test_refusal_is_that_of_the_token_and_not_the_last_one() -> None:
    logins = opened()
    expired, foreign = token(exp=NOW - 3600), token(aud="other")
    assert [reason(logins, text) for text in (expired, foreign)] == ["expired", "audience"]
    assert [logins.refusal(text, NOW).reason for text in (expired, foreign)] == ["expired", "audience"]


@pytest.mark.parametrize(
    ("after", "why"),
    [(issuer(audiences=["other"]), "audience"), (issuer(authority="/etc/other.pem"), "no_keys")],
    ids=["same place", "another authority"],
)
def test_replaced_issuer_keeps_keys_only_from_the_same_place(after: Issuer, why: str) -> None:
    logins = opened()
    logins.find(token(), NOW)
    logins.replace({"corp": after}, {})
    assert reason(logins, token()) == why


def test_token_asks_for_other_keys_only_if_they_can_help() -> None:
    """A wrong signature tells of a new key only if the issuer has no kids."""
    other = ed25519.Ed25519PrivateKey.generate()
    assert asks_for_keys(opened(), token("new"))
    assert asks_for_keys(opened(), token(None, other))
    assert not asks_for_keys(opened(), token("d", other))
    assert not asks_for_keys(opened(), token("a"))
    assert not asks_for_keys(opened(), token(exp=NOW - 3600))


@pytest.mark.parametrize("text", [token(), token(None), "no token"], ids=["known", "no kid", "no token"])
async def test_request_does_not_wait_for_keys_that_cannot_help(text: str) -> None:
    """It does not ask for them either: a stranger could send many."""
    logins = opened()
    wanted = logins.wanted
    with trio.fail_after(10):
        await logins.wait_for_key(text)
    assert not wanted.is_set()


async def test_waiting_requests_are_bounded(autojump_clock: MockClock) -> None:
    logins = opened(reading=True)
    logins.waiting = 999
    await logins.wait_for_key(token())
    assert autojump_clock.current_time() == 5
    logins.waiting = 1_000
    logins.rings["corp"].begin(trio.current_time())
    await logins.wait_for_key(token())
    assert autojump_clock.current_time() == 5


@pytest.mark.parametrize(
    ("issuers", "keys"), [({}, {}), ({"corp": issuer()}, {"corp": read_keys(KEYS)})], ids=["none", "with keys"]
)
async def test_waiting_request_goes_on_when_its_issuer_is_replaced(
    issuers: dict[str, Issuer], keys: dict[str, Any], autojump_clock: MockClock
) -> None:
    """The reading that it waits for is of the former one."""
    logins = opened(reading=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logins.wait_for_key, token())
        await trio.testing.wait_all_tasks_blocked()
        logins.replace(issuers, keys)
    assert autojump_clock.current_time() == 0
